"""The package onnx, which only `millstream optimize` needs."""

import importlib
import sys
from typing import Any

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
