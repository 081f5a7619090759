"""Repositories of the tests: in fsspec's memory, in a folder, in MinIO."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec

from millstream.inference.sources.choice import Repository, open_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.inference.sources.cached import CachedSource


class Place:
    """A repository with a URL that tests write to."""

    def __init__(self, url: str, client: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.client = dict(client or {})
        self._store, self._root = fsspec.url_to_fs(url, skip_instance_cache=True, **self.client)

    def put(self, path: str, content: bytes | str) -> None:
        """Write a file; the path is from the repository's root."""
        target = f"{self._root}/{path}"
        self._store.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._store.pipe_file(target, content if isinstance(content, bytes) else content.encode())

    def put_all(self, files: Mapping[str, bytes]) -> None:
        """Write many files at once."""
        self._store.makedirs(self._root.partition("/")[0], exist_ok=True)
        self._store.pipe({f"{self._root}/{path}": content for path, content in files.items()})

    def put_folder(self, folder: Path) -> None:
        """Write all files of a folder."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(path.relative_to(folder).as_posix(), path.read_bytes())

    def remove(self, path: str) -> None:
        self._store.rm(f"{self._root}/{path}", recursive=True)

    def source(self, cache: Path, *, size: int = 1 << 30, quiet: float = 30) -> CachedSource:
        """A source as a worker has it."""
        opened = open_source(Repository(self.url, cache, size, client=self.client), quiet)
        assert not isinstance(opened, Path)
        return opened  # type: ignore[return-value]


def in_memory() -> Place:
    return Place(f"memory://{uuid.uuid4().hex}")
