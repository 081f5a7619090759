"""Paths in a pipeline file, relative to its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, WithJsonSchema

from millstream.pipeline.secret import Origin
from millstream.schemas.wording import shown

if TYPE_CHECKING:
    from pydantic import ValidationInfo


def resolved(value: object, info: ValidationInfo) -> object:
    """Return the path, relative to the pipeline file's folder. Raises ValueError if it is not a path."""
    if value is None or isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError(f"expected a path, found {shown(value)}")
    return info.context.path.parent / value if isinstance(info.context, Origin) else Path(value)


FilePath = Annotated[Path, BeforeValidator(resolved), WithJsonSchema({"type": "string", "$comment": "path"})]
