from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from millstream.inference.devices import gpus
from millstream.inference.errors import DeviceError, ModelConfigError, ModelRejected, OutOfMemory
from millstream.inference.executors.onnx import OnnxExecutor, engine_folder
from millstream.inference.executors.onnx_providers import providers_of
from millstream.inference.executors.onnx_session import open_session
from millstream.inference.repository import ModelVersion
from tests.inference.models import doubling, looking_up, tensor, write_model

OUTPUT = "outputs: [{tensor: y}]\n"


def floats(events: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.arange(events * 2, dtype=np.float32).reshape(events, 2)


def test_outputs_have_the_names_of_the_config(tmp_path: Path) -> None:
    executor = OnnxExecutor(looking_up(tmp_path), device="cpu")
    executor.warm_up()
    outputs = executor.run({"x": np.array([[2], [0]])})
    assert outputs.keys() == {"value"}
    assert outputs["value"].tolist() == [[30.0], [10.0]]


def test_free_batch_axis_runs_any_size_unpadded_on_the_cpu(tmp_path: Path) -> None:
    executor = OnnxExecutor(doubling(tmp_path), device="cpu", max_events=4)
    assert (executor.batch_sizes, executor.max_events) == ((1, 2, 4), 4)
    executor.warm_up()
    assert np.array_equal(executor.run({"x": floats(7)})["y"], floats(7) * 2)


def test_batch_sizes_of_the_config_are_warmed_up(tmp_path: Path) -> None:
    config = f"inputs: [{{tensor: x, field: f, dtype: float32, shape: [2]}}]\n{OUTPUT}batch_sizes: [3, 5]\n"
    assert OnnxExecutor(doubling(tmp_path, config=config), device="cpu").batch_sizes == (3, 5)


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> OnnxExecutor:
    return OnnxExecutor(doubling(tmp_path_factory.mktemp("fixed"), batch=8), device="cpu", max_events=100)


def test_fixed_batch_axis_sets_the_batch_size(fixed: OnnxExecutor) -> None:
    assert (fixed.batch_sizes, fixed.max_events) == ((8,), 8)
    fixed.warm_up()


@given(events=st.integers(1, 8))
def test_padded_micro_batch_has_the_results_of_its_events_only(fixed: OnnxExecutor, events: int) -> None:
    assert np.array_equal(fixed.run({"x": floats(events)})["y"], floats(events) * 2)


def weights_in(location: str) -> Any:
    """A tensor `w` whose values lie in a file of their own, 0 and 1."""
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "8")):
        weights.external_data.add(key=key, value=value)
    return weights


def adding(repository: Path, location: str, *, constant: bool) -> ModelVersion:
    """`y` = `x` + the weights at `location`, an initializer's or a constant node's."""
    weights = weights_in(location)
    node = [helper.make_node("Constant", [], ["w"], value=weights)] if constant else []
    return write_model(
        repository,
        [*node, helper.make_node("Add", ["x", "w"], ["y"])],
        [tensor("x", ["N", 2])],
        [tensor("y", ["N", 2])],
        constants=[] if constant else [weights],
        config=f"inputs: [{{tensor: x, field: f, dtype: float32, shape: [2]}}]\n{OUTPUT}",
    )


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("location", ["../weights", "{outside}", "link", "linked/weights"])
def test_weights_outside_of_the_models_folder_are_not_read(tmp_path: Path, location: str, constant: bool) -> None:
    outside = tmp_path / "m" / "weights"
    model = adding(tmp_path, location.format(outside=outside), constant=constant)
    np.arange(2, dtype=np.float32).tofile(outside)
    (model.file.parent / "link").symlink_to(outside)
    (model.file.parent / "linked").symlink_to(outside.parent)
    with pytest.raises(
        ModelConfigError, match=rf"{model.file} can't be loaded: its external data must be files in its"
    ):
        OnnxExecutor(model, device="cpu")


def test_weights_in_a_file_beside_the_model_are_read(tmp_path: Path) -> None:
    model = adding(tmp_path, "weights", constant=False)
    np.arange(2, dtype=np.float32).tofile(model.file.parent / "weights")
    assert OnnxExecutor(model, device="cpu").run({"x": floats(1)})["y"].tolist() == [[0.0, 2.0]]


