"""What ONNX Runtime is told about a device: its execution providers and their options. Nothing here needs a GPU."""

from collections.abc import Sequence
from pathlib import Path

from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorInput
from millstream.inference.varying import length_buckets_of

Provider = tuple[str, dict[str, str]]
"""The name of an execution provider, and its options."""

NAMES = {
    "cpu": ["CPUExecutionProvider"],
    "cuda": ["CUDAExecutionProvider", "CPUExecutionProvider"],
    # TensorRT runs only the parts of a model that it supports; CUDA runs the rest.
    "tensorrt": ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"],
}
"""Device -> names of its providers, from the first choice on."""


def providers_of(
    model: ModelVersion,
    device: str,
    *,
    batch_sizes: Sequence[int] = (),
    gpu_memory: int | None = None,
    engine_cache: Path | None = None,
) -> list[Provider]:
    """The providers of a device with their options.

    Args:
        model: its `runtime` and its shapes are used.
        device: cpu, cuda or tensorrt.
        batch_sizes: the sizes of micro-batch that run, ascending; empty: the model fixes all its shapes.
        gpu_memory: bytes of GPU memory for this copy of the model; None: no limit.
        engine_cache: folder for compiled engines of this model, for TensorRT; None: engines are not kept.
    """
    options = {
        "TensorrtExecutionProvider": _tensorrt(model, batch_sizes, gpu_memory, engine_cache),
        "CUDAExecutionProvider": _cuda(model, gpu_memory),
        "CPUExecutionProvider": {},
    }
    return [(name, options[name]) for name in NAMES[device]]


def _cuda(model: ModelVersion, gpu_memory: int | None) -> dict[str, str]:
    # By default, each extension of the arena doubles it, and no memory goes back. There are only a few shapes, and the warm-up
    # runs all of them, so the arena reaches its final size at once, and can have exactly this size.
    options = {"arena_extend_strategy": "kSameAsRequested"}
    if gpu_memory is not None:
        options["gpu_mem_limit"] = str(gpu_memory)
    if model.runtime.cuda_graphs:
        options["enable_cuda_graph"] = "1"
    return options


def _tensorrt(
    model: ModelVersion, batch_sizes: Sequence[int], gpu_memory: int | None, engine_cache: Path | None
) -> dict[str, str]:
    options: dict[str, str] = {}
    if model.runtime.tensorrt_fp16:
        options["trt_fp16_enable"] = "1"
    if gpu_memory is not None:
        options["trt_max_workspace_size"] = str(gpu_memory)
    if engine_cache is not None:
        # Building an engine takes minutes. The timing cache also speeds up the build for a new version of the model.
        options |= {
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": str(engine_cache),
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": str(engine_cache),
        }
    # Without a range of shapes, TensorRT builds a new engine whenever a micro-batch is larger than all before it.
    if batch_sizes:
        options |= _profile(model, batch_sizes)
    return options


def _profile(model: ModelVersion, batch_sizes: Sequence[int]) -> dict[str, str]:
    """The range of shapes. The engine is tuned for full batches, because throughput matters most when batches are full."""
    longest = model.signature.max_length
    lengths = length_buckets_of(model.length_buckets, longest) if longest is not None else (0,)
    shapes = {
        "min": (batch_sizes[0], lengths[0]),
        "opt": (batch_sizes[-1], lengths[len(lengths) // 2]),
        "max": (batch_sizes[-1], lengths[-1]),
    }
    return {
        f"trt_profile_{name}_shapes": ",".join(_shape(entry, events) for entry in model.signature.at(length))
        for name, (events, length) in shapes.items()
    }


def _shape(entry: TensorInput, events: int) -> str:
    return f"{entry.tensor}:{'x'.join(map(str, (events, *entry.shape)))}"
