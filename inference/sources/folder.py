"""Models in a folder of this machine: `<folder>/<name>/<version>/`. They are read where they lie."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from millstream.inference.errors import ModelConfigError, SourceUnavailable
from millstream.inference.repository import TRITON_FILE, versions_in
from millstream.inference.sources.aliases import ALIASES_FILE, parsed_aliases
from millstream.inference.sources.checksums import COMPILED, check_sums, sha256_of
from millstream.inference.sources.interface import Wanted
from millstream.inference.sources.listing import folders_in
from millstream.inference.sources.no_version import no_such_model, no_such_version
from millstream.inference.sources.progress import QUIET_TIMEOUT, BoundedCalls, Progress

T = TypeVar("T")

_BESIDE = (TRITON_FILE,)  # files beside the versions that belong to each of them


class FolderSource:
    """See `ModelSource`."""

    remote = False

    def __init__(self, folder: Path, quiet: float = QUIET_TIMEOUT) -> None:
        """Args:
        folder: the model repository. It may be on a network drive, which may hang.
        quiet: see `QUIET_TIMEOUT`.
        """
        self._folder = folder
        self._calls = BoundedCalls(f"model repository {folder}", quiet)
        # path -> (device, inode, size and time of change, checksum): only files that changed are read again
        self._sums: dict[Path, tuple[tuple[int, ...], str]] = {}

    def versions(self, name: str) -> Mapping[int, str]:
        """See `ModelSource`. A fingerprint is computed when it is looked up."""
        folder = self._folder / name
        try:
            numbers = self._bounded(partial(versions_in, folder))
        except (FileNotFoundError, NotADirectoryError):
            raise no_such_model(name, str(self._folder), self._bounded(self._names)) from None
        return _Fingerprints(self, name, numbers)

    def aliases(self, name: str) -> Mapping[str, int]:
        """See `ModelSource`."""
        content = self.beside(name, ALIASES_FILE)
        return {} if content is None else parsed_aliases(content, str(self._folder / name / ALIASES_FILE))

    def beside(self, name: str, file: str) -> bytes | None:
        """See `ModelSource`."""
        path = self._folder / name / file
        try:
            return self._bounded(lambda _: path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def fetch(self, name: str, version: int) -> Path:
        """See `ModelSource`."""
        folder = self.folder(name, version)
        if not self._bounded(lambda _: folder.is_dir()):
            raise no_such_version(name, version, str(self._folder), list(self.versions(name)))
        place = f"model `{name}` version {version} ({folder})"
        try:
            self._bounded(lambda progress: check_sums(folder, place, partial(self._sum, progress=progress)))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise SourceUnavailable(
                f"{place}: {error.filename} vanished while the version was checked. Is somebody removing or replacing it?"
            ) from None
        return folder

    def read(self, call: Callable[[Progress], T]) -> T:
        """See `ModelSource`."""
        return self._bounded(call)

    def folder(self, name: str, version: int) -> Path:
        """Where a version is, if it is there."""
        return self._folder / name / str(version)

    def release(self, folder: Path) -> None:
        """See `ModelSource`."""

    def at_hand(self, name: str, wanted: Wanted) -> tuple[int, Path] | None:  # noqa: ARG002
        """See `ModelSource`. A folder that can't be read has no copy."""
        return None

    def fingerprint(self, name: str, version: int) -> str:
        """The checksum of all files of a version. Raises KeyError: it is gone; SourceUnavailable: a file can't be read."""
        folder = self.folder(name, version)
        try:
            return self._bounded(lambda progress: self._fingerprint(folder, progress))
        except FileNotFoundError:
            raise KeyError(version) from None

    def _bounded(self, call: Callable[[Progress], T]) -> T:
        """What the call returns.

        Raises:
            FileNotFoundError, NotADirectoryError: a file or folder is not there.
            ModelConfigError: this user may not read a file or folder.
            SourceUnavailable: the folder does not answer, or answers with an error.
        """
        try:
            return self._calls.run(call)
        except (FileNotFoundError, NotADirectoryError):
            raise
        except PermissionError as error:
            raise ModelConfigError(f"{error.filename or self._folder} can't be read: {error.strerror}.") from None
        except OSError as error:
            raise SourceUnavailable(f"{error.filename or self._folder} can't be read: {error.strerror}.") from None

    def _fingerprint(self, folder: Path, progress: Progress) -> str:
        digest = hashlib.sha256()
        beside = [path for each in _BESIDE if (path := folder.parent / each).is_file()]
        own = sorted(path for path in folder.rglob("*") if path.is_file() and COMPILED not in path.parts)
        for path in [*own, *beside]:
            digest.update(f"{os.path.relpath(path, folder)}\0{self._sum(path, progress)}\n".encode())
        return digest.hexdigest()

    def _sum(self, path: Path, progress: Progress) -> str:
        state = path.stat()
        progress.add(0)
        seen = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        before = self._sums.get(path)
        if before is None or before[0] != seen:
            before = self._sums[path] = (seen, sha256_of(path, progress.add))
        return before[1]

    def _names(self, progress: Progress) -> list[str] | None:
        return list(folders_in(self._folder, progress)) if self._folder.is_dir() else None


class _Fingerprints(Mapping[int, str]):
    """Version -> fingerprint. Reading all files of a thousand versions would take minutes, and one of them is wanted."""

    def __init__(self, source: FolderSource, name: str, numbers: list[int]) -> None:
        self._source = source
        self._name = name
        self._numbers = dict.fromkeys(numbers)

    def __getitem__(self, version: int) -> str:
        if version not in self._numbers:
            raise KeyError(version)
        return self._source.fingerprint(self._name, version)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, version: object) -> bool:
        return version in self._numbers
