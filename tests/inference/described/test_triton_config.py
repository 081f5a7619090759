"""Triton repositories as they are: config.pbtxt in place of a config.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.choice import open_executor
from millstream.inference.repository import load_version
from tests.inference.models import tensor, write_model

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.inference.repository import ModelVersion

pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed: .venv/bin/pip install -e '.[kserve]'")

HEAD = 'name: "m"\nbackend: "onnxruntime"\nmax_batch_size: 8\n'
TENSORS = """
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""
BATCHING = "dynamic_batching { preferred_batch_size: [ 4, 2 ] max_queue_delay_microseconds: 1500 }\n"


def repository(folder: Path, text: str, versions: tuple[int, ...] = (1,)) -> Path:
    """Model `m` as Triton has it: `y` = `x` + `x`, two floats an event."""
    made = write_model(
        folder / "made",
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [tensor("x", ["N", 2])],
        [tensor("y", ["N", 2])],
        config="inputs: [{tensor: x, field: f, dtype: float32, shape: [2]}]\noutputs: [{tensor: y}]\n",
    )
    for version in versions:
        place = folder / "models" / "m" / str(version)
        place.mkdir(parents=True)
        (place / "model.onnx").write_bytes(made.file.read_bytes())
    (folder / "models" / "m" / "config.pbtxt").write_text(text)
    return folder / "models"


def load(folder: Path, text: str, versions: tuple[int, ...] = (1,), version: int | None = None) -> ModelVersion:
    return load_version(repository(folder, text, versions), "m", version)


def test_onnx_model_runs_as_its_configuration_says(tmp_path: Path) -> None:
    model = load(tmp_path, HEAD + TENSORS + BATCHING)
    assert model.executor == "onnx"
    assert model.batch_sizes == (2, 4, 8)
    assert (model.max_events, model.max_wait) == (8, 0.0015)
    assert model.place == f"model m version 1 ({tmp_path}/models/m/config.pbtxt)"
    assert list(model.signature.fields) == ["x[]"]
    executor = open_executor(model, device="cpu", max_events=256)
    assert executor.max_events == 8
    executor.warm_up()
    assert executor.run({"x": np.array([[1, 2]], np.float32)})["y"].tolist() == [[2, 4]]


def test_pipeline_file_maps_other_fields(tmp_path: Path) -> None:
    model = load_version(repository(tmp_path, HEAD + TENSORS), "m", None, {"x": ["a", "b.c"]})
    assert list(model.signature.fields) == ["a", "b.c"]
    with pytest.raises(ModelConfigError, match=r"expected an input of the model \(x, says .*config\.pbtxt\), found z"):
        load_version(tmp_path / "models", "m", None, {"z": "a"})


def test_config_yaml_goes_first(tmp_path: Path) -> None:
    folder = repository(tmp_path, "not even text format {")
    (folder / "m" / "1" / "config.yaml").write_text(
        "inputs: [{tensor: x, field: f, dtype: float32, shape: [2]}]\noutputs: [{tensor: y}]\n"
    )
    assert list(load_version(folder, "m").signature.fields) == ["f"]


@pytest.mark.parametrize("named", ['platform: "onnxruntime_onnx"', 'backend: "onnxruntime"'])
def test_platform_or_backend(tmp_path: Path, named: str) -> None:
    assert load(tmp_path, named + "\nmax_batch_size: 4\n" + TENSORS).executor == "onnx"


def test_file_of_another_name(tmp_path: Path) -> None:
    folder = repository(tmp_path, HEAD + TENSORS + 'default_model_filename: "net.onnx"\n')
    with pytest.raises(ModelConfigError, match=r"`default_model_filename`: expected a file, found none at .*net\.onnx"):
        load_version(folder, "m")
    (folder / "m" / "1" / "model.onnx").rename(folder / "m" / "1" / "net.onnx")
    model = load_version(folder, "m")
    assert (model.file.name, model.executor) == ("net.onnx", "onnx")


@pytest.mark.parametrize("name", ["../2/model.onnx", "a/../../2/model.onnx", "/etc/model.onnx", "link.onnx"])
def test_file_of_another_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = repository(tmp_path, HEAD + TENSORS + f'default_model_filename: "{name}"\n')
    (folder / "m" / "1" / "a").mkdir()
    (folder / "m" / "2").mkdir()
    (folder / "m" / "1" / "model.onnx").rename(folder / "m" / "2" / "model.onnx")
    (folder / "m" / "1" / "link.onnx").symlink_to(folder / "m" / "2" / "model.onnx")
    with pytest.raises(ModelConfigError, match=r"`default_model_filename`: expected (the name of )?a file"):
        load_version(folder, "m", 1)


