"""Micro-batches on an asynchronous executor: many at a time, in order, and through outages."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.consumers.errors import Abandoned
from millstream.consumers.events import NEVER, BatchSlice, MicroBatch
from millstream.consumers.execute import circuit_breaker
from millstream.consumers.execute.rate_limit import GroupQuota
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.observability import metrics as m
from millstream.consumers.resilience import outage
from millstream.inference.errors import (
    ExecutorUnavailable,
    ModelConfigError,
    ModelRejected,
    NotSent,
    Throttled,
    TimedOut,
)
from millstream.inference.executors.blocking import BlockingExecutor
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from tests.broker.clients import wait_until
from tests.consumers.execute.remote import Held, NegatingServer, Remote
from tests.consumers.in_memory import MODELS, batch_of, block, ended, running

if TYPE_CHECKING:
    import numpy.typing as npt

    from millstream.consumers.execute.async_runner import AsyncRunner
    from millstream.inference.executors.interface import Tensors


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breaker, "BACK_OFF", (0.001, 0.01))


def blocked(remote: Remote, offset: int) -> bool:
    """Whether the event there is named as the first one that waits."""
    return remote.value(m.BLOCKED, what="executor", topic="in", partition="0", offset=str(offset)) is not None


def test_many_batches_are_in_flight_and_their_results_go_on_in_order() -> None:
    many = asyncio.Event()

    async def uneven(inputs: Tensors) -> None:
        if server.flying > 100:
            many.set()
        await asyncio.wait_for(many.wait(), 30)
        await asyncio.sleep(float(inputs["x"][0, 0]) * 7 % 10 / 1000)

    server = NegatingServer(uneven)
    with Remote(server, concurrency=300) as remote:
        for number in range(300):
            remote.pool.submit(batch_of("ee", 2 * number))
        remote.pool.settle()
        results = remote.results()
    assert [one.number for one in results] == list(range(300))
    assert [one.outputs["y"].ravel().tolist() for one in results] == [[-2 * n, -2 * n - 1] for n in range(300)]
    assert {one.models for one in results} == {MODELS}
    assert remote.errors == []
    assert remote.value(m.BATCHES, reason="size") == remote.value(m.STAGE_SECONDS, "_count", stage="infer") == 300


@pytest.mark.parametrize(("ordering", "passed_on"), [("partition", []), ("key", [1]), ("none", [1])])
def test_result_waits_for_earlier_ones_as_the_ordering_says(ordering: Any, passed_on: list[int]) -> None:
    held = Held()
    with Remote(NegatingServer(held), ordering=ordering) as remote:
        remote.pool.submit(batch_of("e", 10))
        remote.pool.submit(batch_of("e", 20))
        held.wait_for(2)
        held.release(remote, 20)
        wait_until(lambda: remote.value(m.STAGE_SECONDS, "_count", stage="infer") == 1, 10, "the second result")
        wait_until(lambda: len(remote.results()) == len(passed_on), 10, "it to be passed on or not")
        assert [one.number for one in remote.results()] == passed_on
        held.release(remote, 10)
        remote.pool.settle()
        assert [one.number for one in remote.results()] == ([1, 0] if passed_on else [0, 1])


def test_no_more_requests_are_in_flight_than_the_limit() -> None:
    held = Held()
    server = NegatingServer(held)
    with Remote(server, concurrency=2, ahead=1) as remote:
        for number in range(3):
            remote.pool.submit(batch_of("e", number))
        held.wait_for(2)
        waiting = running(lambda: remote.pool.submit(batch_of("e", 3)))
        assert server.flying == 2
        held.release(remote, 0)
        assert ended(waiting)
        held.wait_for(3)
        held.release(remote, 1, 2)
        held.wait_for(4)
        held.release(remote, 3)
        remote.pool.settle()
    assert server.most_flying == 2


def test_waiting_for_one_ends_once_another_batch_would_run_at_once() -> None:
    held = Held()
    with Remote(NegatingServer(held), concurrency=2) as remote:
        remote.pool.submit(batch_of("e", 0))
        assert not remote.pool.wait_for_one(), "a place is free"
        remote.pool.submit(batch_of("e", 1))
        held.wait_for(2)
        found: list[bool] = []
        waiting = running(lambda: found.append(remote.pool.wait_for_one()))
        assert found == []
        held.release(remote, 0)
        assert ended(waiting)
        assert found == [True]
        held.release(remote, 1)
        remote.pool.settle()


def test_batch_that_is_too_large_for_the_server_becomes_several_requests_at_the_same_time() -> None:
    held = Held()
    server = NegatingServer(held)
    server.max_events = 2  # what the server said at the start
    with Remote(server, concurrency=3) as remote:
        remote.pool.submit(batch_of("eeeee"))
        held.wait_for(3)
        assert server.flying == 3
        held.release(remote, 0, 2, 4)
        remote.pool.settle()
        results = remote.results()
    assert sorted(server.requests) == [[0, 1], [2, 3], [4]]
    assert set(server.timeouts) == {30.0}, "each has a time limit of its own"
    assert [one.number for one in results] == [0, 1, 2]
    assert [y for one in results for y in one.outputs["y"].ravel().tolist()] == [0, -1, -2, -3, -4]


def test_bad_events_are_isolated_and_the_batches_beside_them_are_not_touched() -> None:
    async def refusing(inputs: Tensors) -> None:
        await asyncio.sleep(0)
        if 13 in inputs["x"] or 17 in inputs["x"]:
            raise ModelRejected("unlucky")

    server = NegatingServer(refusing)
    with Remote(server) as remote:
        for start in (0, 10, 20):
            remote.pool.submit(batch_of("e" * 10, start))
        remote.pool.settle()
        results = remote.results()
    assert [len(one.rows) for one in results] == [10, 8, 10]
    assert {row: why.reason for row, why in results[1].rejected.items()} == {3: "model_rejected", 7: "model_rejected"}
    assert len([request for request in server.requests if request[0] < 10]) == 1


def test_error_of_the_executor_itself_rejects_only_the_event_that_raises_it() -> None:
    async def buggy(inputs: Tensors) -> None:
        if 5 in inputs["x"]:
            raise IndexError("a bug")

    with Remote(NegatingServer(buggy)) as remote:
        remote.pool.submit(batch_of("e" * 10))
        remote.pool.settle()
        (result,) = remote.results()
    assert {row: why.reason for row, why in result.rejected.items()} == {5: "internal_error"}
    assert len(result.rows) == 9


def test_outage_is_waited_for_with_one_request_at_a_time_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    away = True

    async def server_away(_inputs: Tensors) -> None:
        await asyncio.sleep(0.001)
        if away:
            raise ConnectionError("refused")

    server = NegatingServer(server_away)
    with Remote(server, concurrency=200) as remote:
        for number in range(200):
            remote.pool.submit(batch_of("e", number))
        wait_until(lambda: len(server.requests) >= 220, 10, "probes")
        assert remote.health.readiness() == (False, "not ready: refused")
        assert [at for at in range(200) if blocked(remote, at)] == [0], "the first event that waits"
        server.most_flying = 0
        tried = len(server.requests)
        wait_until(lambda: len(server.requests) >= tried + 20, 10, "more probes")
        assert server.most_flying == 1
        away = False
        remote.pool.settle()
        results = remote.results()
        assert remote.health.readiness() == (True, "ready")
    assert [one.number for one in results] == list(range(200))
    assert all(len(one.rows) == 1 and not one.rejected for one in results)
    assert not blocked(remote, 0)
    assert (remote.value(m.RETRIES, what="executor") or 0) >= 220
    began, over = (record for record in caplog.records if record.name == outage.__name__)
    assert began.message.startswith("refused; trying again in up to")
    assert over.message.startswith("executor: works again, after")
    assert (began.levelname, over.levelname) == ("WARNING", "INFO")


def test_lost_connection_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    failures = [ConnectionResetError("reset")]

    async def once(_inputs: Tensors) -> None:
        if failures:
            raise failures.pop()

    with Remote(NegatingServer(once)) as remote:
        remote.pool.submit(batch_of("e"))
        remote.pool.settle()
    assert caplog.records == []
    assert remote.value(m.RETRIES, what="executor") == 1


def test_batch_that_always_hangs_does_not_hold_up_the_requests_of_others() -> None:
    async def hanging(inputs: Tensors) -> None:
        if inputs["x"][0, 0] == 3:
            await asyncio.sleep(60)

    server = NegatingServer(hanging, timeout=0.001)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("millstream.inference.executors.blocking.GRACE", 0.02)
        with Remote(server, ordering="none") as remote:
            for number in range(20):
                remote.pool.submit(batch_of("e", number))
            wait_until(lambda: len(remote.results()) == 19, 10, "all others")
            wait_until(lambda: server.requests.count([3.0]) >= 4, 10, "it to be tried again")
            assert sorted(one.number for one in remote.results()) == [n for n in range(20) if n != 3]
            wait_until(lambda: not remote.health.readiness()[0], 10, "it to be reported")
            remote.pool.submit(batch_of("e", 30))
            wait_until(lambda: len(remote.results()) == 20, 10, "a later batch")
            assert blocked(remote, 3)


def test_server_that_is_busy_is_sent_fewer_requests_and_no_outage_is_reported() -> None:
    async def busy(_inputs: Tensors) -> None:
        if server.flying > 4:
            raise Throttled("too many")
        await asyncio.sleep(0.002)

    server = NegatingServer(busy)
    with Remote(server, concurrency=None, ahead=100) as remote:
        for number in range(200):
            remote.pool.submit(batch_of("e", number))
        remote.pool.settle()
        results = remote.results()
        assert remote.health.readiness() == (True, "ready")
    assert [one.number for one in results] == list(range(200))
    assert not any(one.rejected for one in results)


def test_refusals_of_a_busy_server_leave_a_line_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    left = 50

    async def busy(_inputs: Tensors) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise Throttled("HTTP 429: slow down")

    with Remote(NegatingServer(busy), ordering="none") as remote:
        for number in range(10):
            remote.pool.submit(batch_of("e", number))
        remote.pool.settle()
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("the server has too much to do: it refused 1 requests")
    assert line.endswith("HTTP 429: slow down")


def test_rejection_that_no_server_saw_does_not_end_an_outage() -> None:
    async def away(inputs: Tensors) -> None:
        await asyncio.sleep(0.001)
        raise NotSent("too long") if inputs["x"][0, 0] >= 50 else ConnectionError("refused")

    server = NegatingServer(away)
    with Remote(server, ordering="none") as remote:
        for number in range(50):
            remote.pool.submit(batch_of("e", number))
        wait_until(lambda: len(server.requests) >= 60, 10, "probes")
        server.most_flying = 0
        for number in range(50, 60):
            remote.pool.submit(batch_of("e", number))
        wait_until(lambda: len(remote.results()) == 10, 10, "the rejected ones")
        assert {why.reason for one in remote.results() for why in one.rejected.values()} == {"model_rejected"}
        assert server.most_flying == 1, "the others still wait"
        assert not remote.health.readiness()[0]


def test_request_that_a_short_deadline_overis_no_outage() -> None:
    async def slow(inputs: Tensors) -> None:
        if inputs["x"][0, 0] == 0:
            raise TimedOut("late")
        await asyncio.sleep(0)

    with Remote(NegatingServer(slow), ordering="none") as remote:
        remote.pool.submit(with_deadlines(time.time_ns() // 1_000_000 + 200))
        remote.pool.settle()
        (result,) = remote.results()
        assert remote.value(m.RETRIES, what="executor") is None
    assert {row: why.reason for row, why in result.rejected.items()} == {0: "expired"}


def test_retry_after_holds_all_requests_back() -> None:
    refused: list[float] = []

    async def busy(_inputs: Tensors) -> None:
        if not refused:
            refused.append(time.monotonic())
            raise Throttled("later", retry_after=0.3)
        sent.append(time.monotonic())

    sent: list[float] = []
    with Remote(NegatingServer(busy)) as remote:
        remote.pool.submit(batch_of("e", 0))
        wait_until(lambda: bool(refused), 10, "the refusal")
        for number in range(1, 5):
            remote.pool.submit(batch_of("e", number))
        remote.pool.settle()
    assert len(sent) == 5
    assert min(sent) - refused[0] >= 0.29


def test_error_that_no_retry_helps_ends_the_worker() -> None:
    async def wrong(_inputs: Tensors) -> None:
        raise ModelConfigError("another model")

    with Remote(NegatingServer(wrong)) as remote:
        remote.pool.submit(batch_of("e"))
        wait_until(lambda: bool(remote.errors), 10, "the error")
    assert isinstance(remote.errors[0], ModelConfigError)


def test_waiting_ends_when_the_worker_must_not_wait_any_longer() -> None:
    async def away(_inputs: Tensors) -> None:
        raise ExecutorUnavailable("away")

    with Remote(NegatingServer(away), concurrency=2) as remote:
        for number in range(2):
            remote.pool.submit(batch_of("e", number))
        remote.abandon.set()
        with pytest.raises(Abandoned, match="2 micro-batches in flight"):
            remote.pool.submit(batch_of("e", 2))
        with pytest.raises(Abandoned, match="2 micro-batches in flight"):
            remote.pool.settle()
        remote.pool.close()
        assert remote.health.readiness() == (True, "ready")
        assert remote.results() == []


def test_batch_that_is_revoked_during_an_outage_is_given_up() -> None:
    revoked = False

    async def away(_inputs: Tensors) -> None:
        raise ExecutorUnavailable("away")

    with Remote(NegatingServer(away), is_outdated=lambda _batch: revoked) as remote:
        remote.pool.submit(batch_of("ee"))
        wait_until(lambda: not remote.health.readiness()[0], 10, "the outage")
        revoked = True
        remote.pool.settle()
        (result,) = remote.results()
        assert remote.health.readiness()[0]
    assert (result.rows.tolist(), result.rejected) == ([], {})


def with_deadlines(*deadlines: int) -> MicroBatch:
    count = len(deadlines)
    made = replace(block("e" * count), deadlines=np.array(deadlines, np.int64))
    return MicroBatch((BatchSlice(made, 0, count, 0, count),), "size")


def test_deadline_bounds_the_request_and_late_events_are_left_out() -> None:
    now = time.time_ns() // 1_000_000
    server = NegatingServer()
    with Remote(server) as remote:
        remote.pool.submit(with_deadlines(now - 1, now + 5_000, now + 9_000))
        remote.pool.submit(with_deadlines(now + 5_000, NEVER))
        remote.pool.settle()
        first, second = remote.results()
    assert {row: why.reason for row, why in first.rejected.items()} == {0: "expired"}
    assert first.rows.tolist() == [1, 2]
    assert second.rows.tolist() == [0, 1]
    assert server.timeouts[0] <= 9.0
    assert server.timeouts[0] > 5.0
    assert server.timeouts[1] == 30.0


def test_events_whose_deadline_passes_during_an_outage_become_expired() -> None:
    async def away(_inputs: Tensors) -> None:
        raise ExecutorUnavailable("away")

    with Remote(NegatingServer(away)) as remote:
        remote.pool.submit(with_deadlines(time.time_ns() // 1_000_000 + 300))
        remote.pool.settle()
        (result,) = remote.results()
    assert {row: why.reason for row, why in result.rejected.items()} == {0: "expired"}


def test_quota_is_shared_by_the_partitions() -> None:
    quota = GroupQuota(60_000, None, 0.0)  # 1,000 a second
    owned: tuple[dict[tuple[str, int], int], float] = ({}, 0.0)
    looks = 0

    def share() -> tuple[dict[tuple[str, int], int], float]:
        nonlocal looks
        looks += 1
        return owned

    server = NegatingServer()
    with Remote(server, quota=quota, share=share, concurrency=200) as remote:
        for number in range(100):
            remote.pool.submit(batch_of("e", number))
        wait_until(lambda: looks >= 3, 10, "a request to wait for the quota")
        assert server.requests == [], "nothing is sent without a partition"
        began = time.monotonic()
        owned = {("in", 0): 1}, 0.5
        remote.pool.settle()
        assert time.monotonic() - began >= 99 / 500
    assert Counter(len(request) for request in server.requests) == {1: 100}


def test_batch_that_expires_during_an_outage_does_not_send_the_others() -> None:
    async def away(_inputs: Tensors) -> None:
        await asyncio.sleep(0.001)
        raise ExecutorUnavailable("away")

    server = NegatingServer(away)
    with Remote(server, ordering="none") as remote:
        for number in range(50):
            remote.pool.submit(batch_of("e", number))
        wait_until(lambda: len(server.requests) >= 60, 10, "probes")
        server.most_flying = 0
        now = time.time_ns() // 1_000_000
        for after in range(1, 11):
            remote.pool.submit(with_deadlines(now + after))
        wait_until(lambda: len(remote.results()) == 10, 10, "those with a deadline")
        tried = len(server.requests)
        wait_until(lambda: len(server.requests) >= tried + 20, 10, "more probes")
        assert server.most_flying == 1
        assert not remote.health.readiness()[0]


def test_revoked_batches_are_given_up_during_an_outage_without_a_pause_for_each() -> None:
    revoked = False

    async def away(_inputs: Tensors) -> None:
        raise ExecutorUnavailable("away")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(circuit_breaker, "back_off", lambda _tries: 0.2)
        with Remote(NegatingServer(away), is_outdated=lambda _batch: revoked) as remote:
            for number in range(100):
                remote.pool.submit(batch_of("e", number))
            wait_until(lambda: not remote.health.readiness()[0], 10, "the outage")
            revoked = True
            wait_until(lambda: len(remote.results()) == 100, 10, "all to be given up")


def test_events_that_expire_while_they_wait_take_nothing_from_the_quota() -> None:
    quota = GroupQuota(600, None, time.monotonic())  # 10 a second
    owned = {("in", 0): 1}, 1.0
    server = NegatingServer()
    with Remote(server, quota=quota, share=lambda: owned, concurrency=200) as remote:
        for _ in range(100):
            remote.pool.submit(with_deadlines(time.time_ns() // 1_000_000 + 50))
        remote.pool.submit(batch_of("e", 7))
        wait_until(lambda: [7.0] in server.requests, 5, "the event without a deadline")
        remote.pool.settle()


def test_revoked_batch_does_not_wait_for_a_quota_that_this_worker_has_no_share_of() -> None:
    revoked = False
    server = NegatingServer()
    nothing_owned: tuple[dict[tuple[str, int], int], float] = ({}, 0.0)
    with Remote(
        server,
        is_outdated=lambda _batch: revoked,
        quota=GroupQuota(600, None, 0.0),
        share=lambda: nothing_owned,
    ) as remote:
        remote.pool.submit(batch_of("e"))
        revoked = True
        wait_until(lambda: len(remote.results()) == 1, 5, "it to be given up")
    assert server.requests == []


def test_request_that_is_cancelled_by_the_executor_itself_is_sent_again() -> None:
    cancelled = [1]

    async def once(_inputs: Tensors) -> None:
        if cancelled:
            cancelled.pop()
            raise asyncio.CancelledError

    with Remote(NegatingServer(once)) as remote:
        remote.pool.submit(batch_of("e"))
        wait_until(lambda: len(remote.results()) == 1, 5, "its result")
    assert remote.errors == []


def test_switch_of_an_asynchronous_executor_is_between_two_batches_and_shares_the_limit_of_requests() -> None:
    held = Held()
    first = NegatingServer(held)
    second = Doubling()
    with Remote(first, concurrency=3, runner_of=lambda model, before: next_runner(remote, model, before)) as remote:
        remote.pool.submit(batch_of("e", 10))
        held.wait_for(1)
        new = OpenedModel(ModelId("m", 2), [BlockingExecutor(second, beside=remote.blocking)])
        new.executors[0].warm_up()
        remote.pool.switch_to(new)
        remote.pool.submit(batch_of("e", 20))
        wait_until(lambda: len(second.requests) == 1, 10, "the new version to get the next batch")
        assert remote.pool.is_in_use(remote.runner.model)
        assert remote.results() == []
        held.release(remote, 10)
        remote.pool.settle()
        results = remote.results()
        wait_until(lambda: not remote.pool.is_in_use(remote.runner.model), 10, "the old version to be free")
        remote.runner.model.close()  # the event loop stays
        remote.pool.submit(batch_of("e", 30))
        remote.pool.settle()
        results = remote.results()
    new.close()
    assert [(one.models[0].version, one.outputs["y"].item()) for one in results] == [(1, -10), (2, 40), (2, 60)]
    assert remote.errors == []


class Doubling(NegatingServer):
    """Another version: `y` = 2 x `x`."""

    async def run(self, inputs: Tensors, timeout: float) -> dict[str, npt.NDArray[Any]]:
        await super().run(inputs, timeout)
        return {"y": 2 * inputs["x"]}


def next_runner(remote: Remote, model: OpenedModel, before: AsyncRunner) -> AsyncRunner:
    return remote.runner_for(model, before.places, before.quota)


def test_batches_that_waited_leave_out_the_events_that_must_not_start() -> None:
    """One request at a time; while the first is in flight, the others' partition is about to go."""
    go = threading.Event()

    async def wait(_inputs: Tensors) -> None:
        while not go.is_set():
            await asyncio.sleep(0.001)

    assignment = Assignment()
    assignment.add([("in", 0)])
    server = NegatingServer(wait)
    with Remote(server, concurrency=1, ahead=10, admit=assignment.admit) as remote:
        for number in range(3):
            remote.pool.submit(batch_of("e", number))
        wait_until(lambda: bool(server.requests), 10, "the first request")
        left = assignment.leave([("in", 0)])
        go.set()
        remote.pool.settle()
        results = remote.results()
    assert server.requests == [[0.0]]
    assert [len(result.rows) for result in results] == [1, 0, 0]
    assignment.note_final(1)
    assert left.is_set()
