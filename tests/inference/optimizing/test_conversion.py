"""Converting real ONNX models: what is written runs, takes the same inputs, and answers nearly the same."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

from millstream.consumers.demo.example import example_folder
from millstream.inference.errors import ModelConfigError, NotOptimized
from millstream.inference.executors.choice import open_executor
from millstream.inference.optimizing.calibration import calibration_batches
from millstream.inference.optimizing.conversion import Precision, convert
from millstream.inference.ragged import Ragged
from millstream.inference.repository import ModelVersion, load_version
from tests.inference.models import doubling, tensor, write_model
from tests.inference.optimizing.networks import WIDTH, mlp

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

INT8 = 0.04
"""Largest difference of a probability with 8 bits. How ONNX Runtime rounds depends on the CPU's instructions for 8-bit sums."""
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8-dynamic", "int8-static")


def events(count: int = 200) -> dict[str, npt.NDArray[Any]]:
    return {"x": np.random.default_rng(1).normal(size=(count, WIDTH)).astype(np.float32)}


def converted(
    model: ModelVersion, precision: Precision, inputs: dict[str, Any], fixed: int | None = None
) -> ModelVersion:
    target = model.file.with_name("converted.onnx")
    convert(model.file, precision, target, calibration_batches(model, inputs, fixed))
    return replace(model, file=target)


def answers(model: ModelVersion, inputs: dict[str, Any]) -> npt.NDArray[Any]:
    (output,) = open_executor(model, max_events=256).run(inputs).values()
    return output


def operators(model: ModelVersion) -> set[str]:
    return {node.op_type for node in onnx.load(model.file).graph.node}


@pytest.mark.parametrize(
    ("precision", "most"), [("fp32", 1e-6), ("fp16", 2e-3), ("int8-dynamic", INT8), ("int8-static", INT8)]
)
def test_network_answers_nearly_the_same(tmp_path: Path, precision: Precision, most: float) -> None:
    model, inputs = mlp(tmp_path), events()
    before = answers(model, inputs)
    new = converted(model, precision, inputs)
    assert np.abs(answers(new, inputs) - before).max() <= most


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("version", [1, 2])
def test_flights_answer_nearly_the_same(tmp_path: Path, precision: Precision, version: int) -> None:
    model = load_version(example_folder() / "models", "flights-delay", version)
    random = np.random.default_rng(3)
    numbers = [random.integers(1, 8, 64), random.integers(0, 1440, 64), random.integers(0, 1440, 64)]
    numbers += [random.integers(80, 5000, 64), random.integers(-20, 200, 64)]
    route = [["UA", "EWR", "IAH"], ["DL", "JFK", "nowhere"]] * 32
    columns = np.array(numbers[: 3 + version], np.float32).T
    inputs = {"numbers": np.ascontiguousarray(columns), "route": np.array(route, object)}
    target = tmp_path / "model.onnx"
    convert(model.file, precision, target, calibration_batches(model, inputs, None))
    new = answers(replace(model, file=target), inputs)
    assert np.abs(new - answers(model, inputs)).max() <= 0.1
    assert len(np.unique(new)) > 5


def test_inputs_and_outputs_keep_their_types(tmp_path: Path) -> None:
    model = mlp(tmp_path)
    for precision in PRECISIONS:
        graph = onnx.load(converted(model, precision, events()).file).graph
        found = [(entry.name, entry.type.tensor_type.elem_type) for entry in (*graph.input, *graph.output)]
        assert found == [("x", onnx.TensorProto.FLOAT), ("y", onnx.TensorProto.FLOAT)]


def test_any_number_of_calibration_batches_will_do(tmp_path: Path) -> None:
    model = mlp(tmp_path)
    for count in (1, 32, 16 * 32, 17 * 32):
        assert "DequantizeLinear" in operators(converted(model, "int8-static", events(count)))