def test_free_first_axis_without_batching(tmp_path: Path) -> None:
    text = 'backend: "onnxruntime"\n' + TENSORS.replace("[ 2 ]", "[ -1, 2 ]")
    model = load(tmp_path, text)
    assert (model.max_events, model.signature.inputs[0].shape) == (None, (2,))


def test_shape_that_the_model_gets_is_the_reshaped_one(tmp_path: Path) -> None:
    text = HEAD + TENSORS.replace("dims: [ 2 ] } ]\noutput", "dims: [ 1, 2 ] reshape: { shape: [ 2 ] } } ]\noutput")
    assert load(tmp_path, text).signature.inputs[0].shape == (2,)


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        ("", 12),
        ("version_policy: { latest { num_versions: 1 } }", 12),
        ("version_policy: { specific { versions: [ 3 ] } }", 3),
        ("version_policy: { specific { versions: [ 3, 12 ] } }", None),
        ("version_policy: { all { } }", None),
        ("version_policy: { latest { num_versions: 2 } }", None),
    ],
)
def test_version_policy_chooses_where_the_pipeline_file_names_none(
    tmp_path: Path, policy: str, chosen: int | None
) -> None:
    folder = repository(tmp_path, f"{HEAD}{TENSORS}{policy}\n", (1, 3, 12))
    assert load_version(folder, "m", 1).version == 1
    if chosen is None:
        with pytest.raises(ModelConfigError, match="expected a `version`, because model `m` has several"):
            load_version(folder, "m")
    else:
        assert load_version(folder, "m").version == chosen


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("backend: {", r"config\.pbtxt can't be read: .*Triton would refuse it too"),
        ('backend: "python"\n' + TENSORS, r"expected the backend onnxruntime or pytorch, found 'python'\. .*`executor: kserve`"),
        (TENSORS, "found nothing"),
        (HEAD, "expected `input` and `output`, found no `input`"),
        (HEAD + TENSORS.replace("FP32", "BF16", 1), "input `x` is TYPE_BF16; expected one of TYPE_BOOL, TYPE_INT32"),
        (HEAD + TENSORS.replace("[ 2 ]", "[ -1 ]", 1), r"input `x` has dims \[-1\], with a free size"),
        (HEAD + TENSORS + "ensemble_scheduling { step [] }", "`ensemble_scheduling` is an ensemble of models"),
        (HEAD + TENSORS + "sequence_batching { }", "`sequence_batching` is sequences"),
        (HEAD + TENSORS + "model_transaction_policy { decoupled: true }", "a decoupled model gives several answers"),
        ('backend: "onnxruntime"\n' + TENSORS, r"with `max_batch_size: 0`, input `x` has dims \[2\], and no axis for the events"),
        (HEAD + TENSORS.replace("dims: [ 2 ] } ]\nout", "dims: [ 2 ] allow_ragged_batch: true } ]\nout"), "allow_ragged_batch"),
    ],
)  # fmt: skip
def test_what_cannot_be_mapped_is_told(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ModelConfigError, match=said) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "models" / "m" / "config.pbtxt"))


def test_what_changes_no_answer_is_left_out_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    extra = """
    instance_group [ { kind: KIND_GPU count: 2 } ]
    optimization { graph { level: 1 } }
    parameters { key: "a" value: { string_value: "b" } }
    """
    load(tmp_path, HEAD + TENSORS.replace("dims: [ 2 ] } ]\n", 'dims: [ 2 ] label_filename: "l.txt" } ]\n', 2).replace(
        ' label_filename: "l.txt"', "", 1
    ) + extra)  # fmt: skip
    for part in ("`instance_group`", "`optimization`", "the parameters a", "the labels of output `y`"):
        assert part in caplog.text


def test_tensors_that_the_model_lacks_are_told_by_the_file(tmp_path: Path) -> None:
    model = load(tmp_path, HEAD + TENSORS.replace('"x"', '"z"'))
    with pytest.raises(ModelConfigError, match=r"config\.pbtxt\): the model has no input `z`. .* not mapped: x\."):
        open_executor(model, device="cpu")
