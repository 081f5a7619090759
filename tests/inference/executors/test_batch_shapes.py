"""What the runtime sees of micro-batches: on a GPU the preferred sizes alone, and what fills them up reaches no result."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.inference.errors import ModelRejected
from millstream.inference.executors import onnx as onnx_executor
from millstream.inference.executors import onnx_providers
from millstream.inference.executors import torch as torch_executor
from millstream.inference.executors.axes import UNBOUNDED
from millstream.inference.executors.installed import BY_FILE
from millstream.inference.executors.interface import ModelExecutor, Tensors
from millstream.inference.executors.onnx import OnnxExecutor
from millstream.inference.executors.onnx_providers import Provider
from millstream.inference.executors.torch import TorchExecutor
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import Signature, TensorInput, TensorOutput

INPUTS = (
    TensorInput("x", ("f",), array=True, dtype="float32", shape=(2,)),
    TensorInput("n", ("g",), array=False, dtype="int64", shape=(1,)),
)
SIGNATURE = Signature(INPUTS, (TensorOutput("sum", "total"), TensorOutput("row", "place")))
PREFERRED = (3, 5)


class Runtime:
    """Answers as a session of ONNX Runtime and as a torch program would, and keeps what it saw.

    `sum` is a row's sum, and `row` its place in the call: one that is not the event's own stands out.
    """

    def __init__(self, fixed: int | None = None, refused: Collection[int] = ()) -> None:
        self.fixed = fixed  # the only number of rows that it takes
        self._refused = refused  # events that it does not take
        self.sizes: list[int] = []  # rows of each call
        self.calls: list[Tensors] = []

    def answer(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        (rows,) = {len(array) for array in inputs.values()}  # the same of all tensors
        self.sizes.append(rows)
        self.calls.append(inputs)
        if not set(inputs["n"][:, 0] - 100).isdisjoint(self._refused):
            raise ModelRejected("refused")
        total = inputs["x"].sum(axis=1) + inputs["n"][:, 0]
        return {"sum": total, "row": np.arange(rows)}

    # As a session of ONNX Runtime

    def session(
        self, _file: str, _options: object, *, providers: Sequence[Provider], enable_fallback: int
    ) -> "Runtime":
        assert not enable_fallback  # the CPU must not take over silently
        self.providers = [name for name, _ in providers]
        return self

    def get_providers(self) -> Sequence[str]:
        return self.providers

    def get_inputs(self) -> list[Any]:
        batch = self.fixed or "N"
        return [
            SimpleNamespace(name="x", type="tensor(float)", shape=[batch, 2]),
            SimpleNamespace(name="n", type="tensor(int64)", shape=[batch, 1]),
        ]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name=name, type="tensor(float)") for name in ("sum", "row")]

    def run(self, outputs: Sequence[str], inputs: Tensors) -> list[npt.NDArray[Any]]:
        answers = self.answer(inputs)
        return [answers[name] for name in outputs]


Open = Callable[..., ModelExecutor]


def model_of(file: str, sizes: Sequence[int]) -> ModelVersion:
    return ModelVersion("m", 1, Path(file), BY_FILE[file], SIGNATURE, tuple(sizes))


@pytest.fixture(params=["onnx", "torch"])
def opened(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens an executor over a runtime, on a device that need not be there."""
    with pytest.MonkeyPatch.context() as patch:
        yield {"onnx": partial(open_onnx, patch), "torch": partial(open_torch, patch)}[request.param]


def open_onnx(
    patch: pytest.MonkeyPatch, runtime: Runtime, device: str, *, max_events: int = 8, sizes: Sequence[int] = PREFERRED
) -> ModelExecutor:
    patch.setattr(onnx_executor, "gpus", lambda: 1)
    patch.setattr(ort, "get_available_providers", lambda: onnx_providers.NAMES[device])
    patch.setattr(ort, "preload_dlls", lambda: None)
    patch.setattr(ort, "InferenceSession", runtime.session)
    return OnnxExecutor(model_of("model.onnx", sizes), device=device, max_events=max_events)


def open_torch(
    patch: pytest.MonkeyPatch,
    runtime: Runtime,
    device: str,
    *,
    max_events: int = 8,
    sizes: Sequence[int] = PREFERRED,
    least: int = 1,
    most: int = UNBOUNDED,
) -> ModelExecutor:
    cuda = SimpleNamespace(is_available=lambda: True)
    torch = SimpleNamespace(set_num_threads=lambda _: None, cuda=cuda)
    program = SimpleNamespace(run=runtime.answer, fixed=runtime.fixed, least=least, most=most, compiled_from=None)
    patch.setattr(torch_executor, "cpu_or_cuda", lambda *_: device)
    patch.setattr(torch_executor, "open_program", lambda *_: program)
    patch.setattr(torch_executor, "torch", lambda: torch)
    return TorchExecutor(model_of("model.pt2", sizes), max_events=max_events)


def inputs_of(events: int) -> dict[str, npt.NDArray[Any]]:
    x = np.arange(events * 2, dtype=np.float32).reshape(events, 2)
    return {"x": x, "n": np.arange(100, 100 + events).reshape(events, 1)}


