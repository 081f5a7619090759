"""Reads a YAML file together with the line of every value, and expands ${VARIABLES} in its values.

Only what a pipeline file needs: text, numbers, true and false, null, lists and mappings. A number counts as one only where it
is written the plain way, so a password `0123` or a version `1.10` stays the text that stands there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

from schemas.wording import Loc, dotted, shown
from topics.errors import PipelineError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_TAGS = "tag:yaml.org,2002:"
_SCALARS = {"null", "bool", "int", "float", "str", "timestamp", "merge", "value"}
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{[^}]*\}?")
# Aliases of aliases grow without bound ("billion laughs"); no honest pipeline file comes near this.
_MOST_VALUES = 20_000


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML file's content and where each part of it stands."""

    path: Path  # the file as it was named
    # Pipelines are the same that say the same, wherever in their files it stands.
    data: dict[str, object] = field(compare=False)  # mappings are dict, lists are tuple
    lines: Mapping[Loc, int] = field(compare=False)  # 1-based line of each key or list item; () is line 1
    problems: tuple[Problem, ...] = field(compare=False)  # what is wrong with the YAML itself
    broken: frozenset[Loc] = field(compare=False)  # where the problems are: the value there is None and means nothing

    def known(self, loc: Loc) -> Loc:
        """Return `loc` without the steps that the file does not have, such as an absent key."""
        known: Loc = ()
        for step in loc:
            if (*known, step) in self.lines:
                known = (*known, step)
        return known

    def is_broken(self, loc: Loc) -> bool:
        """Say whether the value at `loc`, or one that it is part of, could not be read."""
        return any(loc[:depth] in self.broken for depth in range(len(loc) + 1))


def read_document(path: Path, environ: Mapping[str, str]) -> Document:
    """Read the YAML file at `path`, expanding `${NAME}` and `${NAME:-default}` from `environ` inside its values.

    Raises PipelineError where nothing can be read: no such file, not UTF-8, not YAML, empty, not a mapping. Problems with
    single values (unset variable, key written twice) are returned, so that they can be told together with later ones.
    """
    root = _compose(path, _text(path))
    reader = _Reader(environ)
    try:
        data = reader.value(root, ())
    except RecursionError:
        raise PipelineError(path, [Problem("the YAML is nested too deeply")]) from None
    except _TooManyValuesError:
        message = f"the file has more than {_MOST_VALUES} values, aliases (*name) counted each time. Write fewer."
        raise PipelineError(path, [Problem(message)]) from None
    if not isinstance(data, dict):
        message = f"expected a mapping, such as `name: my-pipeline`, found {shown(data)}"
        raise PipelineError(path, [*reader.problems, Problem(message, root.start_mark.line + 1)])
    return Document(path, data, reader.lines, tuple(reader.problems), frozenset(reader.broken))


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        message = f"cannot read the pipeline file: {error.strerror}. Check the path and its permissions."
        raise PipelineError(path, [Problem(message)]) from None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"expected UTF-8 text, found the byte 0x{raw[error.start]:02x}. Save the file as UTF-8."
        raise PipelineError(path, [Problem(message, line)]) from None


