"""Tiny torch models, written into a model repository. Only where torch is installed."""

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from inference.repository import ModelVersion, load_version

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None
DOUBLING = "inputs: [{tensor: x, field: f, dtype: float32, shape: [2]}]\noutputs: [{tensor: y}]\n"


def _saved(repository: Path, config: str, save: Callable[[Path], object]) -> ModelVersion:
    folder = repository / "m" / "1"
    folder.mkdir(parents=True)
    save(folder)
    (folder / "config.yaml").write_text(config, encoding="utf-8")
    return load_version(repository, "m")


def exported(
    repository: Path,
    forward: Callable[..., Any],
    example: Mapping[str, Any],
    *,
    config: str = DOUBLING,
    batch: tuple[int, int] | None = (1, 4096),
    keywords: bool = False,
) -> ModelVersion:
    """A model saved by torch.export: `forward(x, ...)`; `batch` bounds its first axis, None fixes it to the example's."""

    model = type("Model", (torch.nn.Module,), {"forward": forward})().eval()
    axis = None if batch is None else {0: torch.export.Dim("batch", min=batch[0], max=batch[1])}
    args, kwargs = ((), dict(example)) if keywords else (tuple(example.values()), None)
    program = torch.export.export(model, args, kwargs, dynamic_shapes=dict.fromkeys(example, axis))
    return _saved(repository, config, lambda folder: torch.export.save(program, folder / "model.pt2"))


def scripted(
    repository: Path, forward: Callable[..., Any], example: Mapping[str, Any], *, config: str = DOUBLING
) -> ModelVersion:
    """The same, traced as TorchScript."""

    model = type("Model", (torch.nn.Module,), {"forward": forward})().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.trace(model, tuple(example.values()), strict=False)
        return _saved(repository, config, lambda folder: module.save(str(folder / "model.pt")))
