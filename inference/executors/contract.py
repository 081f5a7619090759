"""What every executor must do, as checks that the tests of any package can call.

Each check raises AssertionError, which says what was expected and found. They take an executor for a model that answers each
event by itself, whatever other events are in its batch.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ModelRejected
from millstream.inference.executors.blocking import BlockingExecutor, TimedExecutor
from millstream.inference.executors.interface import AsyncExecutor, ModelExecutor, Tensors, rows_between, rows_of

Outputs = Mapping[str, npt.NDArray[Any]]
AT_ONCE = 50  # requests of an asynchronous executor


def check_executor(executor: ModelExecutor, inputs: Tensors, outputs: Outputs, bad: Tensors | None = None) -> None:
    """Call all checks.

    Args:
        executor: warmed up; an asynchronous one in a `BlockingExecutor`. It is still open afterwards.
        inputs: at least three different events that the model accepts.
        outputs: what it answers to them.
        bad: one event that the model rejects; None: it rejects none.
    """
    check_declarations(executor)
    check_batches(executor, inputs, outputs)
    check_inputs_are_left_alone(executor, inputs)
    check_results_are_the_callers(executor, inputs, outputs)
    if bad is not None:
        check_rejection(executor, inputs, outputs, bad)
    if isinstance(executor, BlockingExecutor):
        check_many_at_once(executor, inputs, outputs)


def check_declarations(executor: ModelExecutor | AsyncExecutor) -> None:
    """The executor says where it runs, and how many events it takes."""
    assert executor.device, f"expected the name of a device, found {executor.device!r}"
    assert executor.max_events >= 1, f"expected max_events of at least 1, found {executor.max_events}"
    sizes = list(executor.batch_sizes)
    assert sizes == sorted(set(sizes)), f"expected ascending batch_sizes, found {sizes}"


def check_batches(executor: ModelExecutor, inputs: Tensors, outputs: Outputs) -> None:
    """Each number of events up to the largest runs, and gives one row per event in the same order."""
    rows = np.arange(executor.max_events) % rows_of(inputs)
    for events in sorted({1, 2, 3, executor.max_events // 2 or 1, executor.max_events}):
        if events <= executor.max_events:
            chosen = rows[:events]
            _run(executor, _taken(inputs, chosen), _taken(outputs, chosen), f"{events} events")
    backwards = np.arange(min(rows_of(inputs), executor.max_events))[::-1]
    _run(executor, _taken(inputs, backwards), _taken(outputs, backwards), "events in another order")


def check_inputs_are_left_alone(executor: ModelExecutor, inputs: Tensors) -> None:
    """Inputs that can't be written to are taken, and no input changes: the same events may run again, in parts."""
    given = {name: array[: executor.max_events].copy() for name, array in inputs.items()}
    for array in given.values():
        array.flags.writeable = False
    executor.run(given)
    for name, array in given.items():
        assert np.array_equal(array, inputs[name][: executor.max_events]), f"the executor changed input {name}"


def check_results_are_the_callers(executor: ModelExecutor, inputs: Tensors, outputs: Outputs) -> None:
    """A later run doesn't change the outputs of an earlier one."""
    first = executor.run(rows_between(inputs, 0, 1))
    executor.run(rows_between(inputs, 1, 2))
    _compare(first, _taken(outputs, np.arange(1)), "the outputs of a run, after the next run")


def check_rejection(executor: ModelExecutor, inputs: Tensors, outputs: Outputs, bad: Tensors) -> None:
    """An event that the model rejects raises `ModelRejected`, and the next batch runs."""
    for _ in range(2):
        try:
            found: object = executor.run(bad)
        except ModelRejected as error:
            assert str(error), "expected a message in ModelRejected"
        else:
            raise AssertionError(f"expected ModelRejected for the bad event, found outputs {found}")
        _run(executor, rows_between(inputs, 0, 1), _taken(outputs, np.arange(1)), "the event after a bad one")


def check_many_at_once(executor: BlockingExecutor, inputs: Tensors, outputs: Outputs) -> None:
    """An asynchronous executor has many requests in flight, and each gets its own result."""
    rows = np.arange(AT_ONCE) % rows_of(inputs)

    async def run_all() -> list[dict[str, npt.NDArray[Any]]]:
        own, timeout = TimedExecutor(executor.executor), executor.executor.limits.timeout
        return await asyncio.gather(*(own.run(_taken(inputs, rows[at : at + 1]), timeout) for at in range(AT_ONCE)))

    found = executor.thread.wait_for(run_all(), 2 * executor.executor.limits.timeout)
    for at, each in enumerate(found):
        _compare(each, _taken(outputs, rows[at : at + 1]), f"request {at} of {AT_ONCE} at once")


def _run(executor: ModelExecutor, inputs: Tensors, expected: Outputs, what: str) -> None:
    _compare(executor.run(inputs), expected, what)


def _compare(found: Outputs, expected: Outputs, what: str) -> None:
    assert found.keys() == expected.keys(), f"{what}: expected the outputs {list(expected)}, found {list(found)}"
    for name, array in expected.items():
        own = found[name]
        assert own.shape == array.shape, f"{what}: expected shape {array.shape} of output {name}, found {own.shape}"
        equal = np.allclose(own, array, equal_nan=True) if array.dtype.kind == "f" else np.array_equal(own, array)
        assert equal, f"{what}: expected {array.tolist()} in output {name}, found {own.tolist()}"


def _taken(arrays: Tensors, rows: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
    return {name: array[rows] for name, array in arrays.items()}
