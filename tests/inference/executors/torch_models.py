"""Tiny torch models, written into a model repository. Only where torch is installed."""

import importlib
import importlib.util
import io
import json
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from millstream.inference.repository import ModelVersion, load_version
from tests.inference.doubling import DOUBLING

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


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
    length: tuple[int, int] | None = None,
) -> ModelVersion:
    """A model saved by torch.export: `forward(x, ...)`.

    `batch` bounds its first axis and `length` its second one; None fixes it to the example's.
    """
    program = program_of(forward, example, batch=batch, keywords=keywords, length=length)
    return _saved(repository, config, lambda folder: torch.export.save(program, folder / "model.pt2"))


def program_of(
    forward: Callable[..., Any],
    example: Mapping[str, Any],
    *,
    batch: tuple[int, int] | None,
    keywords: bool = False,
    length: tuple[int, int] | None = None,
) -> Any:
    """See `exported`."""
    model = type("Model", (torch.nn.Module,), {"forward": forward})().eval()
    axes = {} if batch is None else {0: torch.export.Dim("batch", min=batch[0], max=batch[1])}
    if length is not None:
        axes[1] = torch.export.Dim("length", min=length[0], max=length[1])
    args, kwargs = ((), dict(example)) if keywords else (tuple(example.values()), None)
    return torch.export.export(model, args, kwargs, dynamic_shapes=dict.fromkeys(example, axes or None))


def packaged(repository: Path, program: Any, package: Path, *, config: str = DOUBLING) -> ModelVersion:
    """A program saved by torch.export, with a package beside it that AOTInductor compiled."""

    def save(folder: Path) -> None:
        torch.export.save(program, folder / "model.pt2")
        shutil.copy(package, folder / "compiled.pt2")

    return _saved(repository, f"{config}runtime: {{aoti_package: compiled.pt2}}\n", save)


def compiled(program: Any, file: Path) -> Path:
    """Compile the program into this file."""
    importlib.import_module("torch._inductor").aoti_compile_and_package(program, package_path=str(file))
    return file


def scripted(
    repository: Path, forward: Callable[..., Any], example: Mapping[str, Any], *, config: str = DOUBLING
) -> ModelVersion:
    """The same, traced as TorchScript."""

    model = type("Model", (torch.nn.Module,), {"forward": forward})().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.trace(model, tuple(example.values()), strict=False)
        return _saved(repository, config, lambda folder: module.save(str(folder / "model.pt")))


class Touching:
    """Unpickled, makes a file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._file,)


def with_pickle_that_touches(archive: Path, file: Path) -> None:
    """Put a pickle into an exported program's sample inputs that makes `file`; all torch versions load these."""
    buffer = io.BytesIO()
    torch.save(((Touching(file),), {}), buffer)
    _change(
        archive,
        lambda name, content: buffer.getvalue() if name.endswith("inputs.pt") or "sample_inputs" in name else content,
    )


def with_expression_that_touches(archive: Path, file: Path) -> None:
    """Put an expression into an exported program's sizes that makes `file`; its pickles stay as they are."""
    expression = json.dumps(f"__import__('pathlib').Path({str(file)!r}).touch() or 5")

    def changed(name: str, content: bytes) -> bytes:
        if not name.endswith(".json"):
            return content
        return re.sub(rb'("expr_str": ?)"[^"]*"', lambda found: found[1] + expression.encode(), content)

    _change(archive, changed)


def _change(archive: Path, changed: Callable[[str, bytes], bytes]) -> None:
    with zipfile.ZipFile(archive) as written:
        members = {name: changed(name, written.read(name)) for name in written.namelist()}
    with zipfile.ZipFile(archive, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
