"""Secrets of the pipeline file: read from a file or the environment when it is loaded, and never shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, SecretStr, ValidationInfo, WithJsonSchema

from millstream.schemas.wording import shown
from millstream.schemas.yaml_file import unusable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from millstream.pipeline.yaml_places import Document


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a pipeline file's secrets: pydantic's validation context."""

    path: Path  # the file itself, absolute
    environ: Mapping[str, str]
    document: Document


def _read_secret(value: object, info: ValidationInfo) -> SecretStr:
    """Return the secret that `value` is or points to.

    Raises ValueError, which names where the secret should be and never what it is.
    """
    match value:
        case SecretStr():
            return value
        case {"file": str(name), **rest} if not rest:
            return _usable(_from_file(name, _origin(info)), f"the file {name}")
        case {"env": str(name), **rest} if not rest:
            secret = _origin(info).environ.get(name)
            if not secret:
                raise ValueError(f"expected a secret in the environment variable {name}, which is not set. Set it.")
            return _usable(secret, f"the environment variable {name}")
        case bool():
            return SecretStr("true" if value else "false")
        case str() | int() | float():
            return SecretStr(str(value))
    found = "other keys" if isinstance(value, dict) else shown(value)
    raise ValueError(f"expected a single value, {{file: PATH}} or {{env: NAME}}, found {found}.")


def _usable(secret: str, where: str) -> SecretStr:
    if problem := unusable(secret):
        raise ValueError(f"the secret in {where} {problem}")
    return SecretStr(secret)


def _from_file(name: str, origin: Origin) -> str:
    path = origin.path.parent / name
    try:
        secret = path.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise ValueError(f"cannot read the secret's file {path}: {error.strerror}. Check the path.") from None
    except ValueError:  # not UTF-8, or a name with a NUL; the decoder's own message would quote the secret's bytes
        raise ValueError(f"expected UTF-8 text in the secret's file {path}. Check which file it is.") from None
    if not secret:
        raise ValueError(f"the secret's file {path} is empty. Write the secret into it.")
    return secret


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
