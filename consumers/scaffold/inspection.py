"""Looks at a model's file: its executor, its inputs and its outputs."""

from pathlib import Path
from zipfile import is_zipfile

from millstream.consumers.errors import WorkerError
from millstream.consumers.scaffold.exported_program import exported_program
from millstream.consumers.scaffold.model_file import ModelFile, ModelInput
from millstream.inference.executors.axes import SECOND_AXIS
from millstream.inference.executors.installed import BY_FILE
from millstream.inference.executors.torch_package import is_package
from millstream.inference.foreign_models import (
    WITHOUT_MAPS,
    advice_on_doubles,
    how_to_convert,
    not_as_named,
    what_it_is,
    what_to_convert,
)
from millstream.inference.onnx_types import DTYPES
from millstream.schemas.file_kind import FileKind, file_kind


def look_at(path: Path) -> ModelFile:
    """Look at a model's file, or at the one in a folder.

    Raises:
        WorkerError: there is no model, or none that an executor runs. The message says how to convert it.
    """
    if path.is_dir():
        there = [path / name for name in BY_FILE if (path / name).is_file()]
        if len(there) != 1:
            if not there and (foreign := what_to_convert(path)):
                raise WorkerError(foreign)
            found = ", ".join(sorted(each.name for each in path.iterdir())[:10]) or "nothing"
            raise WorkerError(f"{path}: expected one of {', '.join(BY_FILE)} in the folder, found {found}.")
        path = there[0]
    if not path.is_file():
        raise WorkerError(f"{path}: there is no such file. Name the model's file, such as model.onnx.")
    suffix = path.suffix.lower()
    if suffix == ".onnx":
        return _onnx(path)
    if suffix in {".pt2", ".pt"} and is_zipfile(path):
        _check_archive(path)
    if suffix == ".pt2":
        program = exported_program(path)
        if flat := [entry.tensor for entry in program.inputs if not entry.shape]:
            raise WorkerError(f"{path}: input {flat[0]} has only the axis of the events. {SECOND_AXIS}")
        return program
    if suffix in {".pt", ".py"}:
        # TorchScript and Python classes run code when they are loaded, so they aren't loaded here.
        return ModelFile(path, f"model{suffix}", [], [])
    raise WorkerError(f"{path}: {how_to_convert(suffix) or _no_model(path)}")


def _check_archive(path: Path) -> None:
    """Refuse what torch wrote, but no executor runs as `path`. Raises WorkerError."""
    if is_package(path):
        raise WorkerError(
            f"{path} is compiled by AOTInductor, and states no inputs. Name the program that torch.export.save wrote. Then put "
            f"the package beside it: `runtime: {{aoti_package: {path.name}}}` in config.yaml (`millstream docs models`)."
        )
    if wrong := not_as_named(path):
        raise WorkerError(f"{path}: {wrong}")


def _no_model(path: Path) -> str:
    kind = file_kind(path)
    found = kind or f"a file that ends in {path.suffix.lower() or 'nothing'}"
    sample = " `--model` takes the model, and `--sample` events for it." if kind is FileKind.EVENTS else ""
    return f"expected one of {', '.join(BY_FILE)}, found {found} (`millstream docs models`).{sample}"


def _onnx(path: Path) -> ModelFile:
    import onnxruntime  # noqa: PLC0415  (slow to import)

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions share no base class of their own
        said = what_it_is(path, error) or f"ONNX Runtime says: {str(error).splitlines()[0].rstrip('.')}."
        raise WorkerError(f"{path} can't be loaded: {said} {advice_on_doubles(said)}".rstrip()) from None
    inputs = []
    for entry in session.get_inputs():
        if entry.type not in DTYPES:
            raise WorkerError(
                f"{path}: input {entry.name} has type {entry.type}, which no event field can fill. Export it otherwise."
            )
        if len(entry.shape) < 2 or 0 in entry.shape:
            raise WorkerError(
                f"{path}: input {entry.name} has shape {entry.shape}: expected at least two axes, the first one for the "
                "events of a batch, and no empty one. Export the model with such an input."
            )
        shape = tuple(size if isinstance(size, int) else None for size in entry.shape[1:])
        inputs.append(ModelInput(entry.name, DTYPES[entry.type], shape))
    outputs = session.get_outputs()
    odd = next((entry for entry in outputs if entry.type not in DTYPES), None)
    if odd is not None and "seq" in odd.type:
        raise WorkerError(
            f"{path}: output {odd.name} is a list of maps, which no prediction can hold. Convert the model with "
            f"{WITHOUT_MAPS}."
        )
    return ModelFile(path, "model.onnx", inputs, [entry.name for entry in outputs])
