"""The data path without Kafka runs on any machine, answers every event, and ends when one of its stages does."""

from collections.abc import Iterator
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from benchmarks.errors import PeerFailedError
from benchmarks.gpu.path import DataPath, polls_for, polls_of
from benchmarks.load import VECTOR, vector_events, write_vector_model
from millstream.consumers.execute.bisecting import Run
from millstream.consumers.worker.compute import DECODE_RECORDS
from millstream.inference.errors import ExecutorUnavailable, ModelRejected
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.interface import Tensors, rows_of
from millstream.inference.repository import load_version
from millstream.schemas.packed import Packed
from tests.consumers.in_memory import ended, running

BATCH = 7
VALUES = Packed.of(vector_events(2 * DECODE_RECORDS + 1, 1).values)
HOURS = 1e4  # seconds


def data_path(folder: Path, run: Run | None = None, in_flight: int = 1) -> DataPath:
    """Around `run`; around a model where there is none."""
    write_vector_model(folder, 1)
    model = load_version(folder / "models", VECTOR.name, 1)
    run = run or open_executor(model, trust=True, device="cpu", max_events=BATCH).run
    return DataPath(
        folder / "schemas", "vector-event", model.signature, run, device="cpu", max_events=BATCH, in_flight=in_flight
    )


def zeros(inputs: Tensors) -> dict[str, Any]:
    return {"score": np.zeros((rows_of(inputs), 1), np.float32)}


def raised_by(path: DataPath, polls: Iterator[Packed]) -> BaseException | None:
    """What the run raises, in good time."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            path.run(polls)
        except BaseException as error:
            raised.append(error)

    assert ended(running(run)), "the run hangs"
    return raised[0] if raised else None


@pytest.mark.parametrize("in_flight", [1, 2])
def test_every_event_is_answered(tmp_path: Path, in_flight: int) -> None:
    found = data_path(tmp_path, in_flight=in_flight).run(polls_of(VALUES))
    assert found.events == len(VALUES)
    assert found.rate == found.events / found.seconds


def test_recorded_events_are_read_over_and_over(tmp_path: Path) -> None:
    polls = polls_for(VALUES, HOURS)
    found = data_path(tmp_path, zeros).run(next(polls) for _ in range(7))
    assert found.events == 2 * len(VALUES) + DECODE_RECORDS


def test_batches_in_flight_run_at_a_time(tmp_path: Path) -> None:
    both = Barrier(2)

    def run(inputs: Tensors) -> dict[str, Any]:
        both.wait(10)  # raises where the second never comes
        return zeros(inputs)

    assert data_path(tmp_path, run, 2).run(polls_of(VALUES[: 2 * BATCH])).events == 2 * BATCH


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("error", [ValueError("a fault of ours"), ExecutorUnavailable("the GPU is gone")])
def test_an_executor_that_fails_ends_the_run(tmp_path: Path, error: Exception, in_flight: int) -> None:
    calls = iter(range(5))

    def run(inputs: Tensors) -> dict[str, Any]:
        if next(calls, None) is None:
            raise error
        return zeros(inputs)

    assert raised_by(data_path(tmp_path, run, in_flight), polls_for(VALUES, HOURS)) is error


def test_a_reader_that_fails_ends_the_run(tmp_path: Path) -> None:
    def polls() -> Iterator[Packed]:
        yield VALUES
        raise ValueError("a fault of ours")

    assert isinstance(raised_by(data_path(tmp_path, zeros), polls()), ValueError)


@pytest.mark.parametrize("in_flight", [1, 2])
def test_outputs_that_are_no_predictions_end_the_run(tmp_path: Path, in_flight: int) -> None:
    def run(inputs: Tensors) -> dict[str, Any]:
        return {"score": np.zeros((rows_of(inputs), 1), np.complex64)}

    assert raised_by(data_path(tmp_path, run, in_flight), polls_for(VALUES, HOURS)) is not None


def test_an_event_that_the_model_refuses_counts_for_nothing(tmp_path: Path) -> None:
    def run(_: Tensors) -> dict[str, Any]:
        raise ModelRejected("not these")

    assert isinstance(raised_by(data_path(tmp_path, run), polls_for(VALUES, HOURS)), PeerFailedError)


def test_a_record_that_is_no_event_counts_for_nothing(tmp_path: Path) -> None:
    broken = Packed.of([VALUES[0], VALUES[1][:-1]])
    assert isinstance(raised_by(data_path(tmp_path, zeros), polls_of(broken)), PeerFailedError)
