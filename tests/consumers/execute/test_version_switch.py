"""Which version answers which batch: the switch itself, and pools of each kind that switch while batches are in flight."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.execute.executor_pool import ExecutorPool
from millstream.consumers.execute.result_buffer import ResultBuffer
from millstream.consumers.execute.version_switch import VersionSwitch
from millstream.consumers.observability.metrics import Metrics
from millstream.inference.errors import ExecutorUnavailable, ModelRejected
from millstream.inference.model_id import ModelId
from tests.broker.clients import wait_until
from tests.consumers.execute.serving import in_slots, plain_runner, running_model
from tests.consumers.in_memory import batch_of

if TYPE_CHECKING:
    from millstream.consumers.events import BatchResult, ResultQueue
    from millstream.inference.executors.interface import Inputs
    from millstream.inference.executors.opened import OpenedModel

BAD = 500  # the number of the event that models reject


@given(st.lists(st.sampled_from(["submit", "end", "switch"]), max_size=60), st.randoms())
def test_each_batch_keeps_its_version_and_a_version_is_in_use_as_long_as_it_has_batches(
    steps: list[str], random: Any
) -> None:
    """Against a model of it: batches end in any order."""
    switch, version = VersionSwitch(0), 0
    flying: list[int] = []
    for step in steps:
        if step == "submit":
            flying.append(switch.take())
            assert flying[-1] == version, "the version is the one at the submission"
        elif step == "end" and flying:
            switch.release(flying.pop(random.randrange(len(flying))))
        elif step == "switch":  # forwards and backwards
            version = random.randrange(3)
            switch.switch_to(version)
        assert switch.current == version
        assert sorted(switch.in_use()) == sorted({version, *flying})


def test_threads_that_take_and_release_leave_nothing_behind() -> None:
    switch = VersionSwitch(0)

    def work() -> None:
        for _ in range(2000):
            switch.release(switch.take())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for version in range(500):
        switch.switch_to(version)
    for thread in threads:
        thread.join()
    assert switch.in_use() == [499]


class Gate:
    """A model whose batches wait until it is open. Its outputs say which version it is."""

    def __init__(self, version: int, *, is_open: bool = True) -> None:
        self.entered = threading.Semaphore(0)
        self.may = threading.Event()
        if is_open:
            self.may.set()
        self.away = 0  # calls that fail because it is away
        self.version = version
        self.model: OpenedModel = running_model(self._run, ModelId("m", version))

    def _run(self, inputs: Inputs) -> dict[str, Any]:
        self.entered.release()
        assert self.may.wait(10)
        if self.away:
            self.away -= 1
            raise ExecutorUnavailable("away")
        if BAD in inputs["x"]:
            raise ModelRejected("a bad one")
        return {"y": inputs["x"] * 0 + self.version}


class Pool:
    """A pool of threads, or one that runs batches in the caller's."""

    def __init__(self, first: Gate, slots: int) -> None:
        self.answers: ResultQueue = SimpleQueue()
        self.failures: list[BaseException] = []
        metrics, abandon = Metrics("p"), threading.Event()
        runners = [plain_runner(16, abandon, metrics) for _ in range(slots)]
        self.pool = ExecutorPool(
            runners,
            in_slots(slots),
            first.model,
            ResultBuffer(self.answers),
            ordering="partition",
            abandon=abandon,
            fail=self.failures.append,
        )

    def results(self) -> list[BatchResult]:
        """What was passed on, in order."""
        self.pool.flush()
        given = [self.answers.get_nowait() for _ in range(self.answers.qsize())]
        assert self.failures == []
        return [one for group in given if isinstance(group, list) for one in group]


def named(results: list[BatchResult]) -> list[tuple[int, int]]:
    """The version that each result names, and the one that its outputs show."""
    return [(one.models[0].version, int(one.outputs["y"][0, 0])) for one in results]


@pytest.mark.parametrize("slots", [1, 3])
def test_batches_submitted_after_the_switch_are_answered_by_the_new_version_and_those_before_it_by_the_old_one(
    slots: int,
) -> None:
    first, second = Gate(1), Gate(2)
    own = Pool(first, slots)
    for number in range(20):
        if number in {5, 10, 15}:
            own.pool.switch_to([second, first, second][number // 5 - 1].model)
        own.pool.submit(batch_of("e", number))
    own.pool.settle()
    assert named(own.results()) == [(1, 1)] * 5 + [(2, 2)] * 5 + [(1, 1)] * 5 + [(2, 2)] * 5
    assert own.pool.is_in_use(second.model)
    assert not own.pool.is_in_use(first.model)
    own.pool.close()


def test_switch_waits_for_no_batch_and_the_old_version_is_in_use_until_its_last_one_has_left() -> None:
    first, second = Gate(1, is_open=False), Gate(2)
    own = Pool(first, slots=3)
    for number in range(2):
        own.pool.submit(batch_of("e", number))
        assert first.entered.acquire(timeout=10)
    own.pool.switch_to(second.model)
    own.pool.submit(batch_of("e", 2))
    assert second.entered.acquire(timeout=10), "the new version runs beside the old one"
    assert own.pool.is_in_use(first.model)
    assert named(own.results()) == [], "no result overtakes an earlier one"
    first.may.set()
    own.pool.settle()
    assert named(own.results()) == [(1, 1), (1, 1), (2, 2)]
    assert not own.pool.is_in_use(first.model)
    own.pool.close()


@pytest.mark.parametrize("slots", [1, 2])
def test_batch_that_waits_out_an_outage_or_runs_in_parts_keeps_its_version(
    slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.consumers.resilience.retry.BACK_OFF", (0.001, 0.01))
    first, second = Gate(1, is_open=False), Gate(2)
    first.away = 2
    own = Pool(first, slots)
    submitting = threading.Thread(target=lambda: own.pool.submit(batch_of("eeee", BAD - 2)))
    submitting.start()
    assert first.entered.acquire(timeout=10)
    own.pool.switch_to(second.model)
    first.may.set()
    submitting.join()
    own.pool.submit(batch_of("e", BAD + 2))
    own.pool.settle()
    results = own.results()
    assert [(one.rows.tolist(), sorted(one.rejected)) for one in results] == [([0, 1, 3], [2]), ([0], [])]
    assert named(results) == [(1, 1), (2, 2)]
    wait_until(lambda: not own.pool.is_in_use(first.model), 10, "the old version to be free")
    own.pool.close()
