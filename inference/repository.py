"""Reads the model repository: `<repository>/<name>/<version>/` has the model and `config.yaml` (Triton's layout)."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_letters

from pydantic import ValidationError

from millstream.inference.config_file import ConfigFile, problems_of, read_config_file
from millstream.inference.config_sections import SECTIONS, Config, RuntimeOptions
from millstream.inference.described.description import Description
from millstream.inference.entries import file_beside
from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.installed import BY_FILE, MLFLOW, SERVERS, all_names, is_known
from millstream.inference.foreign_models import what_to_convert
from millstream.inference.mapping import signature_of
from millstream.inference.model_id import ModelId
from millstream.inference.overrides import Fields
from millstream.inference.server_section import ServerSection
from millstream.inference.signature import Signature
from millstream.inference.sources.listing import folders_in
from millstream.inference.sources.progress import Progress
from millstream.inference.tensor_inputs import Place, listed
from millstream.inference.version_number import version_number
from millstream.schemas.wording import dotted, meant, shown
from millstream.schemas.yaml_file import advice_on_ending

CONFIG_FILE = "config.yaml"
TRITON_FILE = "config.pbtxt"
MAX_LISTED = 10  # names of files in a message
RUNTIME_OPTIONS = {
    "onnx": ("cuda_graphs", "tensorrt_fp16"),
    "torch": ("cuda_graphs", "dtype", "compile", "aoti_package"),
}
"""Executor -> its options in the section `runtime`."""


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One version of a model on disk."""

    name: str
    version: int
    file: Path  # the model's file; for an executor that needs none, config.yaml
    executor: str  # a name, see `executors.installed`
    signature: Signature
    batch_sizes: tuple[int, ...]  # preferred sizes, ascending; empty: powers of two
    length_buckets: tuple[int, ...] = ()  # lengths to pad to, ascending; empty: powers of two
    runtime: RuntimeOptions = field(default_factory=RuntimeOptions)
    server: ServerSection | None = field(default=None, compare=False)  # None: made by a test, without a config.yaml
    described_by: Path | None = None  # the file in place of a config.yaml; None: there is a config.yaml
    max_events: int | None = None  # of a batch; None: no limit of the model's own
    max_wait: float | None = None  # seconds that a batch waits, unless the pipeline file says it; None: unsaid
    remote: bool = False  # fetched from elsewhere: it runs code of its own only if the pipeline file trusts it

    @property
    def id(self) -> ModelId:
        """Its identity in predictions."""
        return ModelId(self.name, self.version)

    @property
    def place(self) -> str:
        """How messages name the model version."""
        return self.place_at(0)

    def place_at(self, line: int) -> str:
        """How messages name the model version, with a line of its config.yaml; 0: none."""
        file = self.described_by or self.file.parent / CONFIG_FILE
        return f"model {self.name} version {self.version} ({file}{f':{line}' if line else ''})"

    def with_time_formats(self, format_of: Callable[[str], str | None]) -> "ModelVersion":
        """See `Signature.with_time_formats`."""
        return replace(self, signature=self.signature.with_time_formats(format_of))


def _mapped_at(*loc: str | int) -> str:
    return f"pipeline file: {dotted(('model', 'inputs', *loc))}"


NAME_VERSION = "write `version: {version}` under `model:`"
"""How to name one of several versions of the primary."""


def load_version(
    repository: Path,
    name: str,
    version: int | None = None,
    fields: Fields | None = None,
    mapped_at: Place = _mapped_at,
    named_at: str = "pipeline file: model",
    environ: Mapping[str, str] | None = None,
    advice: str = NAME_VERSION,
) -> ModelVersion:
    """Find a model version and read its config.yaml.

    Args:
        repository: the model repository's folder.
        name: the model's name, a folder in it.
        version: the number of its folder; None takes the only one.
        fields: of the pipeline file. They replace those in config.yaml.
        mapped_at: returns a place in the mapping of the pipeline file, for messages. The first step is the tensor.
        named_at: the place of the model's name and version in the pipeline file, for messages.
        environ: the environment variables that secrets in config.yaml may be in; None: there are none.
        advice: how to name one of several versions, for messages.

    Raises:
        ModelConfigError: there is no such version, several and none is named, or its config.yaml is wrong.
    """
    folder = _model_folder(repository, name)
    chosen = _chosen(folder, name, version, named_at, advice)
    return read_version(folder / str(chosen), name, chosen, fields, mapped_at, environ)


