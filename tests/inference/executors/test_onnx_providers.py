"""What ONNX Runtime is told about each device."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest

from millstream.inference.config_sections import RuntimeOptions
from millstream.inference.executors.onnx_providers import NAMES, providers_of
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import Signature, TensorInput, TensorOutput

IMAGES = TensorInput("image", ("f",), array=True, dtype="float32", shape=(3, 8, 8))
TOKENS = TensorInput("ids", ("t",), array=True, dtype="int64", shape=(100,), max_length=100)
MASK = TensorInput("mask", (), array=True, dtype="int64", shape=(100,), max_length=100, mask=True)


def model_of(*inputs: TensorInput, **runtime: Any) -> ModelVersion:
    signature = Signature(inputs, (TensorOutput("y", "y"),))
    return replace(ModelVersion("m", 1, Path("model.onnx"), "onnx", signature, ()), runtime=RuntimeOptions(**runtime))


def options_of(model: ModelVersion, device: str, provider: str, **how: Any) -> dict[str, str]:
    return dict(providers_of(model, device, **how))[provider]


def test_every_device_has_the_cpu_for_what_it_can_not_run() -> None:
    for device, names in NAMES.items():
        assert [name for name, _ in providers_of(model_of(IMAGES), device)] == names
        assert names[-1] == "CPUExecutionProvider"


def test_options_are_texts_as_onnx_runtime_takes_them() -> None:
    model = model_of(IMAGES, cuda_graphs=True, tensorrt_fp16=True)
    found = providers_of(model, "tensorrt", batch_sizes=(1, 8), gpu_memory=1 << 30, engine_cache=Path("cache"))
    assert all(isinstance(value, str) for _, options in found for value in options.values())


def test_cpu_has_no_options() -> None:
    assert providers_of(model_of(IMAGES), "cpu", batch_sizes=(1, 8), gpu_memory=1) == [("CPUExecutionProvider", {})]


def test_memory_of_cuda_grows_by_what_is_needed_and_up_to_the_limit() -> None:
    assert options_of(model_of(IMAGES), "cuda", "CUDAExecutionProvider") == {
        "arena_extend_strategy": "kSameAsRequested"
    }
    limited = options_of(model_of(IMAGES), "cuda", "CUDAExecutionProvider", gpu_memory=3 << 30)
    assert limited["gpu_mem_limit"] == str(3 << 30)


@pytest.mark.parametrize(("graphs", "option"), [(False, None), (True, "1")])
def test_cuda_graphs_are_an_option(graphs: bool, option: str | None) -> None:
    found = options_of(model_of(IMAGES, cuda_graphs=graphs), "cuda", "CUDAExecutionProvider")
    assert found.get("enable_cuda_graph") == option


def test_tensorrt_knows_the_range_of_batch_sizes() -> None:
    found = options_of(model_of(IMAGES), "tensorrt", "TensorrtExecutionProvider", batch_sizes=(1, 16, 64))
    assert found == {
        "trt_profile_min_shapes": "image:1x3x8x8",
        "trt_profile_opt_shapes": "image:64x3x8x8",
        "trt_profile_max_shapes": "image:64x3x8x8",
    }


def test_tensorrt_knows_the_range_of_lengths() -> None:
    model = replace(model_of(TOKENS, MASK, IMAGES), length_buckets=(20, 50))
    found = options_of(model, "tensorrt", "TensorrtExecutionProvider", batch_sizes=(2, 8))
    assert found == {
        "trt_profile_min_shapes": "ids:2x20,mask:2x20,image:2x3x8x8",
        "trt_profile_opt_shapes": "ids:8x50,mask:8x50,image:8x3x8x8",
        "trt_profile_max_shapes": "ids:8x100,mask:8x100,image:8x3x8x8",
    }


def test_tensorrt_keeps_engines_in_the_folder_and_computes_in_16_bits_by_option() -> None:
    model = model_of(IMAGES, tensorrt_fp16=True)
    found = options_of(
        model, "tensorrt", "TensorrtExecutionProvider", gpu_memory=1 << 30, engine_cache=Path("/engines")
    )
    assert found == {
        "trt_fp16_enable": "1",
        "trt_max_workspace_size": str(1 << 30),
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": "/engines",
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": "/engines",
    }


@pytest.mark.skipif("CUDAExecutionProvider" not in ort.get_available_providers(), reason="onnxruntime has no CUDA here")
def test_names_are_those_of_onnx_runtime() -> None:
    assert set(NAMES["tensorrt"]) <= set(ort.get_all_providers())
