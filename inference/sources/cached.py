"""A remote source of models, whose versions are fetched into the cache of this machine."""

import errno
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from millstream.inference.errors import ModelConfigError, SourceUnavailable
from millstream.inference.sources.cache import VersionCache
from millstream.inference.sources.checksums import COMPILED, check_sums
from millstream.inference.sources.interface import RemotePlace, RemoteVersion, Wanted
from millstream.inference.sources.no_version import no_such_model, no_such_version
from millstream.inference.sources.progress import QUIET_TIMEOUT, BoundedCalls, Progress
from millstream.inference.sources.wanted import version_of

T = TypeVar("T")

_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}


class CachedSource:
    """See `ModelSource`."""

    remote = True

    def __init__(self, place: RemotePlace, cache: VersionCache, quiet: float = QUIET_TIMEOUT) -> None:
        """Args:
        place: where the models are.
        cache: keeps what is fetched.
        quiet: see `QUIET_TIMEOUT`.
        """
        self._place = place
        self._cache = cache
        self._calls = BoundedCalls(f"model repository {place.url}", quiet)

    @property
    def url(self) -> str:
        """Of the remote place, without secrets."""
        return self._place.url

    def versions(self, name: str) -> Mapping[int, str]:
        """See `ModelSource`."""
        found = self._call(lambda _: self._place.versions(name))
        if not found:
            raise no_such_model(name, self._place.url, self._call(lambda _: self._place.names()))
        fingerprints = {number: version.fingerprint for number, version in found.items()}
        self._remember(name, versions={str(number): text for number, text in fingerprints.items()})
        return fingerprints

    def aliases(self, name: str) -> Mapping[str, int]:
        """See `ModelSource`."""
        found = self._call(lambda _: self._place.aliases(name))
        self._remember(name, aliases=dict(found))
        return found

    def beside(self, name: str, file: str) -> bytes | None:
        """See `ModelSource`."""
        return self._call(lambda _: self._place.beside(name, file))

    def sizes(self, name: str) -> Mapping[int, int | None]:
        """Version -> bytes in the remote place; None: it doesn't say. Raises as `versions` does."""
        return {number: version.size for number, version in self._call(lambda _: self._place.versions(name)).items()}

    def fetch(self, name: str, version: int) -> Path:
        """See `ModelSource`."""
        found = self._call(lambda _: self._place.version(name, version))
        if found is None:
            raise no_such_version(name, version, self._place.url, list(self.versions(name)))
        self._remember(name, versions={**self._known(name), str(version): found.fingerprint})
        key = self._key(name, version, found.fingerprint)
        if (there := self._cache.get(key)) is not None:
            return there
        place = f"model `{name}` version {version} of {self._place.url}"
        return self._cache.add(key, found.size, lambda folder: self._fill(folder, name, version, found, place), place)

    def read(self, call: Callable[[Progress], T]) -> T:
        """See `ModelSource`. The cache is on this machine."""
        return call(Progress())

    def release(self, folder: Path) -> None:
        """See `ModelSource`."""
        self._cache.release(folder)

    def at_hand(self, name: str, wanted: Wanted) -> tuple[int, Path] | None:
        """See `ModelSource`."""
        known = self._known(name)
        try:
            version = version_of(
                name,
                wanted,
                self._place.url,
                versions=lambda: {int(number): text for number, text in known.items()},
                aliases=lambda: dict(self._cache.known(self._listing(name)).get("aliases", {})),
            )
        except ModelConfigError:
            return None
        folder = self._cache.get(self._key(name, version, known.get(str(version), "")))
        return None if folder is None else (version, folder)

    def digest(self, name: str, version: int, fingerprint: str) -> str | None:
        """The checksum of a version that is in the cache; None: it is not."""
        return self._cache.digest(self._key(name, version, fingerprint))

    def folder(self, digest: str) -> Path:
        """Where a version with this checksum is in the cache, if it is there."""
        return self._cache.folder / "content" / digest

    def _fill(self, folder: Path, name: str, version: int, found: RemoteVersion, place: str) -> None:
        """Write a version into an empty folder, and check it."""
        self._call(lambda progress: self._place.download(name, version, folder, progress))
        for path in list(
            folder.rglob(COMPILED)
        ):  # no checksum counts it, and Python would run it in place of the source
            shutil.rmtree(path, ignore_errors=True)
        check_sums(folder, place)
        if self._call(lambda _: self._place.version(name, version)) != found:
            raise SourceUnavailable(f"{place} was changed while it was fetched. It is fetched again.")

    def _call(self, call: Callable[[Progress], T]) -> T:
        try:
            return self._calls.run(call)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
                raise
            raise self._place.explained(error) from None

    def _key(self, name: str, version: int, fingerprint: str) -> str:
        return f"{self._place.url}\n{name}\n{version}\n{fingerprint}"

    def _listing(self, name: str) -> str:
        return f"{self._place.url}\n{name}"

    def _known(self, name: str) -> dict[str, str]:
        return dict(self._cache.known(self._listing(name)).get("versions", {}))

    def _remember(self, name: str, **parts: Mapping[str, object]) -> None:
        """Keep what the place said, for a start while it is away."""
        self._cache.remember(self._listing(name), {**self._cache.known(self._listing(name)), **parts})