def test_operator_of_a_library_that_the_model_would_bring_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("Own", ["x"], ["y"], domain="brought", library="./own.so")
    config = f"inputs: [{{tensor: x, field: f, dtype: float32, shape: [2]}}]\n{OUTPUT}"
    model = write_model(tmp_path, [node], [tensor("x", ["N", 2])], [tensor("y", ["N", 2])], config=config)
    with pytest.raises(ModelConfigError, match=rf"{model.file} can't be loaded"):
        OnnxExecutor(model, device="cpu")


def test_operator_without_float64_says_how_to_convert_the_model(tmp_path: Path) -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    config = f"inputs: [{{tensor: x, field: f, dtype: float64, shape: [2]}}]\n{OUTPUT}"
    model = write_model(
        tmp_path, [node], [tensor("x", ["N", 2], "float64")], [tensor("y", ["N", 2], "float64")], config=config
    )
    with pytest.raises(ModelConfigError) as refused:
        OnnxExecutor(model, device="cpu")
    found = "does not match expected type (tensor(float)). ONNX Runtime has some operators for float32 only"
    assert f"{found}: convert the model with inputs of float32" in str(refused.value)


def test_text_goes_in_and_is_padded_too(tmp_path: Path) -> None:
    model = write_model(
        tmp_path,
        [helper.make_node("Identity", ["x"], ["y"])],
        [tensor("x", [4, 1], "string")],
        [tensor("y", [4, 1], "string")],
        config=f"inputs: [{{tensor: x, fields: [name], dtype: string}}]\n{OUTPUT}",
    )
    executor = OnnxExecutor(model, device="cpu")
    executor.warm_up()
    assert executor.run({"x": np.array([["a"], ["é"], [""]], object)})["y"].tolist() == [["a"], ["é"], [""]]


def test_model_of_float16_takes_features_as_float16(tmp_path: Path) -> None:
    config = f"inputs: [{{tensor: x, field: f, dtype: float16, shape: [2]}}]\n{OUTPUT}"
    model = write_model(
        tmp_path,
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [tensor("x", ["N", 2], "float16")],
        [tensor("y", ["N", 2], "float16")],
        config=config,
    )
    executor = OnnxExecutor(model, device="cpu")
    executor.warm_up()
    outputs = executor.run({"x": floats(3).astype(np.float16)})
    assert outputs["y"].dtype == np.float16
    assert outputs["y"].tolist() == (floats(3) * 2).tolist()


def test_tensor_of_another_type_than_the_models_is_rejected(tmp_path: Path) -> None:
    executor = OnnxExecutor(doubling(tmp_path), device="cpu")
    with pytest.raises(ModelRejected, match=r"Unexpected input data type.*expected: \(tensor\(float\)\)"):
        executor.run({"x": floats(2).astype(np.float64)})


@pytest.mark.parametrize(
    ("opset", "says"),
    [
        (
            999,
            r"it has opset 999 of ai\.onnx, and this ONNX Runtime knows its opsets up to \d+\. Export the model with",
        ),
        (3, "can't be loaded: .*"),
    ],
)
def test_model_of_an_opset_that_this_onnx_runtime_lacks_is_refused(tmp_path: Path, opset: int, says: str) -> None:
    model = doubling(tmp_path)
    proto = onnx.load(str(model.file))
    proto.opset_import[0].version = opset
    model.file.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelConfigError, match=says) as refused:
        OnnxExecutor(model, device="cpu")
    assert str(refused.value).startswith(str(model.file))
    assert "\n" not in str(refused.value)


def test_model_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    model = doubling(tmp_path)
    proto = onnx.load(str(model.file))
    proto.ir_version = 99
    model.file.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelConfigError, match=r"it has IR version 99 of ONNX's format, .*`model\.ir_version = \d+`"):
        OnnxExecutor(model, device="cpu")


