"""What a server's statuses mean for a micro-batch."""

from __future__ import annotations

import pytest

from millstream.inference.errors import ExecutorUnavailable, ModelRejected, OutOfMemory, Throttled, TimedOut
from millstream.inference.executors.kserve.statuses import of_grpc, of_http


@pytest.mark.parametrize(
    ("code", "said", "kind"),
    [
        ("INVALID_ARGUMENT", "bad shape", ModelRejected),
        ("UNAVAILABLE", "failed to connect", ExecutorUnavailable),
        ("UNAVAILABLE", "Exceeds maximum queue size", Throttled),
        ("RESOURCE_EXHAUSTED", "quota", Throttled),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", TimedOut),
        ("UNAVAILABLE", "Request timeout expired", TimedOut),
        ("NOT_FOUND", "unknown model", ExecutorUnavailable),
        ("INTERNAL", "a bug", ExecutorUnavailable),
        ("INTERNAL", "CUDA out of memory", OutOfMemory),
        ("UNAUTHENTICATED", "no token", ExecutorUnavailable),
        ("UNKNOWN", "no reason given", ExecutorUnavailable),
    ],
)
def test_grpc(code: str, said: str, kind: type[Exception]) -> None:
    assert type(of_grpc(code, said)) is kind


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (201, "created", ExecutorUnavailable),
        (307, "elsewhere", ExecutorUnavailable),
        (400, "bad shape", ModelRejected),
        (422, "no", ModelRejected),
        (401, "no token", ExecutorUnavailable),
        (404, "unknown model", ExecutorUnavailable),
        (408, "slow", ExecutorUnavailable),
        (429, "too many", Throttled),
        (500, "a bug", ExecutorUnavailable),
        (500, "out of memory", OutOfMemory),
        (503, "away", ExecutorUnavailable),
        (503, "Exceeds maximum queue size", Throttled),
        (504, "slow", ExecutorUnavailable),
    ],
)
def test_http(status: int, said: str, kind: type[Exception]) -> None:
    assert type(of_http(status, said)) is kind


def test_server_may_say_when_it_wants_the_request_again() -> None:
    found = of_http(503, "later", 2.5)
    assert isinstance(found, Throttled)
    assert found.retry_after == 2.5
