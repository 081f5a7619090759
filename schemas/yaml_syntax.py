"""Says what is wrong with the syntax of a YAML file, in plain words and with the line itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import yaml

_MAX_SHOWN: Final = 100  # characters of a line that are shown
# The line may hold a password, and messages end up in logs.
_SECRET: Final = re.compile(r"passw|secret|token|credential|private|api.?key|@", re.IGNORECASE)
_KEY: Final = re.compile(r"\s*(- )?[\w.-]+:(\s|$)")
_PATH_WITH_BRACKETS: Final = re.compile(r"\w\[(-?[0-9]*|\"[^\"]*\")\]")  # such as items[0]
_SPECIAL: Final = re.compile(r"found character '(.)' that cannot start any token")
_LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # where PyYAML, which counts the lines, ends one


class Place(NamedTuple):
    """A place in a text, counted from 0."""

    line: int
    column: int


def syntax_error(error: yaml.MarkedYAMLError, text: str) -> tuple[str, Place]:
    """What is wrong and where, in one line; without the line itself."""
    lines = _LINE_BREAK.split(text)
    mark = error.problem_mark or error.context_mark
    place = Place(mark.line, mark.column) if mark else Place(0, 0)
    return _colon(error, lines, place) or _indent(error, lines, place) or _other(error, lines, place)


def excerpt(text: str, place: Place) -> str:
    """The line, and below it a caret at the place. Empty if the line may hold a secret, or the place is behind the text."""
    lines = _LINE_BREAK.split(text)
    line = lines[place.line] if place.line < len(lines) else ""
    if not line.strip() or _SECRET.search(line):
        return ""
    # One character for each, so that the caret stays below its own, and none has an effect on a terminal.
    shown = "".join("→" if each == "\t" else each if each.isprintable() else "?" for each in line)
    start = max(0, place.column - _MAX_SHOWN // 2)
    return f"{shown[start : start + _MAX_SHOWN]}\n{' ' * (place.column - start)}^"


def _colon(error: yaml.MarkedYAMLError, lines: list[str], place: Place) -> tuple[str, Place] | None:
    """A key without a colon, or a second colon."""
    if error.problem == "could not find expected ':'" and error.context_mark is not None:
        return _no_colon(lines, Place(error.context_mark.line, error.context_mark.column))
    if error.problem != "mapping values are not allowed here":
        return None
    before = lines[place.line][: place.column]
    if re.search(r":\s", before):
        return (
            "a second `:` stands in one value. Put quotes around the value, or begin a new line for a new key.",
            place,
        )
    if (above := _above_without_colon(lines, place)) is not None:
        return _no_colon(lines, above)
    return (
        "this line is indented deeper than the line above, which has a value already. Give both the same indent, or take the "
        "value above away.",
        Place(place.line, len(before) - len(before.lstrip())),
    )


def _above_without_colon(lines: list[str], place: Place) -> Place | None:
    """The nearest line above with something in it, if it is a key without a colon."""
    above = place.line - 1
    while above >= 0 and (not lines[above].strip() or lines[above].lstrip().startswith("#")):
        above -= 1
    if above < 0 or not re.match(r"\s*\w", lines[above]) or _KEY.match(lines[above]):
        return None
    return Place(above, len(lines[above]) - len(lines[above].lstrip()))


def _no_colon(lines: list[str], place: Place) -> tuple[str, Place]:
    written = lines[place.line].strip()
    if _SECRET.search(written) or len(written) > _MAX_SHOWN:
        return "expected a key with a colon and a space, as in `key: value`, found none.", place
    key, _, value = written.partition(" ")
    if re.fullmatch(r"[\w.-]+:\S+", written):
        key, _, value = written.partition(":")
        return f"expected a space after the colon, as in `{key}: {value}`, found none.", place
    if re.fullmatch(r"[\w.-]+", key):
        example = f"`{key}: {value.strip()}`" if value.strip() else f"`{key}:`"
        return f"expected a colon after the key, as in {example}, found none.", place
    return "expected a key with a colon, as in `key: value`, found none.", place


def _indent(error: yaml.MarkedYAMLError, lines: list[str], place: Place) -> tuple[str, Place] | None:
    """A tab, or lines of one section that don't fit each other."""
    problem = error.problem or ""
    if problem.startswith("found character '\\t'"):
        return "a tab stands where YAML allows only spaces. Replace it with spaces.", place
    if problem.startswith("expected <block end>, but found") and not lines[place.line][: place.column].strip():
        if (above := _above_without_colon(lines, place)) is not None:
            return _no_colon(lines, above)
        return (
            "this line doesn't fit the lines above it: its indent is another one, or a list item and a key are side by side. "
            "Give all keys, or all items, of a section the same indent.",
            place,
        )
    return None


def _other(error: yaml.MarkedYAMLError, lines: list[str], place: Place) -> tuple[str, Place]:
    problem, opened = error.problem or "", error.context_mark
    if problem == "found unexpected end of stream" and opened is not None:
        return "this quote isn't closed. Add the closing quote.", Place(opened.line, opened.column)
    if special := _SPECIAL.match(problem):
        return f"a value can't begin with {special[1]}. Put quotes around the value.", place
    if problem.startswith("expected <block end>"):
        return "the value ends before this place. Write a quote inside of quotes twice, or take it away.", place
    if problem.startswith("expected ',' or "):
        return _bracket(error, lines, place)
    return f"{_said(error)}.", place


def _bracket(error: yaml.MarkedYAMLError, lines: list[str], place: Place) -> tuple[str, Place]:
    """Something inside of [ ] or { } that doesn't belong there, or no closing bracket."""
    written, opened = lines[place.line] if place.line < len(lines) else "", error.context_mark
    if "${" in written:  # as in {env: ${NAME}}: YAML treats the brace as its own
        return f"{_said(error)}. Put quotes around a ${{NAME}} that stands inside {{ }} or [ ].", place
    if _PATH_WITH_BRACKETS.search(written):
        return f"{_said(error)}. Put quotes around a path with [ ] that stands inside {{ }} or [ ].", place
    if opened is None:
        return f"{_said(error)}.", place
    bracket = (error.problem or "")[len("expected ',' or '")]
    return f"this bracket isn't closed. Add a comma or `{bracket}`.", Place(opened.line, opened.column)


def _said(error: yaml.MarkedYAMLError) -> str:
    return "; ".join(part for part in (error.context, error.problem) if part)