def test_micro_batch_that_the_model_refuses_is_rejected_quietly(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = looking_up(tmp_path)
    executor = OnnxExecutor(model, device="cpu")
    with pytest.raises(ModelRejected, match="idx=7 must be within") as rejected:
        executor.run({"x": np.array([[1], [7]])})
    assert model.place in str(rejected.value)
    assert capfd.readouterr() == ("", "")
    assert executor.run({"x": np.array([[1]])})["value"].tolist() == [[20.0]]


def test_output_whose_first_axis_is_not_the_event_is_the_models_fault(tmp_path: Path) -> None:
    model = write_model(
        tmp_path,
        [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("ReduceSum", ["flat"], ["y"], keepdims=0)],
        [tensor("x", ["N", 2])],
        [tensor("y", [])],
        config=f"inputs: [{{tensor: x, field: f, dtype: float32, shape: [2]}}]\n{OUTPUT}",
    )
    with pytest.raises(
        ModelConfigError, match=r"output `y` has shape \[\] for 1 events: its first axis must be the event"
    ):
        OnnxExecutor(model, device="cpu").warm_up()


X = "tensor: x, field: f, dtype"


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        (
            "{tensor: z, fields: [a], dtype: int64}",
            "the model has no input `z`. Inputs of the model that are not mapped: x. M",
        ),
        (
            f"{{{X}: float32, shape: [2]}}, {{tensor: z, fields: [a], dtype: int64}}",
            "the model has no input `z`. All its inputs are mapped: take this one out",
        ),
        (
            "{tensor: xx, fields: [a], dtype: int64}",
            r"config.yaml:1\): the model has no input `xx`. Did you mean `x`",
        ),
        (
            f"{{{X}: int64, shape: [2]}}",
            r"`x` is tensor\(float\) in the model, .* says int64. Write `dtype: float32`\.",
        ),
        (f"{{{X}: float32, shape: [3]}}", r"`x` has shape \['N', 2\] .* config.yaml gives \[3\] an event, from f"),
        (f"{{{X}: float32, shape: [2, 1]}}", r"`x` has shape \['N', 2\] .* gives \[2, 1\] an event, from f"),
        ("{tensor: x, fields: [a, b, c], dtype: float32}", r"has shape \['N', 2\] .* \[3\] an event, from a, b, c"),
    ],
)
def test_mapping_that_does_not_fit_the_models_inputs_is_refused(tmp_path: Path, inputs: str, says: str) -> None:
    model = doubling(tmp_path, config=f"inputs: [{inputs}]\n{OUTPUT}")
    with pytest.raises(ModelConfigError, match=says) as refused:
        OnnxExecutor(model, device="cpu")
    assert str(refused.value).startswith(model.place_at(1))


def test_output_that_the_model_lacks_is_refused_with_its_line_and_what_there_is(tmp_path: Path) -> None:
    config = "inputs: [{tensor: x, field: f, dtype: float32, shape: [2]}]\noutputs: [{tensor: yy}]\n"
    model = doubling(tmp_path, config=config)
    says = (
        r"config.yaml:2: outputs\[0\]: names the output `yy`, but the model's outputs are \['y'\]. Did you mean `y`\?"
    )
    with pytest.raises(ModelConfigError, match=says):
        OnnxExecutor(model, device="cpu")


def test_input_without_an_event_axis_is_refused(tmp_path: Path) -> None:
    model = write_model(
        tmp_path,
        [helper.make_node("Identity", ["x"], ["y"])],
        [tensor("x", [])],
        [tensor("y", [])],
        config=f"inputs: [{{tensor: x, fields: [a], dtype: float32}}]\n{OUTPUT}",
    )
    with pytest.raises(ModelConfigError, match=r"tensor `x` has shape \[\] in the model \(first axis: the event\)"):
        OnnxExecutor(model, device="cpu")


def test_inputs_that_fix_different_batch_sizes_are_refused(tmp_path: Path) -> None:
    model = write_model(
        tmp_path,
        [helper.make_node("Concat", ["x", "z"], ["y"], axis=0)],
        [tensor("x", [2, 1]), tensor("z", [3, 1])],
        [tensor("y", [5, 1])],
        config=f"inputs: [{{tensor: x, fields: [a], dtype: float32}}, {{tensor: z, fields: [b], dtype: float32}}]\n{OUTPUT}",
    )
    with pytest.raises(ModelConfigError, match=r"inputs fix different batch sizes: \[2, 3\]"):
        OnnxExecutor(model, device="cpu")


