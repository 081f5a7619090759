"""Webhooks, sent to a real web server."""

from __future__ import annotations

import json
import logging
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from millstream.consumers.autopilot import webhook
from millstream.consumers.autopilot.metrics import AutopilotMetrics
from millstream.consumers.autopilot.webhook import WebhookThread
from millstream.pipeline.rollout_section import Webhook
from tests.broker.clients import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "s3cr3t"


class Hook(ThreadingHTTPServer):
    """Answers with the codes of a list, the last one again and again."""

    def __init__(self, *codes: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.codes = list(codes)
        self.got: list[tuple[dict[str, str], Any]] = []
        self.came = threading.Event()  # set once a request is here
        self.dripping: set[int] = set()  # revisions that are answered byte by byte
        self.dripped = threading.Event()  # set with each of these bytes
        self.pause = threading.Event()  # never set
        self.go = threading.Event()
        self.go.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{SECRET}"


class _Handler(BaseHTTPRequestHandler):
    server: Hook

    def do_POST(self) -> None:
        self.server.came.set()
        self.server.go.wait(30)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((dict(self.headers), body))
        if self._drips(body):
            return
        codes = self.server.codes
        self.send_response(codes.pop(0) if len(codes) > 1 else codes[0])
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def _drips(self, body: Any) -> bool:
        """Send an answer byte by byte that never becomes a whole line; whether it did."""
        drips = False
        with suppress(OSError):  # the client has gone
            while body.get("revision") in self.server.dripping:
                drips = True
                self.wfile.write(b"H")
                self.wfile.flush()
                self.server.dripped.set()
                self.server.pause.wait(0.01)
        return drips

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook(200) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.go.set()
        server.dripping = set()
        server.shutdown()
        thread.join()


def section(url: str, **headers: str) -> Webhook:
    return Webhook(url=SecretStr(url), headers={name: SecretStr(value) for name, value in headers.items()})


def results(metrics: AutopilotMetrics) -> tuple[float, float]:
    """How many were sent, and how many failed."""
    found = [
        metrics.registry.get_sample_value("millstream_autopilot_webhooks_total", {"pipeline": "p", "result": result})
        for result in ("sent", "failed")
    ]
    return found[0] or 0.0, found[1] or 0.0


def test_change_is_posted_with_its_headers(hook: Hook) -> None:
    metrics = AutopilotMetrics("p")
    with WebhookThread(section(hook.url, Authorization="Bearer t"), metrics) as thread:
        thread.send({"action": "step", "revision": 3})
    [(headers, body)] = hook.got  # the end waits for it
    assert body == {"action": "step", "revision": 3}
    assert (headers["Authorization"], headers["Content-Type"]) == ("Bearer t", "application/json")
    assert results(metrics) == (1, 0)


def test_server_that_fails_is_asked_again_a_few_times(hook: Hook) -> None:
    metrics = AutopilotMetrics("p")
    hook.codes = [500, 429, 204]
    with WebhookThread(section(hook.url), metrics, (0.01, 0.01)) as thread:
        thread.send({"action": "step"})
        wait_until(lambda: results(metrics) == (1, 0), 10, "the third attempt")
    assert len(hook.got) == 3


@pytest.mark.parametrize(("code", "attempts"), [(500, 3), (401, 1), (302, 1)])
def test_failure_is_told_without_the_secrets(
    hook: Hook, caplog: pytest.LogCaptureFixture, code: int, attempts: int
) -> None:
    metrics = AutopilotMetrics("p")
    hook.codes = [code]
    with caplog.at_level(logging.DEBUG), WebhookThread(section(hook.url, x=SECRET), metrics, (0.01, 0.01)) as thread:
        thread.send({"action": "rollback", "revision": 7})
        wait_until(lambda: results(metrics) == (0, 1), 10, "the failure")
    assert len(hook.got) == attempts
    assert f"did not get the change 'rollback' (revision 7): the server answered HTTP {code}" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("url", "header"),
    [
        (f"http://127.0.0.1:1/{SECRET}", "x"),
        (f"http://127.0.0.1:{SECRET}/", "x"),
        (f"http://{SECRET}.invalid/", "x"),
        (f"http://127.0.0.1:1/{SECRET} and a space", "x"),
        ("http://127.0.0.1:1/", f"{SECRET}\nx"),
    ],
)
def test_what_can_not_be_sent_is_told_without_the_secrets(
    caplog: pytest.LogCaptureFixture, url: str, header: str
) -> None:
    metrics = AutopilotMetrics("p")
    with caplog.at_level(logging.DEBUG), WebhookThread(section(url, x=header), metrics, (0.01,)) as thread:
        thread.send({"action": "step", "revision": 1})
        wait_until(lambda: results(metrics) == (0, 1), 10, "the failure")
    assert "did not get the change" in caplog.text
    assert SECRET not in caplog.text


def test_slow_server_delays_nobody(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "MOST_WAITING", 2)
    metrics = AutopilotMetrics("p")
    hook.go.clear()
    with WebhookThread(section(hook.url), metrics) as thread:
        thread.send({"revision": 1})
        assert hook.came.wait(10)
        for revision in (2, 3, 4):
            thread.send({"revision": revision})  # returns at once
        assert results(metrics) == (0, 1)  # the oldest one
        hook.go.set()
    assert [body["revision"] for _, body in hook.got] == [1, 3, 4]


def test_server_that_sends_its_answer_byte_by_byte_holds_up_nothing(
    hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = AutopilotMetrics("p")
    hook.dripping = {1}
    with WebhookThread(section(hook.url), metrics, (0.01, 0.01), 0.3) as thread:
        thread.send({"action": "step", "revision": 1})
        wait_until(lambda: results(metrics) == (0, 1), 10, "the call to be given up")
        hook.dripped.clear()
        assert hook.dripped.wait(10), "the server still answers"
        thread.send({"action": "step", "revision": 2})
        wait_until(lambda: results(metrics) == (1, 1), 10, "the next one to be sent meanwhile")
    assert "(revision 1): the call took longer than 0.3 s" in caplog.text
    assert [body["revision"] for _, body in hook.got] == [1, 2], "the call may still succeed, so it is not made again"


def test_calls_that_never_end_are_not_made_without_limit(
    hook: Hook, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "MOST_CALLS", 2)
    metrics = AutopilotMetrics("p")
    hook.dripping = {1, 2}
    with WebhookThread(section(hook.url), metrics, (), 0.3) as thread:
        for revision in (1, 2, 3):
            thread.send({"action": "step", "revision": revision})
        wait_until(lambda: results(metrics) == (0, 3), 10, "all of them to be given up")
        assert len(hook.got) == 2
        hook.dripping = set()
        wait_until(lambda: is_sent(thread, metrics), 10, "calls to be made again")
    assert "(revision 3): 2 earlier calls have not ended yet" in caplog.text


def is_sent(thread: WebhookThread, metrics: AutopilotMetrics) -> bool:
    """Send another change, and wait for its result."""
    before = results(metrics)
    thread.send({"action": "step", "revision": 9})
    wait_until(lambda: results(metrics) != before, 10, "a result")
    return results(metrics)[0] > before[0]
