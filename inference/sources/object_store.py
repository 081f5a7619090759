"""Models in an object store, or another place that fsspec reads: `<URL>/<name>/<version>/`."""

import hashlib
import importlib
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from millstream.inference.errors import InferenceError, ModelConfigError, SourceUnavailable
from millstream.inference.repository import TRITON_FILE
from millstream.inference.sources.aliases import ALIASES_FILE, parsed_aliases
from millstream.inference.sources.client_options import client_options, ready
from millstream.inference.sources.interface import RemoteVersion
from millstream.inference.sources.progress import Progress
from millstream.inference.sources.secrets import redacted
from millstream.inference.version_number import version_number

EXTRAS = {
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "gcs": ("gcsfs", "gcs"),
    "az": ("adlfs", "azure"),
    "abfs": ("adlfs", "azure"),
    "abfss": ("adlfs", "azure"),
    "hf": ("huggingface_hub", "hf"),
}
"""Scheme -> the package that reads it, and Millstream's extra with that package."""
_SHOWN = {"endpoint_url", "endpoint", "region_name", "region", "account_name", "project", "anon"}
"""Names of options that are no secrets: messages may show their values."""
_TAGS = ("ETag", "md5Hash", "etag", "blob_id", "checksum")
"""Checksums first: Google's `etag` changes whenever a file is written."""
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")
_REFUSED = re.compile(
    r"credential|access ?denied|forbidden|unauthorized|not authorized|invalidaccesskey|signaturedoesnotmatch|authenti"
    r"|\b40[13]\b",
    re.IGNORECASE,
)


class ObjectStore:
    """See `RemotePlace`."""

    def __init__(self, url: str, options: Mapping[str, str], advice: str) -> None:
        """Args:
        url: of the folder of models.
        options: of fsspec's client for this scheme. They may be secrets.
        advice: where the options are written, for messages.

        Raises:
            ModelConfigError: the client's package is missing.
        """
        self.url = url.rstrip("/")
        self._scheme = url.partition("://")[0]
        self._options = options
        self._advice = advice
        self._opening = threading.Lock()
        self._opened: tuple[Any, str] | None = None
        self._fsspec = _installed(self._scheme, self.url)

    def versions(self, name: str) -> Mapping[int, RemoteVersion]:
        """See `RemotePlace`."""
        shared: dict[str, Any] = {}
        by_version: dict[int, dict[str, Any]] = {}
        for path, info in _found(*self._store(), name):
            first, _, rest = path.partition("/")
            number = version_number(first)
            if not rest:
                shared[path] = info
            elif number is not None:
                by_version.setdefault(number, {})[rest] = info
        return {number: _version({**_of_triton(shared), **files}) for number, files in sorted(by_version.items())}

    def version(self, name: str, number: int) -> RemoteVersion | None:
        """See `RemotePlace`."""
        files = _files(*self._store(), name, number)
        return _version(files) if files else None

    def aliases(self, name: str) -> Mapping[str, int]:
        """See `RemotePlace`."""
        content = self.beside(name, ALIASES_FILE)
        return {} if content is None else parsed_aliases(content, f"{self.url}/{name}/{ALIASES_FILE}")

    def beside(self, name: str, file: str) -> bytes | None:
        """See `RemotePlace`."""
        store, root = self._store()
        try:
            return bytes(store.cat_file(f"{root}/{name}/{file}"))
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """See `RemotePlace`."""
        store, root = self._store()
        return [PurePosixPath(str(info["name"])).name for info in store.ls(root, detail=True)]

    def download(self, name: str, number: int, target: Path, progress: Progress) -> None:
        """See `RemotePlace`."""
        store, root = self._store()
        callback = _heard(self._fsspec, progress)
        for path, info in _files(store, root, name, number).items():
            local = target / _safe(path, f"{self.url}/{name}/{number}")
            local.parent.mkdir(parents=True, exist_ok=True)
            store.get_file(info["name"], str(local), callback=callback)
            progress.add(0)  # small files may be written without a call of the callback
            if info.get("size") not in {None, local.stat().st_size}:
                raise SourceUnavailable(f"{self.url}/{name}/{number}/{path} arrived incomplete. It is fetched again.")

    def explained(self, error: Exception) -> Exception:
        """See `RemotePlace`."""
        if isinstance(error, InferenceError):
            return error
        said = self._said(error)
        if isinstance(error, FileNotFoundError) or self._is_no_repository(error):
            if self._scheme == "hf":  # the Hub doesn't tell a repository that is missing from one that is private
                why = f"there is no such place, or these credentials may not read it. Check `model.repository`. {self._advice}"
            else:
                why = "there is no such place. Check `model.repository`."
            return ModelConfigError(f"model repository {self.url}: {why} ({said})")
        if isinstance(error, PermissionError) or _REFUSED.search(said):
            return ModelConfigError(
                f"model repository {self.url}: the credentials are refused, or there are none. {self._advice} The client says: "
                f"{said}"
            )
        return SourceUnavailable(f"model repository {self.url} does not answer as it should: {said}")

    def _said(self, error: Exception) -> str:
        """The error, without secrets."""
        secrets = [value for name, value in self._options.items() if name.rpartition(".")[2] not in _SHOWN]
        text = str(error).partition("\nRequestId:")[0]  # what Azure adds says nothing to a reader
        return redacted(f"{type(error).__name__}: {text}", secrets)

    def _is_no_repository(self, error: Exception) -> bool:
        """Whether the URL lacks the name of a repository on the Hub, which its client notices at the first call."""
        return self._scheme == "hf" and type(error) in {ValueError, NotImplementedError}

    def _store(self) -> tuple[Any, str]:
        """The client, and the root's path in it, for one call. Without caches: a new version must show.

        Threads may share fsspec's asynchronous clients. Any other is opened anew for each call: it may have one connection, or
        a cache of listings in spite of the option.
        """
        with self._opening:
            if self._opened is None or not self._opened[0].async_impl:
                self._opened = self._open()
            store, root = self._opened
        store.invalidate_cache()
        ready(self._scheme, store)
        return store, root

    def _open(self) -> tuple[Any, str]:
        try:
            options = client_options(self._scheme, self._options)
            store, root = self._fsspec.core.url_to_fs(
                self.url, skip_instance_cache=True, use_listings_cache=False, **options
            )
        except (TypeError, ValueError, ImportError) as error:
            raise ModelConfigError(
                f"model repository {self.url}: the client refuses its options. {self._advice} It says: {self._said(error)}"
            ) from None
        return store, str(root).rstrip("/")


