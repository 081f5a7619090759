"""What is known of the versions of a pipeline's model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorInput, TensorOutput
from millstream.inference.sources.cached import CachedSource
from millstream.inference.sources.checksums import digest_of, sums_of
from millstream.inference.sources.folder import FolderSource


@dataclass(frozen=True, slots=True)
class Known:
    """One version."""

    name: str  # of the model
    version: int
    aliases: tuple[str, ...]
    bytes: int | None  # of all its files; None: the repository doesn't say, and the version isn't on this machine
    digest: str | None  # checksum of all its files; None: the version isn't on this machine
    folder: Path | None  # on this machine; None: it isn't there
    exists: bool = True  # False: an alias names it, and the repository lacks it


def known_versions(models: PipelineModels) -> list[Known]:
    """All versions of the primary's model, ascending, also those that only an alias names. None is fetched or read.

    Raises:
        ModelConfigError: there is no such model, or the credentials are refused.
        SourceUnavailable: the repository is away.
    """
    source, name = models.source, models.name
    fingerprints = source.versions(name)
    by_version: dict[int, list[str]] = {}
    for alias, version in sorted(source.aliases(name).items()):
        by_version.setdefault(version, []).append(alias)
    sizes = source.sizes(name) if isinstance(source, CachedSource) else {}
    found = []
    for version in sorted({*fingerprints, *by_version}):
        digest = folder = None
        if version not in fingerprints:
            found.append(Known(name, version, tuple(by_version[version]), None, None, None, exists=False))
            continue
        if isinstance(source, CachedSource):
            digest = source.digest(name, version, fingerprints[version])
            folder = None if digest is None else source.folder(digest)
        elif isinstance(source, FolderSource):
            folder = source.folder(name, version)
        size = sizes.get(version) or (None if folder is None else _bytes(folder))
        found.append(Known(name, version, tuple(by_version.get(version, ())), size, digest, folder))
    return found


def known_version(models: PipelineModels, version: int, folder: Path) -> Known:
    """What is known of a version that is on this machine. Raises as `known_versions` does."""
    aliases = sorted(alias for alias, named in models.source.aliases(models.name).items() if named == version)
    return Known(models.name, version, tuple(aliases), _bytes(folder), digest_of(sums_of(folder)), folder)


def signature_lines(model: ModelVersion) -> dict[str, list[str]]:
    """The inputs and the outputs of a version, a line each."""
    return {
        "inputs": [_input(entry) for entry in model.signature.inputs],
        "outputs": [_output(entry) for entry in model.signature.outputs],
    }


def _input(entry: TensorInput) -> str:
    shape: tuple[Any, ...] = (f"at most {entry.max_length}",) if entry.max_length else entry.shape
    return f"{entry.tensor}: {entry.dtype} [{', '.join(map(str, shape))}] from {', '.join(entry.sources) or '(the lengths)'}"


def _output(entry: TensorOutput) -> str:
    more = [
        f"{len(entry.classes)} classes" if entry.classes else "",
        f"top {entry.top}" if entry.top else "",
        f"threshold {entry.threshold:g}" if entry.threshold is not None else "",
    ]
    remarks = ", ".join(filter(None, more))
    return f"{entry.name}{f' ({remarks})' if remarks else ''}"


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
