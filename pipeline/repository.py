"""`model.repository`: a folder of models, or the URL of an object store or a model registry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import BeforeValidator, WithJsonSchema

from millstream.pipeline.paths import resolved
from millstream.schemas.wording import shown

if TYPE_CHECKING:
    from pydantic import ValidationInfo

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.+")
_SECRET = re.compile(r"[^/]*://[^@]*:[^@]*@|.*[?#]")
_MLFLOW = re.compile(r"models:/+(?:(?P<name>[^/@]+)(?:/(?P<version>[0-9]+|latest)|@(?P<alias>[A-Za-z0-9_.-]+))?)?")
_MLFLOW_FORMS = "models:/, models:/NAME, models:/NAME@ALIAS or models:/NAME/3"


class MlflowUrl(NamedTuple):
    """What a `models:/` URL names. None: the pipeline file's other options say it."""

    name: str | None
    version: int | str | None  # a number, `latest` or an alias


def mlflow_url(where: Path | str) -> MlflowUrl | None:
    """The parts of a `models:/` URL; None: it is none."""
    found = _MLFLOW.fullmatch(where) if isinstance(where, str) else None
    if found is None:
        return None
    version = found["version"]
    return MlflowUrl(found["name"], int(version) if version and version != "latest" else version or found["alias"])


def without_version(where: Path | str, *, same: bool) -> Path | str:
    """The repository for another version. `same`: of the same model; otherwise, it is for a model of another name."""
    url = mlflow_url(where)
    if url is None:
        return where
    return f"models:/{url.name}" if same and url.name is not None else "models:/"


def _repository(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str):
        return resolved(value, info)
    if value.startswith("models:"):
        if not _MLFLOW.fullmatch(value):
            raise ValueError(f"expected {_MLFLOW_FORMS}, found {shown(value)}")
        return value
    if not _URL.fullmatch(value):
        return resolved(value, info)
    if _SECRET.match(value):  # the message doesn't show it
        raise ValueError(
            "expected a URL without a password, `?` or `#` in it. Write secrets under `model.client`, for example "
            "`key: {env: KEY}`."
        )
    return value


RepositoryPlace = Annotated[
    Path | str, BeforeValidator(_repository), WithJsonSchema({"type": "string", "$comment": "path or URL"})
]
