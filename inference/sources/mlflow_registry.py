"""Models in an MLflow model registry, through MLflow's own client."""

import hashlib
import importlib
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millstream.inference.errors import InferenceError, ModelConfigError, SourceUnavailable
from millstream.inference.sources.interface import RemoteVersion
from millstream.inference.sources.progress import Progress
from millstream.inference.sources.secrets import redacted

OPTIONS = {
    "tracking_uri": "MLFLOW_TRACKING_URI",
    "registry_uri": "MLFLOW_REGISTRY_URI",
    "username": "MLFLOW_TRACKING_USERNAME",
    "password": "MLFLOW_TRACKING_PASSWORD",
    "token": "MLFLOW_TRACKING_TOKEN",
    "ca": "MLFLOW_TRACKING_SERVER_CERT_PATH",
    "s3_endpoint_url": "MLFLOW_S3_ENDPOINT_URL",
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
}
"""Option of `model.client` -> the environment variable that MLflow's client reads it from."""
SECRET = ("username", "password", "token", "aws_access_key_id", "aws_secret_access_key")
_BOUNDS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0.5",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
"""Unless the environment has others: bounds of each request (by default, a missing file takes five minutes), no progress bar."""
_WHERE = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
_PAGE = 1000  # versions listed by one request
_READY = "READY"
_NOT_THERE = {"RESOURCE_DOES_NOT_EXIST", "NOT_FOUND"}
_REFUSED = {"PERMISSION_DENIED", "UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED"}
_REFUSED_TEXT = re.compile(
    r"error code 40[13]\b|\b40[13] Client Error|not authenticated|unauthorized|forbidden|credential", re.I
)
_MISSING_FILE = re.compile(
    r"error code 404\b|\b4(?:00|04|10) Client Error|No such (file|artifact)|NoSuchKey|does not exist", re.I
)


