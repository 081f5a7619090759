"""Reads a pipeline file together with the line of every value, and expands ${VARIABLES} in its values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.pipeline.errors import PipelineError, Problem
from millstream.pipeline.wrong_path import advice_on_missing
from millstream.schemas import git_lfs
from millstream.schemas.wording import Loc, shown
from millstream.schemas.yaml_file import NodeReader, YamlError, composed, kind_of, text_of, typed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{[^}]*\}?")


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a YAML file, with the line of each part."""

    path: Path  # the file as it was named
    # The following fields don't count: two pipelines are equal if their settings are.
    data: dict[str, object] = field(compare=False)  # mappings are dict, lists are tuple
    lines: Mapping[Loc, int] = field(compare=False)  # 1-based line of each key or list item; () is line 1
    problems: tuple[Problem, ...] = field(compare=False)  # what is wrong with the YAML itself
    broken: frozenset[Loc] = field(
        compare=False
    )  # the places of the problems; the values there are None, as placeholders

    def known(self, loc: Loc) -> Loc:
        """Return `loc` without the steps that are not in the file, such as a missing key."""
        known: Loc = ()
        for step in loc:
            if (*known, step) in self.lines:
                known = (*known, step)
        return known

    def is_broken(self, loc: Loc) -> bool:
        """Return whether the value at `loc`, or one that it is part of, could not be read."""
        return any(loc[:depth] in self.broken for depth in range(len(loc) + 1))


def read_document(path: Path, environ: Mapping[str, str]) -> Document:
    """Read the YAML file at `path`, expanding `${NAME}` and `${NAME:-default}` from `environ` inside its values.

    Raises PipelineError where nothing can be read: no such file, not UTF-8, not YAML, empty, not a mapping. Problems with
    single values (unset variable, key written twice) are returned, so that they can be told together with later ones.
    """
    reader = _Reader(environ)
    try:
        root = composed(text_of(path))
        if root is None:
            raise PipelineError(path, [Problem("the file is empty. Start with `name: my-pipeline`.")])
        data = reader.read(root)
    except YamlError as error:
        raise PipelineError(path, [Problem(*error.fault)]) from None
    except FileNotFoundError as error:
        message = f"cannot read the pipeline file: {error.strerror}. {advice_on_missing(path)}"
        raise PipelineError(path, [Problem(message)]) from None
    except OSError as error:
        message = f"cannot read the pipeline file: {error.strerror}. Check the path and its permissions."
        raise PipelineError(path, [Problem(message)]) from None
    problems = [Problem(*fault) for fault in reader.faults]
    if not isinstance(data, dict):
        found = git_lfs.FOUND if str(data).startswith(git_lfs.HEAD) else shown(data)
        message = f"expected a mapping, such as `name: my-pipeline`, found {found}"
        raise PipelineError(path, [*problems, Problem(message, root.start_mark.line + 1)])
    return Document(path, data, reader.lines, tuple(problems), frozenset(reader.broken))


class _Reader(NodeReader):
    """Expands variables in the values."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__()
        self._environ = environ

    def scalar(self, text: str, kind: str, *, plain: bool, loc: Loc) -> object:
        """See `NodeReader`."""
        expanded = self._expanded(text, loc)
        if expanded is None:
            return None
        # The type of a plain scalar follows from the variable's content.
        return typed(expanded, kind_of(expanded) if plain and expanded != text else kind)

    def _expanded(self, text: str, loc: Loc) -> str | None:
        """Return the text with its variables replaced. If one can't be, note the problems and return None."""
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
            self.fault(loc, fault)
        return None if faults else expanded