def read_version(
    place: Path,
    name: str,
    chosen: int,
    fields: Fields | None = None,
    mapped_at: Place = _mapped_at,
    environ: Mapping[str, str] | None = None,
    *,
    remote: bool = False,
) -> ModelVersion:
    """Read the config.yaml of the version in this folder.

    Args:
        place: the version's folder.
        name: the model's name.
        chosen: the version's number.
        fields: see `load_version`.
        mapped_at: see `load_version`.
        environ: see `load_version`.
        remote: whether it was fetched from elsewhere.

    Raises:
        ModelConfigError: the folder has no model, or its config.yaml is wrong.
    """
    files = [place / file for file in BY_FILE if (place / file).is_file()]
    # Checked before config.yaml, because a folder without a model lacks more than its config.
    has_config = (place / CONFIG_FILE).exists() or bool(advice_on_ending(place / CONFIG_FILE))
    described = None if has_config else _described(place)
    if not files and described is None and not has_config:
        raise ModelConfigError(_no_model(name, chosen, place))
    written = read_config_file(place / CONFIG_FILE) if described is None else described.written
    config = _parsed(written)
    if described is not None and described.file is not None:
        files = [described.file] if described.file.is_file() else []
    if not files and (config.executor is None or config.executor in BY_FILE.values()):
        raise ModelConfigError(_no_model(name, chosen, place))
    _check_executor(config.executor, written)
    file = files[0] if described and described.file else _model_file(files, config.executor, written)
    executor = config.executor or BY_FILE[file.name]
    _check_runtime(config, executor, written)
    _check_package(config.runtime, written)
    signature = signature_of(config, fields or {}, mapped_at, written)
    return ModelVersion(
        name,
        chosen,
        file,
        executor,
        signature,
        batch_sizes=tuple(sorted(set(config.batch_sizes))),
        length_buckets=tuple(sorted(set(config.length_buckets))),
        runtime=config.runtime,
        server=ServerSection(written, environ or {}),
        described_by=None if described is None else written.path,
        max_events=None if described is None else described.max_events,
        max_wait=None if described is None else described.max_wait,
        remote=remote,
    )


def _described(place: Path) -> Description | None:
    """What another system's file says in place of a config.yaml; None: there is no such file. Raises ModelConfigError."""
    # Imported here, because they need packages that few models do.
    if (place / "MLmodel").is_file():
        from millstream.inference.described import mlmodel  # noqa: PLC0415

        return mlmodel.described(place)
    beside = next((path for path in (place / TRITON_FILE, place.parent / TRITON_FILE) if path.is_file()), None)
    if beside is None:
        return None
    from millstream.inference.described import triton_config  # noqa: PLC0415

    return triton_config.described(beside, place)


def _no_model(name: str, version: int, place: Path) -> str:
    if foreign := what_to_convert(place):
        return foreign
    if (beside := _model_in(place.parent)) is not None:
        return (
            f"model `{name}` version {version} has no model in {place}, but {beside} beside it: move that into {place}."
        )
    if (folder := place / "model.onnx").is_dir():
        return (
            f"model `{name}` version {version}: {folder} is a folder: expected the model's file there. Copy the file."
        )
    return (
        f"model `{name}` version {version} has no model: expected one of {', '.join(BY_FILE)} in {place}, or in its "
        f"{CONFIG_FILE} an `executor:` that needs none (`millstream docs executors`); found {_files_in(place)}."
        f"{_how_to_name(place)}"
    )


def _how_to_name(place: Path) -> str:
    """What to do with a model's file of another name, with a space before it; empty: there is none, or there are several."""
    others = [path for path in place.iterdir() if path.is_file() and f"model{path.suffix}" in BY_FILE]
    if len(others) != 1:
        return ""
    return f" If {others[0].name} is the model, rename it to model{others[0].suffix}."


