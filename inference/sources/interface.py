"""What the parts of this package pass on: a source of models, a remote place, and what a remote place lists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from millstream.inference.sources.progress import Progress

T = TypeVar("T")

LATEST = "latest"
"""The version with the highest number, whichever it is."""
Wanted = int | str | None
"""Which version a pipeline names: its number, `latest`, an alias, or none: the only one."""


class ModelSource(Protocol):
    """Where model versions come from. Threads may share it."""

    remote: bool  # whether versions are fetched from elsewhere, so that their author need not be the worker's operator

    def versions(self, name: str) -> Mapping[int, str]:
        """Each version and its fingerprint, which changes if and only if the version's content changes.

        Raises:
            ModelConfigError: there is no such model, or the credentials are refused.
            SourceUnavailable: the source does not answer.
        """

    def aliases(self, name: str) -> Mapping[str, int]:
        """Alias -> version. Raises as `versions` does."""

    def beside(self, name: str, file: str) -> bytes | None:
        """A file beside the model's versions; None: it is not there. Raises as `versions` does."""

    def fetch(self, name: str, version: int) -> Path:
        """The folder with the whole version, checked against its checksums. It stays until `release`.

        Raises:
            ModelConfigError: there is no such version, or its files are not those that its checksums name.
            SourceUnavailable: the source does not answer, or there is no room on the disk.
        """

    def read(self, call: Callable[[Progress], T]) -> T:
        """What the call returns, which reads small files of a version that `fetch` gave, or lists folders.

        Raises:
            SourceUnavailable: the files lie in the repository itself, and it does not answer.
            Exception: the call's own.
        """

    def release(self, folder: Path) -> None:
        """Tell that this process no longer uses a folder that `fetch` gave. Call it once for each call of `fetch`."""

    def at_hand(self, name: str, wanted: Wanted) -> tuple[int, Path] | None:
        """The wanted version as this machine knew it last, without a question to the source; None: it is not here.

        As with `fetch`, the folder stays until `release`.
        """


@dataclass(frozen=True, slots=True)
class RemoteVersion:
    """One version in a remote place."""

    fingerprint: str  # changes with the content
    size: int | None  # bytes; None: the place does not say


class RemotePlace(Protocol):
    """A place elsewhere that keeps models. Threads may share it. Each call may hang, see `BoundedCalls`."""

    url: str  # of the place, without secrets: for messages, and as its name in the cache

    def versions(self, name: str) -> Mapping[int, RemoteVersion]:
        """All versions of a model; empty: there is no such model."""

    def version(self, name: str, number: int) -> RemoteVersion | None:
        """One version; None: it is not there."""

    def aliases(self, name: str) -> Mapping[str, int]:
        """Alias -> version."""

    def beside(self, name: str, file: str) -> bytes | None:
        """The content of a small file beside the versions; None: it is not there."""

    def names(self) -> list[str]:
        """Some of the models' names, for messages."""

    def download(self, name: str, number: int, target: Path, progress: Progress) -> None:
        """Write all files of a version into the empty folder `target`. `progress` hears of each piece."""

    def explained(self, error: Exception) -> Exception:
        """A failed call's error as ModelConfigError or SourceUnavailable, in plain words, without secrets."""