def test_output_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    element = helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, []))
    model = write_model(
        tmp_path,
        [helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1])],
        [tensor("x", ["N", 2])],
        [helper.make_value_info("y", helper.make_sequence_type_proto(element))],
        config=f"inputs: [{{tensor: x, field: f, dtype: float32, shape: [2]}}]\n{OUTPUT}",
    )
    with pytest.raises(ModelConfigError, match=r"output `y` is seq\(map\(int64,tensor\(float\)\)\) in the model"):
        OnnxExecutor(model, device="cpu")


def test_file_that_is_no_model_is_refused_by_its_name(tmp_path: Path) -> None:
    model = doubling(tmp_path)
    model.file.write_bytes(b"no model")
    says = r"can't be loaded: it is no whole ONNX model: .* cut off. Copy or export it again. .*INVALID_PROTOBUF"
    with pytest.raises(ModelConfigError, match=says) as refused:
        OnnxExecutor(model, device="cpu")
    assert str(refused.value).startswith(str(model.file))


def test_micro_batch_too_large_for_the_memory_is_told_apart(tmp_path: Path) -> None:
    """The model makes as many zeros as its largest event says; 2 ** 50 of them pass every address space."""
    model = write_model(
        tmp_path,
        [
            helper.make_node("ReduceMax", ["x"], ["most"], axes=[0], keepdims=0),
            helper.make_node("ConstantOfShape", ["most"], ["zeros"]),
            helper.make_node("ReduceSum", ["zeros"], ["sum"]),
            helper.make_node("Cast", ["x"], ["floats"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["floats", "sum"], ["y"]),
        ],
        [tensor("x", ["N", 1], "int64")],
        [tensor("y", ["N", 1])],
        config=f"inputs: [{{tensor: x, fields: [a], dtype: int64}}]\n{OUTPUT}",
    )
    executor = OnnxExecutor(model, device="cpu")
    assert executor.run({"x": np.array([[3]])})["y"].tolist() == [[3.0]]
    with pytest.raises(OutOfMemory) as too_large:
        executor.run({"x": np.array([[2**50]])})
    assert model.place in str(too_large.value)


@pytest.mark.skipif(gpus() > 0, reason="a GPU is here")
@pytest.mark.parametrize("device", ["cuda", "tensorrt"])
def test_onnx_runtime_that_can_not_start_its_gpu_does_not_fall_back(tmp_path: Path, device: str) -> None:
    """This ONNX Runtime may know the device, but its libraries or the GPU are missing."""
    model = doubling(tmp_path)
    with pytest.raises(DeviceError, match=r"ExecutionProvider could not start: its libraries .* are missing"):
        open_session(model, providers_of(model, device, batch_sizes=(1, 8)), 1)


def test_engines_have_a_folder_for_each_version(tmp_path: Path) -> None:
    model = doubling(tmp_path)
    assert engine_folder(tmp_path / "engines", model) == tmp_path / "engines" / "m" / "1"
    assert (tmp_path / "engines" / "m" / "1").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(ModelConfigError, match=r"engines of model m .* `model.engine_cache` in the pipeline file"):
        engine_folder(tmp_path / "file", model)


@pytest.mark.skipif(gpus() > 0, reason="a GPU is here")
@pytest.mark.parametrize("device", ["cuda", "tensorrt"])
def test_device_that_is_not_there_is_refused_and_auto_takes_the_cpu(tmp_path: Path, device: str) -> None:
    model = doubling(tmp_path)
    with pytest.raises(DeviceError, match=rf"`model.device: {device}` for model m, but .* Write `auto` or `cpu`"):
        OnnxExecutor(model, device=device)
    assert OnnxExecutor(model, device="auto").device == "cpu"


@pytest.mark.skipif(gpus() == 0, reason="no GPU is here")
def test_auto_takes_the_gpu_and_pads_to_the_batch_sizes(tmp_path: Path) -> None:
    executor = OnnxExecutor(doubling(tmp_path), device="auto", max_events=8)
    assert executor.device == "cuda"
    executor.warm_up()
    assert np.array_equal(executor.run({"x": floats(5)})["y"], floats(5) * 2)
