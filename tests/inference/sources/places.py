"""Repositories of the tests: in fsspec's memory, in a folder, in a store that runs as a child process."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import fsspec

from millstream.inference.sources.cached import CachedSource
from millstream.inference.sources.choice import Repository, open_source
from tests.stores.hub import REPOSITORY, Hub

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.stores.store_process import StoreProcess


class Place:
    """A repository with a URL that tests write to."""

    def __init__(self, url: str, client: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.client = dict(client or {})
        self._store, self._root = fsspec.url_to_fs(url, skip_instance_cache=True, **self.client)

    def make_bucket(self) -> None:
        """Create the bucket or the container."""
        self._store.mkdir(self._root.partition("/")[0])

    def put(self, path: str, content: bytes | str) -> None:
        """Write a file; the path is from the repository's root."""
        target = f"{self._root}/{path}"
        if not self._store.async_impl:  # folders of a store are only parts of names
            self._store.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._store.pipe_file(target, content if isinstance(content, bytes) else content.encode())

    def put_all(self, files: Mapping[str, bytes]) -> None:
        """Write many files at once."""
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
        return source_at(self.url, self.client, cache, size=size, quiet=quiet)


def source_at(
    url: str, client: Mapping[str, str], cache: Path, *, size: int = 1 << 30, quiet: float = 30
) -> CachedSource:
    """A source as a worker has it, with these options of `model.client`."""
    opened = open_source(Repository(url, cache, size, client=client), quiet)
    assert isinstance(opened, CachedSource)
    return opened


def in_memory() -> Place:
    return Place(f"memory://{uuid.uuid4().hex}")


class HubPlace(Place):
    """A folder of a repository on the stand-in for the Hub. The client can't write there, so its folder is written to."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.url = f"hf://{REPOSITORY}/{name}"
        self.client = dict(hub.client)
        self._folder = hub.files / name

    def put(self, path: str, content: bytes | str) -> None:
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())

    def put_all(self, files: Mapping[str, bytes]) -> None:
        for path, content in files.items():
            self.put(path, content)

    def remove(self, path: str) -> None:
        target = self._folder / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()


def place_in(store: StoreProcess) -> Place:
    """A repository in a bucket, a container or a folder of its own."""
    name = f"models-{uuid.uuid4().hex}"
    if isinstance(store, Hub):
        return HubPlace(store, name)
    place = Place(f"{store.scheme}://{name}/models", store.client)
    place.make_bucket()
    return place
