"""Calls with a time limit, for libraries that have none."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

T = TypeVar("T")


class TimedCalls:
    """Makes calls in a thread of its own, one at a time. One thread uses it."""

    def __init__(self, timeout: float) -> None:
        """`timeout`: seconds that a call may take."""
        self._timeout = timeout
        self._calls: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()
        self._late = 0  # calls that took too long, and whose answers have not come
        self._thread: threading.Thread | None = None

    def call(self, call: Callable[[], T]) -> T:
        """Return what `call` returns, or raise what it raises.

        Raises:
            TimeoutError: it takes longer than the timeout. It then goes on, and the next call first waits for its end.
        """
        if self._thread is None:
            # A daemon, because a call that never returns must not keep the process.
            self._thread = threading.Thread(target=self._run, name="feature-store", daemon=True)
            self._thread.start()
        while self._late:
            self._next()
            self._late -= 1
        self._calls.put(call)
        self._late += 1
        answer, error = self._next()
        self._late -= 1
        if error is not None:
            raise error
        return cast("T", answer)

    def _next(self) -> tuple[Any, Exception | None]:
        try:
            return self._answers.get(timeout=self._timeout)
        except Empty:
            raise TimeoutError(f"no answer within {self._timeout * 1000:g} ms") from None

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            try:
                self._answers.put((call(), None))
            except Exception as error:
                self._answers.put((None, error))
