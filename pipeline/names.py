"""Names in a pipeline file: of topics, models and shadows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from millstream.schemas.wording import shown, shown_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic.config import JsonDict

_TOPIC_PATTERN = "[A-Za-z0-9._-]{1,249}"
_NAME_PATTERN = "[A-Za-z0-9._-]{1,200}"


def _matches(pattern: str, expected: str) -> Callable[[str], str]:
    """A validator of names. It refuses `.` and `..`: Kafka forbids them for topics, and as folders they lead elsewhere."""

    def check(name: str) -> str:
        if name in {".", ".."} or not re.fullmatch(pattern, name):
            raise ValueError(
                f"expected {expected} of the characters a-z A-Z 0-9 . _ -, and not . or ..), found {shown(name)}"
            )
        return name

    return check


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
    AfterValidator(_matches(_TOPIC_PATTERN, "a Kafka topic's name (1 to 249")),
    WithJsonSchema({"type": "string", "pattern": f"^{_TOPIC_PATTERN}$", "$comment": "topic's name"}),
]
TopicNames = Annotated[tuple[TopicName, ...], BeforeValidator(_one_or_several), AfterValidator(_some_all_different)]
Name = Annotated[
    str,
    AfterValidator(_matches(_NAME_PATTERN, "one name, not a path (1 to 200")),
    WithJsonSchema({"type": "string", "pattern": f"^{_NAME_PATTERN}$", "$comment": "name"}),
]
Version = Annotated[int, Field(ge=1, le=2**31 - 1)]  # fits the prediction's schema (int)
_ALIAS_PATTERN = "[A-Za-z_][A-Za-z0-9._-]{0,199}"
_LARGEST = 2**31 - 1


def _wanted(value: object) -> object:
    """A version's number, `latest` or an alias."""
    if isinstance(value, str) and re.fullmatch(_ALIAS_PATTERN, value):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        expected = "a whole number, latest or an alias (a name that begins with a letter)"
        raise ValueError(f"expected {expected}, found {shown_for(expected, value)}")
    if value < 1:
        raise ValueError(f"expected at least 1, found {shown(value)}")
    if value > _LARGEST:
        raise ValueError(f"expected at most {_LARGEST}, found {shown(value)}")
    return value


WANTED_VERSION_SCHEMA: JsonDict = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": _LARGEST},
        {"type": "string", "pattern": f"^{_ALIAS_PATTERN}$"},
        {"type": "string", "pattern": "\\$\\{"},
    ],
    "$comment": "whole number or name",
}
WantedVersion = Annotated[int | str, BeforeValidator(_wanted), WithJsonSchema(WANTED_VERSION_SCHEMA)]
