"""The folders of a model's versions: one as the model of a pipeline, and a new one beside it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from millstream.consumers.errors import WorkerError
from millstream.inference.errors import NotOptimized
from millstream.inference.executors.installed import BY_FILE
from millstream.inference.optimizing.conversion import external_data
from millstream.inference.repository import CONFIG_FILE, ModelVersion
from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.pipeline import Pipeline

REPORT_FILES = ("optimize.md", "optimize.json")
_PIPELINE = """\
name: optimize
kafka: {{bootstrap: "127.0.0.1:9092"}}
input: {{topic: events, format: json}}
output: {{topic: predictions}}
model: {{name: {name!r}, version: {version}, repository: {repository!r}}}
"""


def is_version(folder: Path) -> bool:
    """Whether the folder is a version of a model. Raises WorkerError if it has versions in it, so one must be named."""
    if any((folder / name).is_file() for name in (*BY_FILE, CONFIG_FILE)):
        return True
    if any(folder.glob(f"[0-9]*/{CONFIG_FILE}")):
        raise WorkerError(f"{folder}: expected one version of the model: name its folder, such as {folder}/1.")
    return False


def pipeline_of(folder: Path) -> Pipeline:
    """A pipeline for a version of a model, which reads JSON without a schema.

    Raises:
        WorkerError: the folder's name is no version.
    """
    whole = folder.absolute()
    if not (whole.name.isdecimal() and int(whole.name)):
        raise WorkerError(
            f"{folder}: expected a folder such as models/my-model/1, whose name is the version; found {whole.name!r}. Name the "
            "pipeline file instead, or move the model there."
        )
    with TemporaryDirectory() as made:
        file = Path(made) / "pipeline.yaml"
        text = _PIPELINE.format(name=whole.parent.name, version=int(whole.name), repository=str(whole.parent.parent))
        file.write_text(text.replace("${", "$${"), encoding="utf-8")  # in a path, it isn't a variable
        return load_pipeline(file, {})


@contextmanager
def new_version(model: ModelVersion, target: Path) -> Iterator[Path]:
    """A folder that becomes the new version once the body has filled it: all of it at once, or nothing.

    It has all files of the old version, but the model and the reports.

    Args:
        model: the old version.
        target: the new version's folder, beside that of the old one.

    Raises:
        NotOptimized: the folder can't be written.
    """
    source = model.file.parent
    left_out = {*BY_FILE, *REPORT_FILES, *external_data(model.file)}
    try:
        with TemporaryDirectory(dir=source.parent, prefix=f".{target.name}-") as made:
            folder = Path(made) / target.name
            shutil.copytree(source, folder, ignore=lambda _, names: left_out.intersection(names))
            yield folder
            folder.rename(target)
    except shutil.Error as error:  # it lists each file: from, to, and why
        raise NotOptimized(f"{target} can't be written: {error.args[0][0][2]}.") from None
    except OSError as error:
        raise NotOptimized(f"{target} can't be written: {error.strerror}.") from None