def answers_of(events: int) -> dict[str, list[float]]:
    return {"total": [100 + 5 * row + 1 for row in range(events)], "place": list(range(events))}


def lists(outputs: Tensors) -> dict[str, list[float]]:
    return {name: array.tolist() for name, array in outputs.items()}


@pytest.mark.parametrize("events", range(1, 6))
def test_gpu_sees_the_smallest_preferred_size_and_answers_the_events_alone(opened: Open, events: int) -> None:
    runtime = Runtime()
    outputs = opened(runtime, "cuda").run(inputs_of(events))
    assert runtime.sizes == [3 if events <= 3 else 5]
    assert lists(outputs) == answers_of(events)


@pytest.mark.parametrize("events", range(1, 8))
def test_gpu_without_preferred_sizes_sees_powers_of_two_and_the_largest_batch(opened: Open, events: int) -> None:
    runtime = Runtime()
    outputs = opened(runtime, "cuda", max_events=7, sizes=()).run(inputs_of(events))
    assert runtime.sizes == [{1: 1, 2: 2, 3: 4, 4: 4}.get(events, 7)]
    assert lists(outputs) == answers_of(events)


def test_what_fills_a_batch_up_is_its_last_event_again(opened: Open) -> None:
    runtime = Runtime()
    given = inputs_of(2)
    opened(runtime, "cuda", sizes=[4]).run(given)
    (seen,) = runtime.calls
    for name, array in given.items():
        assert seen[name].tolist() == [*array.tolist(), array[-1].tolist(), array[-1].tolist()]
        assert seen[name].dtype == array.dtype


def test_full_batch_is_handed_to_the_cpu_as_it_is(opened: Open) -> None:
    runtime = Runtime()
    given = inputs_of(5)
    opened(runtime, "cpu").run(given)
    assert all(np.shares_memory(runtime.calls[0][name], array) for name, array in given.items())


@pytest.mark.parametrize("events", [1, 2, 4, 7])
def test_cpu_sees_each_batch_as_it_is(opened: Open, events: int) -> None:
    runtime = Runtime()
    executor = opened(runtime, "cpu")
    assert lists(executor.run(inputs_of(events))) == answers_of(events)
    assert runtime.sizes == [events]
    assert executor.max_events == 8


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_model_of_one_size_sees_that_alone_on_any_device(opened: Open, device: str) -> None:
    runtime = Runtime(fixed=4)
    executor = opened(runtime, device)
    executor.warm_up()
    assert (executor.batch_sizes, executor.max_events) == ((4,), 4)
    assert [lists(executor.run(inputs_of(events))) for events in (1, 3, 4)] == [
        answers_of(1),
        answers_of(3),
        answers_of(4),
    ]
    assert set(runtime.sizes) == {4}


@pytest.mark.parametrize(
    ("max_events", "sizes", "largest"), [(8, (3, 5), 5), (5, (3, 5), 5), (4, (3, 5), 4), (3, (3,), 3), (2, (3,), 2)]
)
def test_warm_up_runs_each_size_once_that_a_batch_may_have(
    opened: Open, max_events: int, sizes: tuple[int, ...], largest: int
) -> None:
    runtime = Runtime()
    executor = opened(runtime, "cuda", max_events=max_events)
    executor.warm_up()
    assert tuple(runtime.sizes) == executor.batch_sizes == sizes
    assert executor.max_events == largest


@given(events=st.integers(1, 40), refused=st.sets(st.integers(0, 39), max_size=3))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batches_that_run_in_parts_are_of_preferred_sizes_too(opened: Open, events: int, refused: set[int]) -> None:
    """Where the model refuses some events a batch is halved: each part is filled up anew."""
    runtime = Runtime(refused=refused)
    executor = opened(runtime, "cuda")
    isolation = BisectingExecutor(executor.run, max_events=executor.max_events, allow_nan_outputs=False)
    outputs, rows, rejected = isolation.run(inputs_of(events))
    assert set(runtime.sizes) <= set(PREFERRED)
    assert set(rejected) == {row for row in refused if row < events}
    assert rows.tolist() == [row for row in range(events) if row not in refused]
    if len(rows):
        assert outputs["total"].tolist() == [answers_of(events)["total"][row] for row in rows.tolist()]


@pytest.mark.parametrize(("device", "seen"), [("cpu", [2, 2, 3, 5, 6]), ("cuda", [2, 2, 4, 6, 6])])
def test_torch_program_sees_no_batch_outside_of_its_bounds(
    monkeypatch: pytest.MonkeyPatch, device: str, seen: list[int]
) -> None:
    runtime = Runtime()
    executor = open_torch(monkeypatch, runtime, device, max_events=64, sizes=(), least=2, most=6)
    for events in (1, 2, 3, 5, 6):
        assert lists(executor.run(inputs_of(events))) == answers_of(events)
    assert runtime.sizes == seen
    assert (executor.batch_sizes, executor.max_events) == ((2, 4, 6), 6)


def test_preferred_size_beyond_the_torch_programs_bounds_becomes_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime()
    executor = open_torch(monkeypatch, runtime, "cuda", max_events=64, sizes=(1, 3, 8), least=2, most=6)
    executor.warm_up()
    assert tuple(runtime.sizes) == executor.batch_sizes == (2, 3, 6)
