"""Reads YAML settings: plain values and the line of each. An unusable file gives one clear message.

The file is untrusted: it can't construct Python objects, and its size, depth and aliases are bounded.
Settings are text, numbers, true and false, null, lists and mappings. Text becomes a number only if writing the number gives the
same text again, so a password `0123` or a version `1.10` stays text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import yaml

from millstream.schemas.wording import Loc, dotted
from millstream.schemas.yaml_syntax import excerpt, syntax_error

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 2**18  # PyYAML needs seconds for a file of this size
# Aliases of aliases can grow without bound ("billion laughs"). Real files of settings are far below this.
MAX_VALUES = 20_000
MAX_FAULTS = 100
_TAG_PREFIX = "tag:yaml.org,2002:"
_SCALAR_TAGS = {"null", "bool", "int", "float", "str", "timestamp", "merge", "value"}
# C libraries end a text at its NUL, and UTF-8 can't encode surrogates.
_UNUSABLE_CHARACTERS = re.compile("[\0\ud800-\udfff]")


class Fault(NamedTuple):
    """A mistake in one part of the file."""

    message: str
    line: int | None = None  # 1-based
    place: str = ""  # such as inputs[0].dtype
    excerpt: str = ""  # the line with a caret below; two lines, all printable


class YamlError(Exception):
    """The file can't be read. Raised by `text_of`, `composed` and `NodeReader.read`; the caller adds the file's name."""

    def __init__(self, message: str, line: int | None = None, excerpt: str = "") -> None:
        super().__init__(message)
        self.fault = Fault(message, line, excerpt=excerpt)


def text_of(path: Path) -> str:
    """Return the file's text. Raises YamlError: too large, or not UTF-8; OSError."""
    with path.open("rb") as file:
        return decoded(file.read(MAX_BYTES + 1))


def advice_on_ending(path: Path) -> str:
    """What to do if a YAML file that must have this name is there under the ending `.yml`; empty if it isn't."""
    other = path.with_suffix(".yml")
    return (
        f"Rename {other} to {path.name}: in a folder, Millstream looks for this name only." if other.is_file() else ""
    )


def decoded(raw: bytes) -> str:
    """Return the text of a file with these bytes. Raises YamlError: too many, or not UTF-8."""
    if len(raw) > MAX_BYTES:
        raise YamlError(f"expected at most {MAX_BYTES} bytes, found more. Check which file it is.")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"expected UTF-8 text, found the byte 0x{raw[error.start]:02x}. Save the file as UTF-8."
        raise YamlError(message, line) from None


