"""Full batches of a fast model that run as one: as if they ran one by one, also if their outputs don't go together."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.consumers.execute import runner
from millstream.consumers.execute.executor_pool import ExecutorPool
from millstream.consumers.execute.result_buffer import ResultBuffer
from millstream.consumers.observability.metrics import Metrics
from millstream.inference.errors import ModelConfigError, ModelRejected, OutOfMemory
from tests.consumers.clock import Clock
from tests.consumers.execute.serving import Run, in_slots, plain_runner, running_model
from tests.consumers.in_memory import batch_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.consumers.events import BatchResult, ResultQueue
    from millstream.inference.executors.interface import Inputs

MOST = 8


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch, runner).step = 0.0001


class Pool:
    """A pool of one model, and what it passes on."""

    def __init__(self, run: Run) -> None:
        self.answers: ResultQueue = SimpleQueue()
        self.sizes: list[int] = []
        self._run = run
        self._failures: list[BaseException] = []
        abandon, metrics = threading.Event(), Metrics("p")
        self.pool = ExecutorPool(
            [plain_runner(MOST, abandon, metrics)],
            in_slots(max_events=MOST),
            running_model(self._noted),
            ResultBuffer(self.answers),
            ordering="partition",
            abandon=abandon,
            fail=self._failures.append,
        )

    def _noted(self, inputs: Inputs) -> dict[str, Any]:
        self.sizes.append(len(inputs["x"]))
        return self._run(inputs)

    def results(self) -> list[BatchResult]:
        """What was passed on, in order."""
        self.pool.flush()
        assert self._failures == []
        return [one for group in self._given() for one in group]

    def _given(self) -> Iterator[list[BatchResult]]:
        for _ in range(self.answers.qsize()):
            given = self.answers.get_nowait()
            assert isinstance(given, list)
            yield given


def test_model_runs_no_more_events_at_a_time_than_one_batch_may_have() -> None:
    scene = Pool(lambda inputs: {"y": -np.asarray(inputs["x"])})
    scene.pool.submit(batch_of("e" * 8))
    scene.pool.submit(batch_of("e" * 20, 8))
    assert scene.sizes == [8, 8, 8, 4]
    first, second = scene.results()
    assert first.outputs["y"].ravel().tolist() == [-row for row in range(8)]
    assert second.outputs["y"].ravel().tolist() == [-row for row in range(8, 28)]


def test_event_that_the_model_rejects_is_the_only_one_without_a_result() -> None:
    def run(inputs: Inputs) -> dict[str, Any]:
        if 11 in inputs["x"]:
            raise ModelRejected("no 11 please")
        return {"y": -np.asarray(inputs["x"])}

    scene = Pool(run)
    scene.pool.submit(batch_of("e" * 20))
    (one,) = scene.results()
    assert one.rejected.keys() == {11}
    assert one.rows.tolist() == [row for row in range(20) if row != 11]
    assert one.outputs["y"].ravel().tolist() == [-row for row in range(20) if row != 11]


def of_other_shape(x: Any) -> Any:
    return np.zeros((len(x), 1 + int(x[0, 0]) // MOST), np.float32)


def of_other_type(x: Any) -> Any:
    return x.astype(np.int64 if x[0, 0] < MOST else np.float64)


@pytest.mark.parametrize("output", [of_other_shape, of_other_type])
def test_batches_with_outputs_of_other_shapes_or_types_keep_results_of_their_own(output: Any) -> None:
    scene = Pool(lambda inputs: {"y": output(np.asarray(inputs["x"]))})
    scene.pool.submit(batch_of("eeee"))
    assert scene.pool.together > 1
    scene.pool.submit(batch_of("e" * 20))
    assert scene.pool.together == 1, "its batches run one by one from now on"
    scene.pool.submit(batch_of("eeee"))
    results = scene.results()
    assert [one.number for one in results] == [0, 1, 2, 3, 4], (
        "offsets behind a missing number would never be committed"
    )
    found = results[1:-1]
    assert [one.batch.events for one in found] == [8, 8, 4]
    for one, start in zip(found, (0, 8, 16), strict=True):
        expected = output(np.arange(start, start + one.batch.events, dtype=np.float32)[:, None])
        assert one.rows.tolist() == list(range(one.batch.events))
        assert one.outputs["y"].dtype == expected.dtype
        assert one.outputs["y"].tolist() == expected.tolist()


def test_outputs_that_depend_on_the_other_events_of_one_batch_end_the_worker() -> None:
    def run(inputs: Inputs) -> dict[str, Any]:
        if len(inputs["x"]) > MOST // 2:
            raise OutOfMemory("full")
        return {"y": of_other_shape(2 * np.asarray(inputs["x"]))}

    with pytest.raises(ModelConfigError, match="outputs of another shape when a micro-batch runs in parts"):
        Pool(run).pool.submit(batch_of("e" * MOST))
