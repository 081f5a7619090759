"""The package onnx, which only `millstream optimize` needs, and the tools of ONNX Runtime that need it."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnxruntime as ort

from millstream.inference.errors import NotOptimized


def onnx() -> Any:
    """Import the package. Raises NotOptimized if it isn't installed."""
    try:
        return importlib.import_module("onnx")
    except ModuleNotFoundError:
        raise NotOptimized(
            "`millstream optimize` needs the package onnx, which is not installed. Install Millstream's extra `optimize`: "
            f"{sys.executable} -m pip install 'millstream[optimize]'"
        ) from None


def runtime_tool(name: str) -> Any:
    """Import a module of ONNX Runtime's tools. Use it within `tools_importable`."""
    return importlib.import_module(f"onnxruntime.{name}")


@contextmanager
def tools_importable() -> Iterator[None]:
    """The tools of ONNX Runtime find each other by a folder on Python's path, which one of them adds when it is imported.

    Afterwards the path is as before, because modules of that folder, such as `constants`, would hide the user's.
    """
    before = list(sys.path)
    sys.path.append(str(Path(str(ort.__file__)).parent / "transformers"))
    try:
        yield
    finally:
        sys.path[:] = before
