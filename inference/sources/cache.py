"""The cache of fetched versions, which all workers of a machine share.

    content/<digest>/        a whole version, under the checksum of all its files
    content/<digest>.json    its files with their checksums; the file's time says when the version was last used
    keys/<key>.json          which content a version of a repository has
    known/<repository>.json  what the repository listed last, for a start while it is away
    partial/                 what is being fetched, and what is being deleted
    locks/                   one for each content in use, for each version being fetched, and one for the sizes

Content appears by a rename, when all of it is on the disk. A process that uses content holds its lock, so that no other one
deletes it.
"""

import errno
import logging
import os
import shutil
import stat
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from millstream.inference.errors import ModelConfigError, SourceUnavailable
from millstream.inference.sources.checksums import digest_of, sums_of
from millstream.inference.sources.durable import read_record, sync_folder, sync_tree, write_record
from millstream.inference.sources.file_lock import lock, locked, remove, unlock

log = logging.getLogger(__name__)

FETCH_TIMEOUT = 3600.0  # seconds that another process may take to fetch the same version
SIZES_TIMEOUT = 600.0  # seconds that another process may take to delete old versions
_FOLDERS = ("content", "keys", "known", "partial", "locks")
_FULL = {errno.ENOSPC, errno.EDQUOT}
_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}


@dataclass(frozen=True, slots=True)
class Content:
    """A version in the cache."""

    digest: str
    folder: Path
    sums: Mapping[str, str]  # path -> checksum
    bytes: int
    used: float  # when a process last took it, seconds since 1970


