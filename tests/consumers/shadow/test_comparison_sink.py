"""The sink of dedicated shadows: comparisons that the topic takes, and none that would stop the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from millstream.consumers.events import BatchResult, BatchSlice, MicroBatch
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.observability.metrics import COMPARISONS, SHADOW_FAILED, Metrics
from millstream.consumers.shadow.comparison_sink import ComparisonSink
from millstream.consumers.shadow.shadow_thread import Compared
from tests.consumers.in_memory import EPOCHS, MODELS, GivenAssignment, block
from tests.consumers.measured import measured
from tests.consumers.sink.test_sink import OUTPUTS

if TYPE_CHECKING:
    import numpy.typing as npt

    from millstream.consumers.shadow.shadow_thread import Shadow
    from millstream.consumers.sink.delivery import Delivery

LIMIT = 2000


class Comparing:
    """A shadow whose comparisons are given; it compares every event."""

    name = "v2"

    def __init__(self, comparisons: list[tuple[str, bytes]]) -> None:
        self._comparisons = comparisons
        self.among: list[int] = []  # rows that it was asked for last

    def compare(self, _answered: BatchResult, among: npt.NDArray[np.int64]) -> Compared:
        self.among = among.tolist()
        return Compared(self._comparisons, 3)


class Kept:
    """Keeps what it is handed; the topic refuses what is larger than its limit."""

    publishes_at_checkpoint = False

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes, bytes]] = []

    def produce(self, topic: str, value: bytes, key: bytes, _headers: object) -> None:
        assert len(value) + len(key) <= LIMIT, "the broker would refuse it"
        self.records.append((topic, value, key))


def test_comparison_that_its_topic_refuses_is_left_out_and_counted() -> None:
    delivery, metrics, left_out = Kept(), Metrics("p"), []
    compared = [("a", b"x"), ("b" * LIMIT, b"x"), ("c", b"x" * LIMIT), ("d", b"x" * 1000)]
    sink = ComparisonSink(
        cast("Delivery", delivery),
        OUTPUTS,
        [cast("Shadow", Comparing(compared))],
        topic="compared",
        max_bytes=LIMIT,
        leave_out=lambda: left_out.append(1),
        assignment=GivenAssignment(EPOCHS),
        metrics=metrics,
    )
    batch = MicroBatch((BatchSlice(block("eeee"), 0, 4, 0, 4),), "size")
    answered = BatchResult(0, batch, {"y": np.zeros(4)}, np.arange(4), {}, np.zeros(4, np.int64), MODELS)
    assert sink.write([answered]) == {("in", 0): (1, 4)}
    assert [key for _, _, key in delivery.records] == [b"a", b"d"]
    assert len(left_out) == 2
    assert measured(metrics, COMPARISONS, shadow="v2") == 4  # made, with the two that were left out
    assert measured(metrics, SHADOW_FAILED, shadow="v2") == 3


def test_events_that_were_left_out_because_their_partition_goes_are_neither_compared_nor_committed() -> None:
    assignment, shadow = Assignment(), Comparing([])
    assignment.add([("in", 0), ("in", 1)])
    sink = ComparisonSink(
        cast("Delivery", Kept()),
        OUTPUTS,
        [cast("Shadow", shadow)],
        topic="compared",
        max_bytes=LIMIT,
        leave_out=lambda: None,
        assignment=assignment,
        metrics=Metrics("p"),
    )
    batch = MicroBatch((BatchSlice(block("eee", places=[0, 1, 0]), 0, 3, 0, 3),), "size")
    assignment.leave([("in", 0)])
    cut = assignment.admit(0, batch)
    rows = np.delete(np.arange(3), cut.left_out())
    assert sink.write([BatchResult(0, cut, {"y": np.zeros(1)}, rows, {}, np.zeros(1, np.int64), MODELS)]) == {
        ("in", 1): (1, 2)
    }
    assert shadow.among == [1]