def _files_in(place: Path) -> str:
    """What is there beside config.yaml, for messages."""
    others = sorted(path for path in place.iterdir() if path.name != CONFIG_FILE)[:MAX_LISTED]
    named = [path.name if path.exists() else f"{path.name}, a link that leads nowhere" for path in others]
    return ", ".join(named) or "no other file"


def _check_executor(executor: str | None, written: ConfigFile) -> None:
    """Check the name, and that the section `server` is only where an executor reads it. Raises ModelConfigError."""
    if executor is not None and not is_known(executor):
        names = all_names()
        raise ModelConfigError(
            f"{written.at('executor')}: expected {', '.join(names[:-1])} or {names[-1]}, found {shown(executor)}."
            f"{meant(executor, names)} An executor of another package is there once that package is installed beside Millstream "
            f"(`millstream docs executors`)."
        )
    if "server" in written.data and executor in {None, MLFLOW, *BY_FILE.values()}:
        raise ModelConfigError(
            f"{written.at('server')}: only an executor that calls a server has this section, found `executor: "
            f"{executor or 'of the model file'}`. Write `executor: {SERVERS[0]}`, or leave the section out."
        )
    if "request" in written.data and executor != "openai":
        raise ModelConfigError(
            f"{written.at('request')}: only the executor openai has this section, found `executor: "
            f"{executor or 'of the model file'}`. Write `executor: openai`, or leave the section out."
        )


def _check_runtime(config: Config, executor: str, written: ConfigFile) -> None:
    """Check that the executor has the options in the section `runtime`. Raises ModelConfigError."""
    for option in config.runtime.model_fields_set:
        if option in RUNTIME_OPTIONS.get(executor, ()):
            continue
        having = " or ".join(name for name, options in RUNTIME_OPTIONS.items() if option in options)
        advice = (
            " For 16 bits, convert the model (`millstream docs gpu`)."
            if (executor, option) == ("onnx", "dtype")
            else ""
        )
        raise ModelConfigError(
            f"{written.at('runtime', option)}: only the executor {having} has this option, found the executor {executor}. Leave "
            f"it out.{advice}"
        )
    if config.runtime.cuda_graphs and any(entry.dtype == "string" for entry in config.inputs):
        raise ModelConfigError(
            f"{written.at('runtime', 'cuda_graphs')}: a CUDA graph takes no texts, but an input has dtype string. Leave out "
            f"`cuda_graphs`, or let the model take numbers."
        )


def _check_package(runtime: RuntimeOptions, written: ConfigFile) -> None:
    """Check that the package is there, and that no option is meant to change what it computes. Raises ModelConfigError."""
    if runtime.aoti_package is None:
        return
    file_beside(runtime.aoti_package, written.path.parent, written.at("runtime", "aoti_package"))
    for option in ("compile", "dtype"):
        if getattr(runtime, option):
            raise ModelConfigError(
                f"{written.at('runtime', option)}: a package of AOTInductor is compiled already, so this option changes nothing. "
                f"Leave it out, or leave out `aoti_package`."
            )


def _model_folder(repository: Path, name: str) -> Path:
    """The folder of the model's versions."""
    folder = repository / name
    if folder.is_dir():
        return folder
    names = [path.name for path in repository.iterdir() if path.is_dir()] if repository.is_dir() else []
    there = listed(names) if repository.is_dir() else "no such folder"
    if (beside := _model_in(repository)) is not None:
        raise ModelConfigError(
            f"model repository {repository} has no model `{name}`, but {beside.name} itself. A model has a folder of its "
            f"name, and in it one for each version: move {beside.name} and its {CONFIG_FILE} to {folder / '1'}."
        )
    raise ModelConfigError(
        f"model repository {repository} has no model `{name}` (there: {there}).{meant(name, names) or f' Put it at {folder}/1/.'}"
    )


def versions_in(folder: Path, progress: Progress | None = None) -> list[int]:
    """The numbers of the versions in a model's folder, ascending. Raises OSError."""
    numbers = map(version_number, folders_in(folder, progress or Progress()))
    return sorted(number for number in numbers if number is not None)


