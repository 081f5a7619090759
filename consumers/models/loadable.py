"""Tries whether a version can be loaded, before anything depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.inference.errors import DeviceError
from millstream.inference.executors.choice import open_executor

if TYPE_CHECKING:
    from millstream.inference.repository import ModelVersion
    from millstream.pipeline.pipeline import Pipeline


def refuse_unloadable(pipeline: Pipeline, version: ModelVersion) -> bool:
    """Load the model of a version, and close it. It is not tried where only the workers' machines may have what it needs.

    Returns:
        whether it was tried.

    Raises:
        ModelConfigError: it is an ONNX model that can't be loaded.
    """
    if version.executor != "onnx":
        return False
    try:
        open_executor(version, device=pipeline.model.device).close()
    except DeviceError:  # this machine lacks it
        return False
    return True