def composed(text: str) -> yaml.Node | None:
    """Return the text's node tree; None if it has no value. Raises YamlError: not YAML, or nested too deeply."""
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        what, place = syntax_error(error, text)
        message = f"not valid YAML at column {place.column + 1}: {what}"
        raise YamlError(message, place.line + 1, excerpt(text, place)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"not valid YAML: the character U+{error.character:04X} is not allowed. Remove it."
        raise YamlError(message, line) from None
    except RecursionError:
        raise YamlError("the YAML is nested too deeply", loader.line + 1 if loader else None) from None
    except (
        ValueError,
        OverflowError,
    ):  # raised by PyYAML, for an escape such as "\U00110000" or of a huge %YAML version
        message = "not valid YAML: a number in an escape or a directive is too large. Correct it."
        raise YamlError(message, loader.line + 1 if loader else None) from None


class NodeReader:
    """Turns YAML nodes into values, noting lines and faults on the way: mappings become dict, lists tuple."""

    def __init__(self) -> None:
        self.lines: dict[Loc, int] = {(): 1}  # of each key or list item; () is line 1
        self.faults: list[Fault] = []
        self.broken: set[Loc] = set()  # locations with a fault; their values are None placeholders
        self._open: list[yaml.Node] = []  # the open collections: an alias may refer to one of them

    def read(self, root: yaml.Node) -> object:
        """Return the tree's value. Raises YamlError: nested too deeply, too many values, or too many faults."""
        try:
            return self._value(root, ())
        except RecursionError:
            raise YamlError("the YAML is nested too deeply", root.start_mark.line + 1) from None

    def scalar(self, text: str, kind: str, *, plain: bool, loc: Loc) -> object:  # noqa: ARG002  (for subclasses)
        """Return a scalar's value. `kind`: its YAML type. `plain`: whether it has no quotes."""
        return typed(text, kind)

    def fault(self, loc: Loc, message: str, line: int | None = None) -> None:
        """Note that the value at `loc` can't be used."""
        self.broken.add(loc)
        self._note(Fault(message, line or self.lines[loc], dotted(loc)))

    def _note(self, fault: Fault) -> None:
        self.faults.append(fault)
        if len(self.faults) > MAX_FAULTS:
            first = self.faults[0]
            place = f"{first.place}: " if first.place else ""
            raise YamlError(f"{place}{first.message} More than {MAX_FAULTS} others follow.", first.line)

    def _value(self, node: yaml.Node, loc: Loc) -> object:
        self.lines.setdefault(loc, node.start_mark.line + 1)
        if len(self.lines) > MAX_VALUES:
            message = f"the file has more than {MAX_VALUES} values, aliases (*name) counted each time. Write fewer."
            raise YamlError(message, node.start_mark.line + 1)
        kind = node.tag.removeprefix(_TAG_PREFIX)
        if isinstance(node, yaml.ScalarNode) and kind in _SCALAR_TAGS:
            return self._scalar(node, kind, loc)
        if any(node is outer for outer in self._open):
            self.fault(loc, "this alias (*name) refers to what it is part of. Write the value out.")
            return None
        self._open.append(node)
        try:
            if isinstance(node, yaml.SequenceNode) and kind == "seq":
                return tuple(self._value(item, (*loc, index)) for index, item in enumerate(node.value))
            if isinstance(node, yaml.MappingNode) and kind == "map":
                return self._mapping(node, loc)
        finally:
            self._open.pop()
        self.fault(loc, f"the YAML tag {node.tag} means nothing here. Remove it.")
        return None

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._note(Fault("expected text as a key, found a list or mapping", line, dotted(loc)))
                continue
            key: str = key_node.value  # as written: `on:` and `1:` are the keys "on" and "1"
            if problem := unusable(key):
                self._note(Fault(f"this key {problem}", line, dotted(loc)))
                continue
            here = (*loc, key)
            if key in mapping:
                first = self.lines[here]
                self.fault(here, f"this key is written twice, on lines {first} and {line}. Keep one.", line)
                continue
            self.lines[here] = line
            mapping[key] = self._value(value_node, here)
        return mapping

    def _scalar(self, node: yaml.ScalarNode, kind: str, loc: Loc) -> object:
        value = self.scalar(node.value, kind, plain=node.style is None, loc=loc)
        if isinstance(value, str) and (problem := unusable(value)):
            self.fault(loc, f"this value {problem}")
            return None
        return value


def kind_of(text: str) -> str:
    """Return the YAML type of a scalar without quotes."""
    tag = yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return str(tag).removeprefix(_TAG_PREFIX)


def typed(text: str, kind: str) -> object:
    """Return the text as its YAML type. It becomes a number only if writing the number gives the same text."""
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in {"true", "yes", "on"}
    if kind == "int" and len(text) <= 20 and re.fullmatch(r"-?(0|[1-9][0-9]*)", text):
        return int(text)
    if kind == "float" and re.fullmatch(r"-?[0-9]+\.[0-9]+", text) and repr(float(text)) == text:
        return float(text)
    return text


def unusable(text: str) -> str:
    """Return the problem with the characters of a text; empty: there is none."""
    found = _UNUSABLE_CHARACTERS.search(text)
    return f"holds the character U+{ord(found[0]):04X}, which is not allowed. Remove it." if found else ""