def _found(store: Any, root: str, under: str) -> Iterator[tuple[str, Any]]:
    """All files below a folder of the repository, each with its path from there."""
    start = f"{root}/{under}"
    try:
        found = store.find(start, detail=True)
    except FileNotFoundError:
        return
    for path, info in sorted(found.items()):
        if info.get("type") != "directory" and not path.endswith("/") and path.startswith(f"{start}/"):
            yield path[len(start) + 1 :], {**info, "name": path}


def _files(store: Any, root: str, name: str, number: int) -> dict[str, Any]:
    """The files of a version; empty: there is no such version."""
    files = dict(_found(store, root, f"{name}/{number}"))
    if not files:
        return {}
    beside = {
        PurePosixPath(str(info["name"])).name: info
        for info in store.ls(f"{root}/{name}", detail=True)
        if info.get("type") == "file"
    }
    return {**_of_triton(beside), **files}


def _installed(scheme: str, url: str) -> Any:
    """The package fsspec. Raises ModelConfigError: a package is missing, or fsspec knows no such scheme."""
    package, extra = EXTRAS.get(scheme, ("fsspec", "fsspec"))
    try:
        fsspec = importlib.import_module("fsspec")
        importlib.import_module("fsspec.core")
        if scheme in EXTRAS:
            importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ModelConfigError(
            f"the model repository {url} is read with the package {package}, and {error.name} is not installed. Install "
            f"Millstream's extra `{extra}`: {sys.executable} -m pip install 'millstream[{extra}]'"
        ) from None
    if scheme not in fsspec.available_protocols():
        raise ModelConfigError(
            f"model repository {url}: expected s3://, gs://, az://, hf://, file:// or another URL that fsspec knows, or models:/ "
            f"for MLflow; found {scheme}://."
        )
    return fsspec


def _version(files: Mapping[str, Any]) -> RemoteVersion:
    lines = sorted(f"{path}\0{info.get('size')}\0{_tag(info)}" for path, info in files.items())
    sizes = [info.get("size") for info in files.values()]
    size = None if None in sizes else sum(map(int, sizes))
    return RemoteVersion(hashlib.sha256("\n".join(lines).encode()).hexdigest(), size)


def _tag(info: Mapping[str, Any]) -> str:
    """What changes with a file's content: a checksum if the store has one, else the time of the last change."""
    return next((str(info[name]) for name in (*_TAGS, *_TIMES) if info.get(name)), "")


def _of_triton(beside: Mapping[str, Any]) -> dict[str, Any]:
    """The files beside a model's versions that belong to each of them: Triton's configuration, and files that it may name."""
    if TRITON_FILE not in beside:
        return {}
    return {path: info for path, info in beside.items() if path != ALIASES_FILE}


def _safe(path: str, place: str) -> PurePosixPath:
    """The path, if it stays in the version's folder. In an object store, `..` is a name like any other."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\0" in path:
        raise ModelConfigError(f"{place}: the file {path!r} would lie outside of the version's folder. Take it away.")
    return parts


def _heard(fsspec: Any, progress: Progress) -> Any:
    """A callback of fsspec that tells `progress`."""

    class Heard(fsspec.callbacks.Callback):  # type: ignore[misc]
        def relative_update(self, inc: int = 1) -> None:
            progress.add(inc)

        def absolute_update(self, value: int) -> None:
            progress.add(max(0, value - progress.bytes))

    return Heard()