def no_versions_in(folder: Path, progress: Progress | None = None) -> list[str]:
    """The folders that look like versions, but have leading zeros or too large a number. Nothing reads them. Raises OSError."""
    names = folders_in(folder, progress or Progress())
    return sorted(name for name in names if name.isdecimal() and version_number(name) is None)


def _chosen(folder: Path, name: str, version: int | None, named_at: str, advice: str) -> int:
    """The number of the version that is named, or of the only one."""
    versions = versions_in(folder)
    if not versions or (version is not None and version not in versions):
        wanted = "no version" if version is None else f"no version {version}"
        if not versions and (beside := _model_in(folder)) is not None:
            raise ModelConfigError(
                f"model `{name}` has {wanted} in {folder}, but {beside.name} beside the folders of versions. Each version has a "
                f"folder: move {beside.name} and its {CONFIG_FILE} to {folder / str(version or 1)}."
            )
        raise ModelConfigError(
            f"model `{name}` has {wanted} in {folder} (there: {listed(versions)}).{_misnamed(folder, version, versions)}"
        )
    if version is None and len(versions) > 1:
        if (found := _by_policy(folder, versions)) is not None:
            return found
        raise ModelConfigError(
            f"{named_at}: expected a `version`, because model `{name}` has several in {folder}; found none. Name the one that "
            f"makes the predictions: {advice.replace('{version}', str(_newest_usable(folder, name, versions)))} (there: "
            f"{listed(versions)})."
        )
    return versions[0] if version is None else version


def _misnamed(folder: Path, version: int | None, versions: Sequence[int]) -> str:
    """What to do about a folder that may be the version under another name, with a space before it; empty: none may be."""
    names = sorted(
        name for name in folders_in(folder, Progress()) if version_number(name) is None and not name.startswith(".")
    )
    # `v1` is meant as version 1.
    meant_ones = [name for name in names if name.strip(f"{ascii_letters}_-.") == str(version or 1)]
    if not meant_ones and (versions or not names):
        return ""
    meant_one = (meant_ones or names)[0]
    return (
        f" A version's folder is named by its number alone, and there is `{meant_one}`: if this is the version, rename it to "
        f"`{version or 1}`."
    )


def _newest_usable(folder: Path, name: str, versions: list[int]) -> int:
    """The newest version that has a model and a config.yaml without mistakes; the newest one if none has."""
    for version in reversed(versions):
        with suppress(ModelConfigError):
            return read_version(folder / str(version), name, version).version
    return versions[-1]


def _by_policy(folder: Path, versions: list[int]) -> int | None:
    """The version that Triton's version policy chooses; None: none, or several. Raises ModelConfigError."""
    path = folder / TRITON_FILE
    if not path.is_file() or any((folder / str(version) / CONFIG_FILE).is_file() for version in versions):
        return None
    from millstream.inference.described.triton_config import chosen_by_policy  # noqa: PLC0415

    return chosen_by_policy(path.read_bytes(), str(path), versions)


def _model_in(folder: Path) -> Path | None:
    """A model's file directly in this folder."""
    return next((folder / file for file in BY_FILE if (folder / file).is_file()), None)


def _model_file(files: list[Path], executor: str | None, written: ConfigFile) -> Path:
    if executor is not None and executor not in BY_FILE.values():
        return written.path
    fitting = [file for file in files if executor in {None, BY_FILE[file.name]}]
    if len(fitting) == 1:
        return fitting[0]
    there = ", ".join(file.name for file in files)
    if executor is None:
        raise ModelConfigError(
            f"{written.path.parent} has several models: {there}. Say in {CONFIG_FILE} which one runs: `executor: "
            f"{BY_FILE[files[0].name]}`, for instance; or take the others away."
        )
    own = " or ".join(name for name, runs in BY_FILE.items() if runs == executor)
    raise ModelConfigError(
        f"{written.at('executor')}: `executor: {executor}` needs one file {own} beside it, and there is {there}."
    )


def _parsed(file: ConfigFile) -> Config:
    try:
        return Config.model_validate(file.data)
    except ValidationError as error:
        problems = problems_of(error, file, SECTIONS)
    # Raised outside of `except`, so that the traceback doesn't show pydantic's error too.
    raise ModelConfigError("\n".join(problems))