def _compose(path: Path, text: str) -> yaml.Node:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise PipelineError(path, [_syntax_problem(error, text)]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"not valid YAML: the character U+{error.character:04X} is not allowed. Remove it."
        raise PipelineError(path, [Problem(message, line)]) from None
    except RecursionError:
        raise PipelineError(path, [Problem("the YAML is nested too deeply")]) from None
    if root is None:
        raise PipelineError(path, [Problem("the file is empty. Start with `name: my-pipeline`.")])
    return root


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    what = "; ".join(part for part in (error.context, error.problem) if part)
    if "${" in "".join(text.split("\n")[line - 1 : line]):  # as in {env: ${NAME}}: YAML takes the brace for its own
        what += ". Put quotes around a ${NAME} that stands inside { } or [ ]."
    return Problem(f"not valid YAML at column {column}: {what}", line)


class _TooManyValuesError(Exception):
    """Raised inside `_Reader`, told by `read_document`."""


class _Reader:
    """Turns YAML nodes into values, noting lines and problems on the way."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.lines: dict[Loc, int] = {(): 1}
        self.problems: list[Problem] = []
        self.broken: set[Loc] = set()
        self._environ = environ
        self._open: list[yaml.Node] = []  # the collections we are inside of: an alias may lead back to one

    def value(self, node: yaml.Node, loc: Loc) -> object:
        self.lines.setdefault(loc, node.start_mark.line + 1)
        if len(self.lines) > _MOST_VALUES:
            raise _TooManyValuesError
        kind = node.tag.removeprefix(_TAGS)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, kind, loc)
        if any(node is outer for outer in self._open):
            self._problem(loc, "this alias (*name) refers to what it is part of. Write the value out.")
            return None
        self._open.append(node)
        try:
            if isinstance(node, yaml.SequenceNode) and kind == "seq":
                return tuple(self.value(item, (*loc, index)) for index, item in enumerate(node.value))
            if isinstance(node, yaml.MappingNode) and kind == "map":
                return self._mapping(node, loc)
        finally:
            self._open.pop()
        self._problem(loc, f"the YAML tag {node.tag} means nothing here. Remove it.")
        return None

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem("expected text as a key, found a list or mapping", line, dotted(loc)))
                continue
            key: str = key_node.value  # as written: `on:` and `1:` are the keys "on" and "1"
            here = (*loc, key)
            if key in mapping:
                first = self.lines[here]
                self._problem(here, f"this key is written twice, on lines {first} and {line}. Keep one.", line)
                continue
            self.lines[here] = line
            mapping[key] = self.value(value_node, here)
        return mapping

    def _scalar(self, node: yaml.ScalarNode, kind: str, loc: Loc) -> object:
        if kind not in _SCALARS:
            self._problem(loc, f"the YAML tag {node.tag} means nothing here. Remove it.")
            return None
        text = self._expanded(node.value, loc)
        if text is None:
            return None
        if text != node.value and node.style is None:  # a plain scalar: typed by what the variable holds
            resolved = yaml.SafeLoader("").resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
            kind = str(resolved).removeprefix(_TAGS)
        return _typed(text, kind)

    def _expanded(self, text: str, loc: Loc) -> str | None:
        """Return the text with its variables replaced; None, with problems noted, where one cannot be."""
        if "${" not in text:
            return text
        faults: list[str] = []

        def replace(match: re.Match[str]) -> str:
            whole, name, default = match[0], match[1], match[2]
            if whole == "$${":
                return "${"
            if name is None:
                faults.append(f"expected ${{NAME}} or ${{NAME:-default}}, found {whole}. A plain ${{ is written $${{.")
                return ""
            found = self._environ.get(name)
            if not found and default is not None:  # as in the shell: `:-` also stands in for an empty value
                return str(default)
            if found is None:
                advice = f"Set it, or give a default: ${{{name}:-value}}."
                faults.append(f"the environment variable {name} is not set. {advice}")
            return found or ""

        expanded = _VARIABLE.sub(replace, text)
        for fault in faults:
            self._problem(loc, fault)
        return None if faults else expanded

    def _problem(self, loc: Loc, message: str, line: int | None = None) -> None:
        self.broken.add(loc)
        self.problems.append(Problem(message, line or self.lines[loc], dotted(loc)))


def _typed(text: str, kind: str) -> object:
    """Return the text as its YAML type, numbers only where writing them again gives the same text."""
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in {"true", "yes", "on"}
    if kind == "int" and len(text) <= 20 and re.fullmatch(r"-?(0|[1-9][0-9]*)", text):
        return int(text)
    if kind == "float" and re.fullmatch(r"-?[0-9]+\.[0-9]+", text) and repr(float(text)) == text:
        return float(text)
    return text