class MlflowRegistry:
    """See `RemotePlace`."""

    def __init__(self, url: str, registered: Mapping[str, str], options: Mapping[str, str], advice: str) -> None:
        """Args:
        url: `models:/`, or with a model's name behind it.
        registered: a model's name in the pipeline -> its name in the registry, where they differ.
        options: see `OPTIONS`. They may be secrets.
        advice: where the options are written, for messages.

        Raises:
            ModelConfigError: an option is unknown, or MLflow's client is missing.
        """
        for name in options:
            if name not in OPTIONS:
                raise ModelConfigError(f"{advice} For MLflow, the options are {', '.join(OPTIONS)}; found {name}.")
        self._registered = registered
        self._advice = advice
        self._secrets = [options[name] for name in SECRET if name in options]
        self._environment = {OPTIONS[name]: value for name, value in options.items()}
        self._mlflow = _installed()
        with self._settings():
            if not any(
                os.environ.get(name) for name in _WHERE
            ):  # MLflow would make a registry of its own in this folder
                raise ModelConfigError(
                    f"{url}: expected the address of MLflow's server, found none. Write `tracking_uri` under `model.client`, or "
                    f"set the environment variable MLFLOW_TRACKING_URI."
                )
            where = self._mlflow.get_registry_uri()
        self.url = f"{url} (MLflow at {redacted(str(where), self._secrets)})"

    def versions(self, name: str) -> Mapping[int, RemoteVersion]:
        """See `RemotePlace`."""
        found: dict[int, RemoteVersion] = {}
        with self._settings():
            client, page = self._mlflow.MlflowClient(), None
            quoted = self._name(name).replace("'", "\\'")
            while True:
                listed = client.search_model_versions(f"name='{quoted}'", max_results=_PAGE, page_token=page)
                found |= {int(each.version): _version(each) for each in listed if each.status == _READY}
                page = listed.token
                if not page:
                    return dict(sorted(found.items()))

    def version(self, name: str, number: int) -> RemoteVersion | None:
        """See `RemotePlace`."""
        with self._settings():
            try:
                found = self._mlflow.MlflowClient().get_model_version(self._name(name), str(number))
            except self._mlflow.MlflowException as error:
                if error.error_code in _NOT_THERE:
                    return None
                raise
        return _version(found) if found.status == _READY else None

    def aliases(self, name: str) -> Mapping[str, int]:
        """See `RemotePlace`."""
        with self._settings():
            try:
                aliases = self._mlflow.MlflowClient().get_registered_model(self._name(name)).aliases
            except self._mlflow.MlflowException as error:
                if error.error_code in _NOT_THERE:
                    return {}
                raise
        return {str(alias): int(version) for alias, version in aliases.items()}

    def beside(self, name: str, file: str) -> bytes | None:  # noqa: ARG002
        """See `RemotePlace`. A registry has no such files."""
        return None

    def names(self) -> list[str]:
        """See `RemotePlace`."""
        with self._settings():
            return [model.name for model in self._mlflow.MlflowClient().search_registered_models(max_results=100)]

    def download(self, name: str, number: int, target: Path, progress: Progress) -> None:
        """See `RemotePlace`."""
        progress.writes_to = target
        with self._settings():
            source = self._mlflow.MlflowClient().get_model_version_download_uri(self._name(name), str(number))
            got = Path(self._mlflow.artifacts.download_artifacts(artifact_uri=source, dst_path=str(target)))
        if got.resolve() != target.resolve():  # MLflow keeps the last part of the artifact's path
            for path in got.iterdir():
                path.rename(target / path.name)
            shutil.rmtree(target / got.relative_to(target).parts[0], ignore_errors=True)
        if not any(target.iterdir()):
            raise ModelConfigError(
                f"model `{name}` version {number} of {self.url} has no files: its artifacts ({redacted(source, self._secrets)}) "
                f"were deleted, or never uploaded. Register the version again."
            )

    def explained(self, error: Exception) -> Exception:
        """See `RemotePlace`."""
        if isinstance(error, InferenceError):
            return error
        code = str(getattr(error, "error_code", ""))
        said = redacted(f"{type(error).__name__}: {error}", self._secrets)
        if isinstance(error, ImportError):
            package = error.name or "that the artifact store needs"
            return ModelConfigError(
                f"{self.url}: the model's files are in a store that is read with the package {package}, which is not installed: "
                f"{sys.executable} -m pip install {package}"
            )
        if code in _REFUSED or _REFUSED_TEXT.search(said):
            return ModelConfigError(
                f"{self.url}: the credentials are refused, or there are none. {self._advice} MLflow says: {said}"
            )
        if code in _NOT_THERE or _MISSING_FILE.search(said):
            return ModelConfigError(
                f"{self.url}: it lacks what the version refers to. Register the version again. MLflow says: {said}"
            )
        return SourceUnavailable(f"{self.url} does not answer as it should: {said}")

    def _name(self, name: str) -> str:
        return self._registered.get(name, name)

    @contextmanager
    def _settings(self) -> Iterator[None]:
        """The environment that MLflow's client reads: it takes its credentials and its time limits from nowhere else."""
        with _ENVIRONMENT.having(self._environment, unless_set=_BOUNDS):
            yield


class _Environment:
    """The process has one environment, and several threads may use MLflow's client: the last one restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # of all below
        self._users = 0
        self._before: dict[str, str | None] = {}

    @contextmanager
    def having(self, wanted: Mapping[str, str], *, unless_set: Mapping[str, str]) -> Iterator[None]:
        """Set these variables meanwhile; those of `unless_set` only if the environment lacks them."""
        with self._lock:  # while another user has them set, they stay until both have ended
            self._users += 1
            wanted = {name: value for name, value in unless_set.items() if name not in os.environ} | dict(wanted)
            for name in wanted.keys() - self._before.keys():
                self._before[name] = os.environ.get(name)
            os.environ.update(wanted)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._restore()

    def _restore(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before.clear()


_ENVIRONMENT = _Environment()


def _installed() -> Any:
    """MLflow's client. Raises ModelConfigError: it is missing."""
    try:
        mlflow = importlib.import_module("mlflow")
        importlib.import_module("mlflow.artifacts")
    except ModuleNotFoundError as error:
        raise ModelConfigError(
            f"a `models:/` repository is read with MLflow's client, and {error.name} is not installed. Install Millstream's "
            f"extra `mlflow`: {sys.executable} -m pip install 'millstream[mlflow]'"
        ) from None
    return mlflow


def _version(found: Any) -> RemoteVersion:
    """MLflow doesn't change the files of a version. A version that is deleted and made again has another time and run."""
    parts = (found.name, found.version, found.run_id, found.source, found.creation_timestamp)
    return RemoteVersion(hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest(), None)
