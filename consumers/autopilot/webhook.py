"""Sends each change to a web server, from a thread of its own: a server that is slow or away never delays a decision."""

from __future__ import annotations

import json
import logging
import threading
import urllib.error
import urllib.request
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Self

from millstream.consumers.autopilot import metrics as m

if TYPE_CHECKING:
    from millstream.consumers.autopilot.metrics import AutopilotMetrics
    from millstream.pipeline.rollout_section import Webhook

log = logging.getLogger(__name__)

TIMEOUT: Final = 5.0  # seconds that the server may take for each part of its answer
TOTAL_TIMEOUT: Final = 15.0  # seconds that a whole call may take: a server may send its answer byte by byte
MOST_CALLS: Final = 4  # that may be on their way, with those that took too long
WAITS: Final = (1.0, 5.0, 15.0)  # seconds before each further attempt
MOST_WAITING: Final = 100  # changes; the oldest are given up first
CLOSE_TIMEOUT: Final = 8.0  # seconds that the end waits for what is still to be sent


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would send the headers, with their secrets, to another server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class WebhookThread:
    """See the module. A context manager. `send` may be called from any thread."""

    def __init__(
        self,
        section: Webhook,
        metrics: AutopilotMetrics,
        waits: tuple[float, ...] = WAITS,
        total: float = TOTAL_TIMEOUT,
    ) -> None:
        """Args:
        section: the URL and the headers. They hold secrets, and are never logged.
        metrics: get the results.
        waits: seconds before each further attempt.
        total: seconds that a call may take.
        """
        self._section = section
        self._metrics = metrics
        self._waits = waits
        self._total = total
        self._calls = threading.Semaphore(MOST_CALLS)
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._waiting = deque[dict[str, Any]]()
        self._came = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def send(self, change: dict[str, Any]) -> None:
        """Send a change soon. It returns at once."""
        with self._came:
            if len(self._waiting) >= MOST_WAITING:
                self._give_up(self._waiting.popleft(), f"{MOST_WAITING} more changes are waiting")
            self._waiting.append(change)
            self._came.notify()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._came:
            self._ending = True
            self._came.notify()
        self._thread.join(CLOSE_TIMEOUT)

    def _run(self) -> None:
        while True:
            with self._came:
                self._came.wait_for(lambda: self._waiting or self._ending)
                if not self._waiting:
                    return
                change = self._waiting.popleft()
            try:
                self._deliver(change)
            except Exception as error:  # a bug must not end the thread
                self._give_up(change, f"unexpected {type(error).__name__}")

    def _deliver(self, change: dict[str, Any]) -> None:
        """Send it, with some more attempts."""
        for wait in (*self._waits, None):
            problem, lasts = self._bounded_attempt(change)
            if problem is None:
                self._metrics.count(m.WEBHOOKS, 1, "sent")
                return
            if wait is None or lasts or self._ending:
                self._give_up(change, problem)
                return
            with self._came:
                self._came.wait_for(lambda: self._ending, wait)

    def _bounded_attempt(self, change: dict[str, Any]) -> tuple[str | None, bool]:
        """As `_attempt`, for a bounded time; a call that takes longer has failed for good.

        Nothing can end a call from outside, so it gets a thread, which may stay behind.
        """
        if not self._calls.acquire(blocking=False):
            return f"{MOST_CALLS} earlier calls have not ended yet", False
        found = SimpleQueue[tuple[str | None, bool]]()

        def call() -> None:
            try:
                found.put(self._attempt(change))
            finally:
                self._calls.release()

        threading.Thread(target=call, name="webhook call", daemon=True).start()
        try:
            return found.get(timeout=self._total)
        except Empty:
            # It goes on, and the server may still take it: another attempt would send the change twice, and out of order.
            return f"the call took longer than {self._total:g} s", True

    def _attempt(self, change: dict[str, Any]) -> tuple[str | None, bool]:
        """Why it wasn't taken, and whether that will stay so. The reason never quotes the URL, a header or the server's words."""
        try:
            headers = {name: value.get_secret_value() for name, value in self._section.headers.items()}
            request = urllib.request.Request(
                self._section.url.get_secret_value(),
                json.dumps(change).encode(),
                {"Content-Type": "application/json", "User-Agent": "millstream-autopilot", **headers},
                method="POST",
            )
            with self._opener.open(request, timeout=TIMEOUT):
                return None, False
        except urllib.error.HTTPError as error:
            error.close()
            return f"the server answered HTTP {error.code}", error.code < 500 and error.code not in (408, 425, 429)
        except urllib.error.URLError as error:
            return _told(error.reason), False
        except Exception as error:  # http.client's own errors quote a bad URL or header
            return _told(error), isinstance(error, ValueError)

    def _give_up(self, change: dict[str, Any], problem: str) -> None:
        self._metrics.count(m.WEBHOOKS, 1, "failed")
        log.error(
            "the webhook did not get the change %r (revision %s): %s. The change holds. Check `rollout.webhook`",
            change.get("action"),
            change.get("revision"),
            problem,
        )


def _told(error: object) -> str:
    """The class of the error, and the system's words: never its own text, which may quote the URL."""
    words = error.strerror if isinstance(error, OSError) and error.strerror else ""
    return f"{type(error).__name__} ({words})" if words else type(error).__name__