class VersionCache:
    """See the module. Threads may share it, and processes the folder."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """Args:
        folder: of the cache; it is created if it is missing.
        max_bytes: of all versions together. Versions in use are never deleted.
        """
        self.folder = folder
        self.max_bytes = max_bytes
        self._held: dict[Path, list[int]] = {}  # folder -> the locks of this process, one for each use
        self._guard = threading.Lock()

    def get(self, key: str) -> Path | None:
        """The version that was added under this key, unchanged since then; None: it isn't here. `release` it after use.

        Raises:
            ModelConfigError: another user may write to the cache.
            SourceUnavailable: the version is damaged and in use, or another process holds its lock.
        """
        self._check_owner()
        record = read_record(self._at("keys", key))
        digest = record.get("digest")
        return self._taken(digest) if isinstance(digest, str) else None

    def add(self, key: str, size: int | None, fill: Callable[[Path], None], place: str) -> Path:
        """Fetch a version, unless another process has done so meanwhile. `release` it after use.

        Args:
            key: names the version and its content; another content has another key.
            size: bytes that it will take; None: not known.
            fill: writes all files into an empty folder.
            place: how messages name the version.

        Raises:
            ModelConfigError: it is larger than the cache; or an error of `fill`.
            SourceUnavailable: there is no room on the disk, or other processes use all of the cache.
        """
        with self._writing(place):
            self._make_folders()
            with locked(self._at("locks", f"{key}"), FETCH_TIMEOUT, f"it fetches {place}"):
                if (there := self.get(key)) is not None:
                    return there
                return self._added(key, size, fill, place)

    def release(self, folder: Path) -> None:
        """Tell that this process no longer uses a folder that `get` or `add` gave."""
        with self._guard:
            if descriptors := self._held.get(folder):
                unlock(descriptors.pop())
            if not descriptors:
                self._held.pop(folder, None)

    def contents(self) -> list[Content]:
        """All versions, the least recently used first."""
        return sorted(self._contents(), key=lambda each: each.used)

    def digest(self, key: str) -> str | None:
        """The checksum of the version under this key; None: it isn't here. It is neither checked nor taken into use."""
        digest = read_record(self._at("keys", key)).get("digest")
        return digest if isinstance(digest, str) and (self._content(digest)).is_dir() else None

    def remember(self, name: str, known: Mapping[str, Any]) -> None:
        """Keep what a repository listed. Without room on the disk, what was known before stays."""
        path = self._at("known", name)
        if read_record(path) == known:
            return
        with suppress(OSError):
            self._make_folders()
            write_record(path, known)

    def known(self, name: str) -> Mapping[str, Any]:
        """What `remember` kept; empty: nothing."""
        return read_record(self._at("known", name))

    def _at(self, folder: str, name: str) -> Path:
        ending = "" if folder == "locks" else ".json"
        return self.folder / folder / f"{sha256(name.encode()).hexdigest()}{ending}"

    def _content(self, digest: str) -> Path:
        return self.folder / "content" / digest

    def _lock_of(self, digest: str) -> Path:
        return self.folder / "locks" / f"content-{digest}"

    def _make_folders(self) -> None:
        # Who can write here can replace a model, so only this user may.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in _FOLDERS:
            (self.folder / name).mkdir(mode=0o700, exist_ok=True)

    def _check_owner(self) -> None:
        """Check that only this user, or root, can have written what lies in the cache. Raises ModelConfigError."""
        for name in ("content", "keys"):
            folder = self.folder / name
            try:
                state = folder.stat()
            except OSError:  # it isn't there yet, or the next step reports it
                continue
            # A group may write: Kubernetes makes a volume with `fsGroup` so.
            if state.st_uid not in {0, os.geteuid()} or state.st_mode & stat.S_IWOTH:
                raise ModelConfigError(
                    f"{folder} belongs to user {state.st_uid} and has mode {stat.S_IMODE(state.st_mode):o}, so others than this "
                    f"user ({os.geteuid()}) can replace the models in it. Delete it, or name another folder: `model.cache` in "
                    f"the pipeline file."
                )

    def _taken(self, digest: str) -> Path | None:
        """Take content into use: lock it, then look whether it is there and whole."""
        folder = self._content(digest)
        if not folder.is_dir():
            return None
        descriptor = self._in_use(digest)
        if not self._is_whole(digest):
            unlock(descriptor)
            if not self._drop(digest):
                raise SourceUnavailable(
                    f"{folder} is damaged, and another process uses it. Restart that worker; it is fetched again then."
                )
            return None
        with self._guard:
            self._held.setdefault(folder, []).append(descriptor)
        with suppress(OSError):  # a folder that may only be read: the order of use is then unknown
            os.utime(folder.with_suffix(".json"))
        return folder

    def _in_use(self, digest: str) -> int:
        """Keep other processes from deleting content. Returns what to `unlock`."""
        try:
            descriptor = lock(self._lock_of(digest), shared=True, timeout=SIZES_TIMEOUT)
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise SourceUnavailable(f"{self._lock_of(digest)} can't be made: {error.strerror}.") from None
            # A cache that may only be read, as in the image of a container: nobody deletes anything.
            return os.open(self.folder, os.O_RDONLY)
        if descriptor is None:
            raise SourceUnavailable(
                f"{self._lock_of(digest)}: another process has held this lock for too long. End it."
            )
        return descriptor

    def _is_whole(self, digest: str) -> bool:
        """Whether the files are those that were fetched: a disk may lose some of them when the machine fails."""
        folder = self._content(digest)
        try:
            whole = folder.is_dir() and digest_of(sums_of(folder)) == digest
        except (OSError, ModelConfigError):
            whole = False
        if folder.is_dir() and not whole:
            log.warning("%s was changed or damaged since it was fetched: it is fetched again", folder)
        return whole

    def _added(self, key: str, size: int | None, fill: Callable[[Path], None], place: str) -> Path:
        with self._part() as part:
            with self._sizes():
                self._make_room(size or 0, place)
            fill(part)
            sums = sums_of(part)
            digest = digest_of(sums)
            sync_tree(part)
            while True:
                self._move_in(part, digest, sums, place)
                if (folder := self._taken(digest)) is not None:
                    try:
                        write_record(self._at("keys", key), {"digest": digest, "version": place})
                    except BaseException:
                        self.release(folder)
                        raise
                    return folder
                if not part.is_dir():  # moved in, and deleted by another process that makes room
                    raise SourceUnavailable(
                        f"{place} was fetched, but other versions took its room in the cache {self.folder} at once. Raise "
                        f"`model.cache_size`."
                    )

    def _move_in(self, part: Path, digest: str, sums: Mapping[str, str], place: str) -> None:
        """Make the content appear, unless another version has the same."""
        folder = self._content(digest)
        written = sum((part / path).stat().st_size for path in sums) if part.is_dir() else 0
        with self._sizes():
            if not folder.is_dir():
                self._make_room(written, place)
                write_record(folder.with_suffix(".json"), {"bytes": written, "sums": dict(sums)})
                part.rename(folder)
                sync_folder(folder.parent)

    @contextmanager
    def _part(self) -> Iterator[Path]:
        """A folder to fill, which is locked meanwhile and deleted at the end, if it is still there."""
        self._sweep()
        part = self.folder / "partial" / uuid.uuid4().hex
        # Another process that sweeps may have it for a moment, between its creation and the lock.
        held = lock(part.with_suffix(".lock"), timeout=SIZES_TIMEOUT)
        if held is None:
            raise SourceUnavailable(f"{part}: another process has held its lock for too long. End it.")
        part.mkdir(mode=0o700)
        try:
            yield part
        finally:
            shutil.rmtree(part, ignore_errors=True)
            remove(part.with_suffix(".lock"))
            unlock(held)

    def _sweep(self) -> None:
        """Delete what processes left that were killed while they fetched or deleted."""
        for path in (self.folder / "partial").iterdir():
            of = path.with_suffix(".lock")
            held = lock(of)
            if held is not None:
                shutil.rmtree(of.with_suffix(""), ignore_errors=True)
                remove(of)
                unlock(held)

    def _sizes(self) -> AbstractContextManager[None]:
        """While this is held, no other process adds or deletes content."""
        return locked(self.folder / "locks" / "sizes", SIZES_TIMEOUT, "it makes room in the cache")

    def _make_room(self, size: int, place: str) -> None:
        """Delete versions that no process uses, the least recently used first, until this many bytes fit in.

        Also the disk must have room for them. If it still lacks some, the caller finds out when it writes.
        """
        if size > self.max_bytes:
            raise ModelConfigError(
                f"{place} takes {size:,} bytes, more than the whole cache may ({self.max_bytes:,} bytes in {self.folder}). "
                f"Raise `model.cache_size` in the pipeline file."
            )
        there = self.contents()
        total = sum(content.bytes for content in there)
        for content in there:
            if total + size <= self.max_bytes and size <= shutil.disk_usage(self.folder).free:
                return
            if self._drop(content.digest):
                total -= content.bytes
                self._forget(content.digest)
        if total + size > self.max_bytes:
            raise SourceUnavailable(
                f"{place} takes {size:,} bytes, and processes use {total:,} of the {self.max_bytes:,} bytes that the cache "
                f"{self.folder} may take. Raise `model.cache_size` in the pipeline file, or stop workers with other models."
            )

    def _drop(self, digest: str) -> bool:
        """Delete content, unless a process uses it. Returns whether it is gone."""
        held = lock(self._lock_of(digest))
        if held is None:
            return False
        try:
            folder = self._content(digest)
            if folder.is_dir():
                trash = self.folder / "partial" / uuid.uuid4().hex
                folder.rename(trash)
                folder.with_suffix(".json").unlink(missing_ok=True)
                shutil.rmtree(trash, ignore_errors=True)
            remove(self._lock_of(digest))
        finally:
            unlock(held)
        return True

    def _forget(self, digest: str) -> None:
        """Delete the keys of content that is gone."""
        for path in (self.folder / "keys").glob("*.json"):
            if read_record(path).get("digest") == digest:
                path.unlink(missing_ok=True)

    def _contents(self) -> Iterator[Content]:
        parent = self.folder / "content"
        for path in parent.glob("*.json") if parent.is_dir() else ():
            record, folder = read_record(path), path.with_suffix("")
            with suppress(FileNotFoundError, KeyError):
                if folder.is_dir():
                    yield Content(folder.name, folder, record["sums"], record["bytes"], path.stat().st_mtime)

    @contextmanager
    def _writing(self, place: str) -> Iterator[None]:
        """Explain errors of the disk."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise SourceUnavailable(
                    f"{place} can't be kept in the cache {self.folder}: {os.strerror(error.errno)}. Free room on that disk, or "
                    f"name a folder on another one: `model.cache` in the pipeline file."
                ) from None
            raise ModelConfigError(
                f"{place} can't be kept in the cache {self.folder}: {error.strerror or error}. Name a folder that the worker may "
                f"write to: `model.cache` in the pipeline file."
            ) from None