def test_new_graph_is_valid(tmp_path: Path) -> None:
    model = mlp(tmp_path)
    for precision in PRECISIONS:
        graph = onnx.load(converted(model, precision, events()).file).graph
        known = {entry.name for entry in (*graph.input, *graph.initializer)} | {""}
        for node in graph.node:
            assert set(node.input) <= known, precision
            known |= set(node.output)


def test_numbers_are_stored_with_fewer_bits(tmp_path: Path) -> None:
    model = mlp(tmp_path)
    size = {precision: converted(model, precision, events()).file.stat().st_size for precision in PRECISIONS}
    assert size["fp16"] < size["fp32"]
    assert "MatMulInteger" in operators(converted(model, "int8-dynamic", events()))
    assert "DequantizeLinear" in operators(converted(model, "int8-static", events()))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_model_with_one_batch_size_stays_so(tmp_path: Path, precision: Precision) -> None:
    model, inputs = mlp(tmp_path, batch=16), events(16)
    new = converted(model, precision, events(40), fixed=16)
    assert np.abs(answers(new, inputs) - answers(model, inputs)).max() <= INT8


def test_external_data_are_inside_of_the_new_file(tmp_path: Path) -> None:
    model, inputs = mlp(tmp_path), events()
    before = answers(model, inputs)
    onnx.save(onnx.load(model.file), model.file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    new = converted(model, "int8-dynamic", inputs)
    (model.file.parent / "weights.bin").unlink()
    assert np.abs(answers(new, inputs) - before).max() <= INT8


def test_events_of_different_lengths_are_padded_for_the_calibration(tmp_path: Path) -> None:
    config = "inputs: [{tensor: x, field: f, dtype: float32, max_length: 64}]\noutputs: [{tensor: y}]\n"
    model = replace(doubling(tmp_path, config=config), length_buckets=(2, 4, 64))
    ragged = Ragged.of_lengths(np.arange(50, dtype=np.float32), np.array([1, 2, 4, 3, 40]))
    shapes = [batch["x"].shape for batch in calibration_batches(model, {"x": ragged}, None)]
    assert shapes == [(2, 2), (2, 4), (1, 64)]


@pytest.mark.parametrize("precision", ["int8-dynamic", "int8-static"])
def test_model_without_weights_names_its_operators(tmp_path: Path, precision: Precision) -> None:
    model = doubling(tmp_path)
    with pytest.raises(NotOptimized, match=r"nothing to store in 8 bits: expected one of .*MatMul.* it has Add\."):
        converted(model, precision, {"x": np.ones((4, 2), np.float32)})


@pytest.mark.parametrize("precision", ["int8-dynamic", "int8-static"])
def test_weights_that_are_no_constants_are_told(tmp_path: Path, precision: Precision) -> None:
    model = write_model(
        tmp_path,
        [helper.make_node("MatMul", ["x", "x"], ["y"])],
        [tensor("x", ["N", 2, 2], "int64")],
        [tensor("y", ["N", 2, 2], "int64")],
        config="inputs: [{tensor: x, field: f, dtype: int64, shape: [2, 2]}]\noutputs: [{tensor: y}]\n",
    )
    with pytest.raises(NotOptimized, match=f"{precision} changed nothing"):
        converted(model, precision, {"x": np.ones((4, 2, 2), np.int64)})


def test_file_that_is_no_model_is_told(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"no model")
    with pytest.raises(ModelConfigError, match=r"model\.onnx can't be loaded"):
        convert(file, "fp16", tmp_path / "new.onnx")


def test_path_of_python_stays_as_it_is(tmp_path: Path) -> None:
    before = list(sys.path)
    for precision in PRECISIONS:
        convert(mlp(tmp_path / precision).file, precision, tmp_path / "new.onnx", [events(32)])
    assert sys.path == before


def test_missing_package_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = mlp(tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(NotOptimized, match=r"needs the package onnx.*-m pip install 'millstream\[optimize\]'"):
        convert(model.file, "fp16", tmp_path / "new.onnx")
