"""Several runners run their batches at the same time, and results leave in the pipeline's order."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumers.errors import Abandoned
from millstream.consumers.events import BatchResult, BatchSlice, MicroBatch, ResultQueue
from millstream.consumers.execute.executor_pool import ExecutorPool
from millstream.consumers.execute.reorder_buffer import Ordering
from millstream.consumers.execute.result_buffer import ResultBuffer
from millstream.consumers.execute.runner import Runner
from millstream.consumers.execute.served import SlotModel
from millstream.consumers.record_types import Partition
from tests.consumers.execute.serving import NO_MODEL, in_slots
from tests.consumers.in_memory import answered, block

LONG = 10.0  # seconds; nothing takes that long where all is well


class Gates:
    """One for each batch: it is in the model until its gate is opened."""

    def __init__(self, batches: int) -> None:
        self._gates = [threading.Event() for _ in range(batches)]
        self._changed = threading.Condition()
        self._entered: set[int] = set()

    def pass_through(self, number: int) -> None:
        with self._changed:
            self._entered.add(number)
            self._changed.notify_all()
        assert self._gates[number].wait(LONG)

    def open(self, number: int) -> None:
        self._gates[number].set()

    def all_entered(self, numbers: set[int]) -> bool:
        """Whether these batches come to be in the model, none of which is let out meanwhile."""
        with self._changed:
            return self._changed.wait_for(lambda: numbers <= self._entered, LONG)


class GatedRunner:
    """Answers a batch once its gate is open."""

    max_events = 16

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self.ran: list[int] = []

    def answer(self, number: int, batch: MicroBatch, served: SlotModel) -> BatchResult:  # noqa: ARG002
        self.ran.append(number)
        self._gates.pass_through(number)
        return answered("e")._replace(number=number, batch=batch)


@contextmanager
def pool_of(
    runners: Sequence[GatedRunner],
    answers: ResultQueue,
    ordering: Ordering = "partition",
    abandon: threading.Event | None = None,
) -> Iterator[ExecutorPool]:
    failures: list[BaseException] = []
    abandon = abandon or threading.Event()

    def fail(error: BaseException) -> None:
        failures.append(error)
        abandon.set()  # what waits for the runner would wait forever

    pool = ExecutorPool(
        [cast("Runner", one) for one in runners],
        in_slots(len(runners)),
        NO_MODEL,
        ResultBuffer(answers),
        ordering=ordering,
        abandon=abandon,
        fail=fail,
    )
    try:
        yield pool
    finally:
        pool.close()
    assert failures == []


def keyed_batch(number: int, key: bytes = b"k", places: Sequence[int] = (0,)) -> MicroBatch:
    """Its records follow those of the batch before it, and are of these partitions."""
    size = len(places)
    whole = replace(block("e" * size, number * size, places=places), keys=[key] * size)
    return MicroBatch((BatchSlice(whole, 0, size, 0, size),), "size")


def given_now(answers: ResultQueue) -> list[BatchResult]:
    messages = [answers.get() for _ in range(answers.qsize())]
    return [one for message in messages if isinstance(message, Sequence) for one in message]


@pytest.mark.parametrize("count", [2, 4])
def test_each_lane_has_a_batch_in_the_model_at_the_same_time(count: int) -> None:
    gates, answers = Gates(count), cast("ResultQueue", SimpleQueue())
    runners = [GatedRunner(gates) for _ in range(count)]
    with pool_of(runners, answers) as pool:
        for number in range(count):
            pool.submit(keyed_batch(number))
        assert gates.all_entered(set(range(count)))
        for number in range(count):
            gates.open(number)
        pool.settle()
    assert sorted(len(runner.ran) for runner in runners) == [1] * count
    assert [one.number for one in given_now(answers)] == list(range(count))


def test_batch_waits_for_a_lane_and_takes_the_one_that_comes_free() -> None:
    gates, answers = Gates(3), cast("ResultQueue", SimpleQueue())
    runners = [GatedRunner(gates) for _ in range(2)]
    with pool_of(runners, answers) as pool:
        for number in range(2):
            pool.submit(keyed_batch(number))
        assert gates.all_entered({0, 1})
        gates.open(1)
        pool.submit(keyed_batch(2))
        assert gates.all_entered({2})
        gates.open(0)
        gates.open(2)
        pool.settle()
    assert sorted(runner.ran for runner in runners) == [[0], [1, 2]]


def test_batch_that_no_lane_comes_free_for_is_given_up_when_told() -> None:
    gates, answers, abandon = Gates(3), cast("ResultQueue", SimpleQueue()), threading.Event()
    with pool_of([GatedRunner(gates) for _ in range(2)], answers, abandon=abandon) as pool:
        for number in range(2):
            pool.submit(keyed_batch(number))
        abandon.set()
        with pytest.raises(Abandoned, match="2 micro-batches in flight"):
            pool.submit(keyed_batch(2))
        for number in range(3):
            gates.open(number)


@pytest.mark.parametrize(
    ("ordering", "released"),
    [
        ("partition", {2: [], 1: [], 0: [0, 1, 2]}),
        ("key", {2: [], 1: [1], 0: [0, 2]}),
        ("none", {2: [2], 1: [1], 0: [0]}),
    ],
)
def test_results_leave_once_none_is_before_them(ordering: Ordering, released: dict[int, list[int]]) -> None:
    """The last batch of three is answered first; the first and the last share a key."""
    gates, answers = Gates(5), cast("ResultQueue", SimpleQueue())
    with pool_of([GatedRunner(gates) for _ in range(3)], answers, ordering) as pool:
        keys = iter([b"a", b"b", b"a", b"c", b"d"])
        for number in range(3):
            pool.submit(keyed_batch(number, next(keys)))
        for answered_now, following in ((2, 3), (1, 4), (0, None)):
            gates.open(answered_now)
            pool.wait_for_one()
            assert [one.number for one in given_now(answers)] == released[answered_now]
            if following is not None:
                pool.submit(keyed_batch(following, next(keys)))
        for number in (3, 4):
            gates.open(number)
        pool.settle()


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(4)), st.lists(st.integers(0, 2), min_size=2, max_size=5))
def test_results_of_a_partition_leave_by_offset(opened: list[int], places: list[int]) -> None:
    gates, answers = Gates(8), cast("ResultQueue", SimpleQueue())
    with pool_of([GatedRunner(gates) for _ in range(4)], answers) as pool:
        for number in range(4):
            pool.submit(keyed_batch(number, places=places))
        for following, number in enumerate(opened, start=4):
            gates.open(number)
            pool.submit(keyed_batch(following, places=places))  # once that one is answered
        for number in range(4, 8):
            gates.open(number)
        pool.settle()
    found: dict[Partition, list[int]] = {}
    for one in given_now(answers):
        for part in one.batch.parts:
            for row in range(part.start, part.stop):
                found.setdefault(part.block.partition(row), []).append(int(part.block.offsets[row]))
    assert found == {
        ("in", place): [offset for offset in range(8 * len(places)) if places[offset % len(places)] == place]
        for place in places
    }
