"""Paths into events: `customer.age`, `basket.items[0].price`, `basket.items[].price`, `attributes["my.key"]`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.schemas.errors import BadPathError

MAX_STEPS = 100
"""Most steps of a path. Readers of schemas and events recurse, and Python ends a recursion at a few hundred levels of them."""
_SHOWN = 40  # characters of a path that is too long to show
_ENDS_NAME = '.[]"'
_EXAMPLES = 'write a path such as `customer.age`, `items[0].price`, `items[].price` or `attributes["my.key"]`'


class Every(Enum):
    """The step `[]`."""

    ITEM = "[]"


Step = str | int | Every
"""A name (a record's field or a map's key), an item's index (negative: from the end), or every item."""


@dataclass(frozen=True, slots=True)
class Path:
    """A place in an event."""

    text: str  # as the user wrote it
    steps: tuple[Step, ...]  # the first is a name

    @property
    def field(self) -> str:
        """The name of the top-level field."""
        first = self.steps[0]
        assert isinstance(first, str)
        return first


def place_of(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps with `[]` in place of indices: the same for all items of a list."""
    return tuple(Every.ITEM if isinstance(step, int) else step for step in steps)


def parse_path(text: str) -> Path:
    """Parse a path.

    Raises:
        BadPathError: it isn't a path. The message says where.
    """
    steps: list[Step] = []
    at = 0
    while at < len(text) or not steps:
        bracket = text.startswith("[", at)
        if bracket:
            step, at = _bracket(text, at)
            if not steps and not isinstance(step, str):
                raise _bad(text, 0, "a field's name (an event is an object)")
        else:
            if steps:
                if text[at] != ".":
                    raise _bad(text, at, "`.` or `[`")
                at += 1
            step, at = _name(text, at)
        steps.append(step)
    if len(steps) > MAX_STEPS:
        raise BadPathError(
            f"path `{text[:_SHOWN]}...`: expected at most {MAX_STEPS} steps, found {len(steps)}: let the producer write the "
            "value nearer to the top of the event"
        )
    return Path(text, tuple(steps))


def text_of(steps: Sequence[Step]) -> str:
    """The shortest text of a path with these steps."""
    text = ""
    for step in steps:
        match step:
            case Every():
                text += "[]"
            case int():
                text += f"[{step}]"
            case _ if _is_bare(step):
                text += f".{step}" if text else step
            case _:
                text += f'["{step}"]'
    return text


def value_at(event: Any, steps: Sequence[Step]) -> Any:
    """The value at these steps in an event of Python objects; None where a step leads nowhere, and behind `[]`."""
    for step in steps:
        match step, event:
            case str(), dict():
                event = event.get(step)
            case int(), list():
                event = event[step] if -len(event) <= step < len(event) else None
            case _:
                return None
    return event


def _is_bare(name: str) -> bool:
    return bool(name) and name == name.strip() and not any(end in name for end in _ENDS_NAME)


def _name(text: str, at: int) -> tuple[str, int]:
    """A name without quotes that begins here, and the place behind it."""
    end = at
    while end < len(text) and text[end] not in _ENDS_NAME:
        end += 1
    name = text[at:end]
    if not name:
        raise _bad(text, at, "a name")
    if name != name.strip():
        raise _bad(text, at, "a name without spaces around it")
    _check_characters(text, at, name)
    return name, end


def _bracket(text: str, at: int) -> tuple[Step, int]:
    """The step in the brackets that begin here, and the place behind them."""
    if text.startswith('["', at):
        end = text.find('"]', at + 2)
        if end < 0:
            raise _bad(text, len(text), '`"]`')
        name = text[at + 2 : end]
        if '"' in name:
            raise _bad(text, at + 2 + name.index('"'), '`"]`')
        _check_characters(text, at + 2, name)
        return name, end + 2
    end = text.find("]", at)
    if end < 0:
        raise _bad(text, len(text), "`]`")
    inside = text[at + 1 : end]
    if not inside:
        return Every.ITEM, end + 1
    digits = inside.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise _bad(text, at + 1, "an index such as 0 or -1, a key in double quotes, or `]`")
    return int(inside), end + 1


def _check_characters(text: str, at: int, name: str) -> None:
    """Refuse characters that no reader of JSON looks for in keys."""
    for place, character in enumerate(name, at):
        if character < " " or character in '"\\' or "\ud800" <= character <= "\udfff":
            raise _bad(text, place, "a name without double quotes, backslashes and control characters")


def _bad(text: str, at: int, expected: str) -> BadPathError:
    found = "its end" if at >= len(text) else f"{text[at : at + 20]!r}"
    return BadPathError(f"path `{text}`, character {at + 1}: expected {expected}, found {found}: {_EXAMPLES}")
