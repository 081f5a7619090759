"""Names that a pipeline file gives: of topics, models and shadows."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from millstream.schemas.wording import shown

_TOPIC_PATTERN = "[A-Za-z0-9._-]{1,249}"
_NAME_PATTERN = "[A-Za-z0-9._-]{1,200}"


def _topic_name(name: str) -> str:
    if name in {".", ".."} or not re.fullmatch(_TOPIC_PATTERN, name):
        raise ValueError(
            "expected a Kafka topic's name (1 to 249 of the characters a-z A-Z 0-9 . _ -, and not . or ..), "
            f"found {shown(name)}"
        )
    return name


def _folder_name(name: str) -> str:
    """Check a name: it is used as a folder name, so it must not be a path, and as a metrics label."""
    if name in {".", ".."} or not re.fullmatch(_NAME_PATTERN, name):
        raise ValueError(
            "expected one name, not a path (1 to 200 of the characters a-z A-Z 0-9 . _ -, and not . or ..), "
            f"found {shown(name)}"
        )
    return name


def _one_or_several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _some_all_different(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise ValueError("expected at least one topic, found an empty list")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"expected each name once, found {shown(twice)} twice. Remove one.")
    return names


TopicName = Annotated[
    str,
    AfterValidator(_topic_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_TOPIC_PATTERN}$", "$comment": "topic's name"}),
]
TopicNames = Annotated[tuple[TopicName, ...], BeforeValidator(_one_or_several), AfterValidator(_some_all_different)]
Name = Annotated[
    str,
    AfterValidator(_folder_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_NAME_PATTERN}$", "$comment": "name"}),
]
Version = Annotated[int, Field(ge=1, le=2**31 - 1)]  # fits the prediction's schema (int)
