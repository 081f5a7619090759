"""What every executor does alike, whatever runs the model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.inference.errors import DeviceError, ModelConfigError, ModelRejected
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.interface import ModelExecutor
from millstream.inference.repository import ModelVersion, load_version
from tests.inference.executors.torch_models import exported, scripted, torch
from tests.inference.models import doubling, looking_up, tensor, write_model
from tests.inference.python_models import predicting

LOOKING_UP = "inputs: [{tensor: x, fields: [place], dtype: int64}]\noutputs: [{tensor: y, name: value}]\n"
TWO = """
inputs:
  - {tensor: b, fields: [q], dtype: int64}
  - {tensor: a, fields: [p], dtype: int64}
outputs: [{tensor: difference}]
"""
Write = Callable[[Path], ModelVersion]


def torch_doubling(repository: Path, save: Callable[..., ModelVersion], **how: Any) -> ModelVersion:
    return save(repository, lambda _, x: {"y": x + x.reshape(-1, 2)}, {"x": torch.zeros(3, 2)}, **how)


def torch_looking_up(repository: Path, save: Callable[..., ModelVersion]) -> ModelVersion:
    def forward(_: Any, x: Any) -> Any:
        return (torch.tensor([10.0, 20.0, 30.0])[x],)

    return save(repository, forward, {"x": torch.zeros(3, 1, dtype=torch.int64)}, config=LOOKING_UP)


def torch_subtracting(repository: Path, save: Callable[..., ModelVersion]) -> ModelVersion:
    example = {name: torch.zeros(3, 1, dtype=torch.int64) for name in ("a", "b")}
    return save(repository, lambda _, a, b: a - b, example, config=TWO)


def onnx_subtracting(repository: Path) -> ModelVersion:
    return write_model(
        repository,
        [helper.make_node("Sub", ["a", "b"], ["difference"])],
        [tensor("a", ["N", 1], "int64"), tensor("b", ["N", 1], "int64")],
        [tensor("difference", ["N", 1], "int64")],
        config=TWO,
    )


DOUBLES: dict[str, Write] = {
    "onnx": doubling,
    "onnx, fixed batch": lambda folder: doubling(folder, batch=8),
    "python": lambda folder: predicting(folder, "return {'y': inputs['x'] + inputs['x'].reshape(-1, 2)}"),
    "torch": lambda folder: torch_doubling(folder, exported),
    "torch, fixed batch": lambda folder: torch_doubling(folder, exported, batch=None),
    "torch, named arguments": lambda folder: torch_doubling(folder, exported, keywords=True),
    "torchscript": lambda folder: torch_doubling(folder, scripted),
}
LOOKS_UP: dict[str, Write] = {
    "onnx": looking_up,
    "python": lambda folder: predicting(
        folder, "return {'y': np.float32([10, 20, 30])[inputs['x']]}", config=LOOKING_UP
    ),
    "torch": lambda folder: torch_looking_up(folder, exported),
    "torchscript": lambda folder: torch_looking_up(folder, scripted),
}
SUBTRACTS: dict[str, Write] = {
    "onnx": onnx_subtracting,
    "python": lambda folder: predicting(folder, "return {'difference': inputs['a'] - inputs['b']}", config=TWO),
    "torch": lambda folder: torch_subtracting(folder, exported),
    "torchscript": lambda folder: torch_subtracting(folder, scripted),
}


def kinds(models: dict[str, Write]) -> list[Any]:
    skip = pytest.mark.skipif(torch is None, reason="torch is not installed: .venv/bin/pip install -e '.[torch]'")
    return [
        pytest.param(write, id=name, marks=[skip] if name.startswith("torch") else []) for name, write in models.items()
    ]


def floats(events: int) -> npt.NDArray[np.float32]:
    return np.arange(events * 2, dtype=np.float32).reshape(events, 2)


@pytest.fixture(scope="module", params=kinds(DOUBLES))
def doubles(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelExecutor:
    executor = open_executor(request.param(tmp_path_factory.mktemp("model")), trust=True, device="cpu", max_events=8)
    executor.warm_up()
    return executor


@given(events=st.integers(1, 3))
def test_same_inputs_give_the_same_outputs(doubles: ModelExecutor, events: int) -> None:
    outputs = doubles.run({"x": floats(events)})
    assert outputs.keys() == {"y"}
    assert outputs["y"].dtype == np.float32
    assert np.array_equal(outputs["y"], floats(events) * 2)


def test_every_size_up_to_the_largest_runs(doubles: ModelExecutor) -> None:
    assert 1 <= doubles.max_events <= 8
    assert list(doubles.batch_sizes) == sorted(set(doubles.batch_sizes))
    for events in range(1, doubles.max_events + 1):
        assert np.array_equal(doubles.run({"x": floats(events)})["y"], floats(events) * 2)


def test_inputs_that_may_not_be_written_to_are_taken_and_left_alone(doubles: ModelExecutor) -> None:
    inputs = floats(2)
    inputs.flags.writeable = False
    doubles.run({"x": inputs})
    assert np.array_equal(inputs, floats(2))


def test_wrong_shape_is_rejected_and_the_next_micro_batch_runs(doubles: ModelExecutor) -> None:
    with pytest.raises(ModelRejected):
        doubles.run({"x": np.zeros((1, 3), np.float32)})
    assert np.array_equal(doubles.run({"x": floats(1)})["y"], floats(1) * 2)


@pytest.mark.parametrize("write", kinds(LOOKS_UP))
def test_event_that_the_model_refuses_is_found_and_the_others_are_answered(tmp_path: Path, write: Write) -> None:
    executor = open_executor(write(tmp_path), trust=True, device="cpu", max_events=8)
    executor.warm_up()
    with pytest.raises(ModelRejected, match=str(tmp_path)):
        executor.run({"x": np.array([[1], [7]])})
    isolation = BisectingExecutor(executor.run, max_events=8, allow_nan_outputs=False)
    outputs, rows, rejected = isolation.run({"x": np.array([[1], [7], [0], [2], [-9]])})
    assert rows.tolist() == [0, 2, 3]
    assert {name: values.tolist() for name, values in outputs.items()} == {"value": [[20.0], [10.0], [30.0]]}
    assert {row: why.reason for row, why in rejected.items()} == {1: "model_rejected", 4: "model_rejected"}
    executor.close()


@pytest.mark.parametrize("write", kinds(DOUBLES))
def test_several_outputs_are_made_of_one_tensor(tmp_path: Path, write: Write) -> None:
    file = write(tmp_path).file.parent / "config.yaml"
    inputs = file.read_text(encoding="utf-8").partition("outputs:")[0]
    outputs = "outputs: [{tensor: y, name: all}, {tensor: y, name: best, classes: [a, b], top: 1}]\n"
    file.write_text(inputs + outputs, encoding="utf-8")
    executor = open_executor(load_version(tmp_path, "m"), trust=True, device="cpu", max_events=8)
    executor.warm_up()
    found = executor.run({"x": np.array([[1, 2], [4, 3], [5, 5]], np.float32)})
    assert {name: array.tolist() for name, array in found.items()} == {
        "all": [[2, 4], [8, 6], [10, 10]],
        "best": [["b"], ["a"], ["a"]],
        "best_scores": [[4], [8], [10]],
    }


@pytest.mark.parametrize("write", kinds(DOUBLES))
def test_event_without_an_answer_that_has_a_class_is_found(tmp_path: Path, write: Write) -> None:
    file = write(tmp_path).file.parent / "config.yaml"
    inputs = file.read_text(encoding="utf-8").partition("outputs:")[0]
    file.write_text(inputs + "outputs: [{tensor: y, threshold: 5}]\n", encoding="utf-8")
    executor = open_executor(load_version(tmp_path, "m"), trust=True, device="cpu", max_events=8)
    isolation = BisectingExecutor(executor.run, max_events=8, allow_nan_outputs=True)
    outputs, rows, rejected = isolation.run({"x": np.array([[1, 2], [np.nan, 3], [3, 1]], np.float32)})
    assert (rows.tolist(), outputs["y"].tolist()) == ([0, 2], [[False, False], [True, False]])
    assert {row: why.reason for row, why in rejected.items()} == {1: "nan_output"}


@pytest.mark.parametrize("write", kinds(SUBTRACTS))
def test_inputs_reach_the_model_by_name_and_not_by_order(tmp_path: Path, write: Write) -> None:
    executor = open_executor(write(tmp_path), trust=True, device="cpu")
    outputs = executor.run({"b": np.array([[1], [2]]), "a": np.array([[10], [20]])})
    assert outputs["difference"].tolist() == [[9], [18]]
    assert outputs["difference"].dtype == np.int64


@pytest.mark.parametrize("write", kinds({name: DOUBLES[name] for name in DOUBLES if "fixed" not in name}))
def test_batch_sizes_of_the_config_are_those_warmed_up(tmp_path: Path, write: Write) -> None:
    model = write(tmp_path)
    with (model.file.parent / "config.yaml").open("a", encoding="utf-8") as config:
        config.write("batch_sizes: [3, 5]\n")
    executor = open_executor(load_version(tmp_path, "m"), trust=True, device="cpu", max_events=8)
    assert executor.batch_sizes == (3, 5)
    executor.warm_up()


@pytest.mark.parametrize("write", kinds({name: DOUBLES[name] for name in ("python", "torch")}))
def test_tensorrt_runs_onnx_only(tmp_path: Path, write: Write) -> None:
    with pytest.raises(DeviceError, match=r"its executor, \w+, runs on cpu and cuda. .* or bring the model as ONNX"):
        open_executor(write(tmp_path), trust=True, device="tensorrt")


@pytest.mark.parametrize("write", kinds({name: DOUBLES[name] for name in ("onnx", "torch", "torchscript")}))
def test_file_that_is_no_model_is_refused_by_its_name(tmp_path: Path, write: Write) -> None:
    model = write(tmp_path)
    model.file.write_bytes(b"no model")
    with pytest.raises(ModelConfigError, match="can't be loaded") as refused:
        open_executor(model, trust=True, device="cpu")
    assert str(refused.value).startswith(str(model.file))


@pytest.mark.parametrize("write", kinds({name: DOUBLES[name] for name in ("onnx", "torch", "torchscript")}))
def test_tensor_that_the_model_does_not_have_is_refused(tmp_path: Path, write: Write) -> None:
    folder = write(tmp_path).file.parent
    config = "inputs: [{tensor: z, field: f, dtype: float32, shape: [2]}]\noutputs: [{tensor: y}]\n"
    (folder / "config.yaml").write_text(config, encoding="utf-8")
    with pytest.raises(ModelConfigError, match="the model has no input `z`"):
        open_executor(load_version(tmp_path, "m"), trust=True, device="cpu")
