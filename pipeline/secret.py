"""Secrets of the pipeline file: read from a file or the environment when it is loaded, and never shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, SecretStr, ValidationInfo, WithJsonSchema

from millstream.schemas.secrets import read_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.pipeline.yaml_places import Document


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a pipeline file's secrets: pydantic's validation context."""

    path: Path  # the file itself, absolute
    environ: Mapping[str, str] = field(compare=False)  # two pipelines are equal if their settings are
    document: Document


def _read_secret(value: object, info: ValidationInfo) -> SecretStr:
    """Return the secret that `value` is or points to. Raises ValueError, which never shows it."""
    if isinstance(value, SecretStr):
        return value
    if not isinstance(value, dict):
        return SecretStr(read_secret(value, Path(), {}))
    origin = _origin(info)
    return SecretStr(read_secret(value, origin.path.parent, origin.environ))


def _origin(info: ValidationInfo) -> Origin:
    if not isinstance(info.context, Origin):
        raise TypeError("secrets are read only while a pipeline file is loaded: use load_pipeline")
    return info.context


_REFERENCE_SCHEMA = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
    "properties": {"file": {"type": "string"}, "env": {"type": "string"}},
}
Secret = Annotated[
    SecretStr,
    BeforeValidator(_read_secret),
    WithJsonSchema(
        {"anyOf": [{"type": ["string", "number", "boolean"]}, _REFERENCE_SCHEMA], "$comment": "text, file or env"}
    ),
]
