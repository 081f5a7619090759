"""A single runner hands over the results of a quick model together, or has batches waiting for it."""

import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import cast

import pytest

from millstream.consumers.errors import Abandoned
from millstream.consumers.events import BatchResult, MicroBatch, ResultQueue
from millstream.consumers.execute.executor_pool import ExecutorPool
from millstream.consumers.execute.result_buffer import MAX_DELAY, ResultBuffer
from millstream.consumers.execute.runner import Runner
from millstream.consumers.execute.served import SlotModel
from tests.consumers.execute.serving import NO_MODEL, in_slots
from tests.consumers.in_memory import answered, batch_of, ended, running


class TimedRunner:
    """Answers at once, and says how long the model took; the pool's clock goes on by that."""

    max_events = 16

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: Sequence[float]) -> None:
        self._seconds = list(seconds)
        self._now = 100.0
        monkeypatch.setattr("millstream.consumers.execute.result_buffer.time.monotonic", lambda: self._now)

    def answer(self, number: int, batch: MicroBatch, served: SlotModel) -> BatchResult:  # noqa: ARG002
        took = self._seconds.pop(0)
        self._now += took
        return answered("e")._replace(number=number, batch=batch, seconds=took)


def handed_over(monkeypatch: pytest.MonkeyPatch, seconds: Sequence[float]) -> list[list[int]]:
    """The numbers of what came together, where each batch was so long in the model."""
    answers: ResultQueue = SimpleQueue()
    runner = cast("Runner", TimedRunner(monkeypatch, seconds))
    pool = ExecutorPool(
        [runner],
        in_slots(),
        NO_MODEL,
        ResultBuffer(answers),
        ordering="partition",
        abandon=threading.Event(),
        fail=print,
    )
    for _ in seconds:
        pool.submit(batch_of("e"))
    pool.flush()
    pool.flush()  # with nothing left
    given = [answers.get() for _ in range(answers.qsize())]
    return [[one.number for one in group] for group in given if isinstance(group, list)]


@pytest.mark.parametrize(
    ("seconds", "groups"),
    [
        ([0.0], [[0]]),
        ([0.6 * MAX_DELAY] * 4, [[0, 1, 2], [3]]),
        ([0.2 * MAX_DELAY, MAX_DELAY, 0.2 * MAX_DELAY], [[0, 1], [2]]),
        ([2 * MAX_DELAY, 2 * MAX_DELAY, 0.2 * MAX_DELAY], [[0], [1], [2]]),
    ],
)
def test_results_are_kept_for_about_as_long_as_a_quick_model_takes_for_a_few(
    monkeypatch: pytest.MonkeyPatch, seconds: Sequence[float], groups: list[list[int]]
) -> None:
    assert handed_over(monkeypatch, seconds) == groups


def test_what_was_answered_is_handed_over_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: ResultQueue = SimpleQueue()
    runner = cast("Runner", TimedRunner(monkeypatch, [0.0]))
    pool = ExecutorPool(
        [runner],
        in_slots(),
        NO_MODEL,
        ResultBuffer(answers),
        ordering="partition",
        abandon=threading.Event(),
        fail=print,
    )
    pool.submit(batch_of("e"))
    assert answers.empty()
    pool.close()
    assert answers.qsize() == 1


class HeldRunner:
    """Answers once it may, in a thread that it notes."""

    max_events = 16

    def __init__(self) -> None:
        self.may = threading.Semaphore(0)
        self.threads: set[threading.Thread] = set()

    def answer(self, number: int, batch: MicroBatch, served: SlotModel) -> BatchResult:  # noqa: ARG002
        self.threads.add(threading.current_thread())
        assert self.may.acquire(timeout=10)
        return answered("e")._replace(number=number, batch=batch)


def test_batches_wait_for_a_busy_lane_up_to_so_many_and_leave_in_order() -> None:
    answers: ResultQueue = SimpleQueue()
    runner = HeldRunner()
    pool = ExecutorPool(
        [cast("Runner", runner)],
        in_slots(),
        NO_MODEL,
        ResultBuffer(answers),
        ahead=2,
        ordering="partition",
        abandon=threading.Event(),
        fail=print,
    )
    for _ in range(3):  # one runs, two wait
        pool.submit(batch_of("e"))
    assert answers.empty()
    fourth = running(lambda: pool.submit(batch_of("e")))
    runner.may.release()
    assert ended(fourth)  # there is room now
    runner.may.release(3)
    pool.settle()
    given = [answers.get_nowait() for _ in range(4)]
    assert [one.number for group in given if isinstance(group, list) for one in group] == [0, 1, 2, 3]
    assert threading.current_thread() not in runner.threads
    assert len(runner.threads) == 1
    pool.close()


def test_dispatch_waits_where_as_many_wait_as_may() -> None:
    answers: ResultQueue = SimpleQueue()
    runner, abandon = HeldRunner(), threading.Event()
    pool = ExecutorPool(
        [cast("Runner", runner)],
        in_slots(),
        NO_MODEL,
        ResultBuffer(answers),
        ahead=1,
        ordering="partition",
        abandon=abandon,
        fail=print,
    )
    for _ in range(2):
        pool.submit(batch_of("e"))
    abandon.set()
    with pytest.raises(Abandoned, match="2 micro-batches in flight"):
        pool.submit(batch_of("e"))
    runner.may.release(2)
    pool.close()
