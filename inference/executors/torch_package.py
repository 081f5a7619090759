"""Loads packages that AOTInductor compiled.

Compiled code reads outside of memory if a tensor has another shape than it was compiled for. So an exported program beside the
package states names, types, shapes and the bounds of the axes, and the package's own checks are on (`inference/__init__.py`).
"""

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.error_classification import line_of
from millstream.inference.executors.torch_library import torch
from millstream.inference.repository import ModelVersion

MIN_EVENTS = 2  # of a call, unless the batch axis is fixed: torch compiles a free axis for sizes from 2 on
CHECKS = (b"AOTI_RUNTIME_CHECK_INPUTS", b"AOTInductorGetLastError")
"""Names in the code of a package that checks its inputs and says what is wrong with them."""
CPU_FLAGS = {"AVX2": "avx2", "AVX512": "avx512f", "AVX512_VNNI": "avx512_vnni", "AMX_TILE": "amx_tile"}
"""Instruction set, as packages name it -> as `CPU_INFO` names it."""
CPU_INFO = Path("/proc/cpuinfo")  # on Linux


def is_package(file: Path) -> bool:
    """Whether AOTInductor compiled this zip archive."""
    with zipfile.ZipFile(file) as archive:
        return bool(_parts(archive))


def open_package(model: ModelVersion, device: str, out_spec: Any) -> Callable[..., Any]:
    """Load the package that config.yaml names. Returns a function that takes the inputs in the program's order.

    Args:
        model: whose package it is.
        device: cpu or cuda.
        out_spec: the structure of the program's outputs.

    Raises:
        ModelConfigError: the file is damaged, or not for this torch, this device or this CPU.
    """
    place = package_place(model)
    file = model.file.parent / str(model.runtime.aoti_package)
    _check_device(place, _facts(place, file), device)
    single_thread = device != "cpu" and model.runtime.cuda_graphs  # locks can't be captured
    try:
        # Not `aoti_load_package`: that first compiles a test of the CPU, for half a minute, and reads JSON at each call.
        package = torch()._C._aoti.AOTIModelPackageLoader(str(file), "model", single_thread)
    except Exception as error:
        raise ModelConfigError(f"{place} can't be loaded. {compile_again()} torch says: {line_of(error)}") from None
    unflatten, set_num_threads = import_module("torch.utils._pytree").tree_unflatten, torch().set_num_threads

    def call(*tensors: Any) -> Any:
        if device == "cpu":
            # This sets the calling thread's number; the default is one per core. If a package runs with more threads than it was
            # compiled for, sums over the batch write outside of memory (torch 2.15).
            set_num_threads(1)
        return unflatten(package.boxed_run(list(tensors)), out_spec)

    return call


def package_place(model: ModelVersion) -> str:
    """How messages name the package."""
    return f"{model.place}: the package {model.runtime.aoti_package}"


def compile_again() -> str:
    """What to do about a package that doesn't fit, for messages."""
    return (
        f"Compile it again from the program in model.pt2, with torch {torch().__version__} on a machine of this kind "
        f"(`millstream docs models`)."
    )


def _parts(archive: zipfile.ZipFile) -> Sequence[str]:
    return [name for name in archive.namelist() if "/aotinductor/" in name]


def _facts(place: str, file: Path) -> Mapping[str, str]:
    """What the package says of the machine that it was compiled for. Raises ModelConfigError."""
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()  # to load a damaged library would kill the process
            parts = [] if damaged else _parts(archive)
            described = [json.loads(archive.read(name)) for name in parts if name.endswith("_metadata.json")]
            code = b"".join(archive.read(name) for name in parts if name.endswith(".cpp"))
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise ModelConfigError(f"{place} can't be read ({line_of(error)}). Copy or compile it again.") from None
    if damaged:
        raise ModelConfigError(f"{place} is damaged in {damaged}. Copy or compile it again.")
    if not parts:
        raise ModelConfigError(f"{place} is not compiled by AOTInductor. {compile_again()}")
    if any(name not in code for name in CHECKS):
        raise ModelConfigError(f"{place} can't check its inputs, because its torch was too old. {compile_again()}")
    return {key: value for facts in described for key, value in facts.items()}


def _check_device(place: str, facts: Mapping[str, str], device: str) -> None:
    """Raises ModelConfigError."""
    compiled_for = facts.get("AOTI_DEVICE_KEY", device)
    if compiled_for != device:
        raise ModelConfigError(
            f"{place} is compiled for {compiled_for}, but the model runs on {device}. Compile it for {device}, or write "
            f"`device: {compiled_for}` under `model:` in the pipeline file."
        )
    # An instruction that the CPU lacks would kill the process.
    flags = CPU_INFO.read_text(encoding="utf-8").split() if CPU_INFO.is_file() else list(CPU_FLAGS.values())
    sets = facts.get("AOTI_CPU_ISA", "").split()
    lacking = [name for name in sets if name in CPU_FLAGS and CPU_FLAGS[name] not in flags]
    if lacking:
        raise ModelConfigError(f"{place} is compiled for a CPU with {', '.join(lacking)}. {compile_again()}")
