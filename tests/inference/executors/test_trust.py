"""What a model from a URL may do without trust, and where an ONNX model may read files."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.installed import OWN
from millstream.inference.repository import load_version
from tests.inference.models import doubling, tensor

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "inputs: [{tensor: x, field: f, dtype: float32, shape: [2]}]\noutputs: [{tensor: y}]\n"


@pytest.mark.parametrize("executor", [name for name in OWN if name != "onnx"])
def test_model_from_a_url_needs_trust_unless_it_is_onnx(tmp_path: Path, executor: str) -> None:
    model = replace(doubling(tmp_path), remote=True, executor=executor)
    with pytest.raises(ModelConfigError, match=rf"only as ONNX, found the executor {executor}: .* `trust: true`"):
        open_executor(model, device="cpu")


def test_onnx_from_a_url_runs(tmp_path: Path) -> None:
    executor = open_executor(replace(doubling(tmp_path), remote=True), device="cpu")
    assert executor.run({"x": np.ones((1, 2), np.float32)})["y"].tolist() == [[2, 2]]


def with_external_data(folder: Path, location: str) -> None:
    """Model `m` version 1, whose weight is in another file."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "8")):
        weight.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", [tensor("x", ["N", 2])], [tensor("y", ["N", 2])], [weight]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    place = folder / "m" / "1"
    place.mkdir(parents=True)
    (place / "model.onnx").write_bytes(made.SerializeToString())
    (place / "config.yaml").write_text(CONFIG)


@pytest.mark.parametrize(
    "location", ["../../secret", "{folder}/secret", "link", "deep/../../../secret", "linked/secret"]
)
@pytest.mark.parametrize("remote", [True, False])
def test_external_data_may_not_leave_the_folder(tmp_path: Path, location: str, remote: bool) -> None:
    (tmp_path / "secret").write_bytes(np.array([1, 2], np.float32).tobytes())
    with_external_data(tmp_path, location.format(folder=tmp_path))
    place = tmp_path / "m" / "1"
    (place / "deep").mkdir()
    (place / "link").symlink_to(tmp_path / "secret")
    (place / "linked").symlink_to(tmp_path)
    with pytest.raises(ModelConfigError, match=r"model\.onnx can't be loaded"):
        open_executor(replace(load_version(tmp_path, "m"), remote=remote), device="cpu")


def test_external_data_in_the_folder_is_read(tmp_path: Path) -> None:
    with_external_data(tmp_path, "weights.bin")
    (tmp_path / "m" / "1" / "weights.bin").write_bytes(np.array([1, 2], np.float32).tobytes())
    executor = open_executor(replace(load_version(tmp_path, "m"), remote=True), device="cpu")
    assert executor.run({"x": np.zeros((1, 2), np.float32)})["y"].tolist() == [[1, 2]]


def test_operators_of_a_library_are_not_loaded(tmp_path: Path) -> None:
    """Neither a library beside the model nor one that its metadata names."""
    graph = helper.make_graph(
        [helper.make_node("Evil", ["x"], ["y"], domain="com.evil", library="libevil.so")],
        "g",
        [tensor("x", ["N", 2])],
        [tensor("y", ["N", 2])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.evil", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    made.metadata_props.append(
        onnx.StringStringEntryProto(
            key="ort_config",
            value='{"session_options": {"custom_ops_library": "libevil.so", "intra_op_num_threads": 7}}',
        )
    )
    place = tmp_path / "m" / "1"
    place.mkdir(parents=True)
    (place / "model.onnx").write_bytes(made.SerializeToString())
    (place / "libevil.so").write_bytes(b"\x7fELF" + os.urandom(64))
    (place / "config.yaml").write_text(CONFIG)
    with pytest.raises(ModelConfigError, match=r"can't be loaded: .*com\.evil"):
        open_executor(replace(load_version(tmp_path, "m"), remote=True), device="cpu")
