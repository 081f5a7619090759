"""Renamed options. The former names work for one more version, with a warning."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final, get_args

from millstream.pipeline.errors import Problem
from millstream.pipeline.sections import Reason
from millstream.schemas.wording import dotted

if TYPE_CHECKING:
    from millstream.pipeline.yaml_places import Document
    from millstream.schemas.wording import Loc

log = logging.getLogger(__name__)

RENAMED: Final = {  # (section, former name) -> name; CHANGELOG.md lists them
    ("limits", "held_events"): "in_flight_events",
    ("limits", "held_bytes"): "in_flight_bytes",
    ("model", "in_flight"): "concurrent_batches",
    ("shadows", "share"): "sample_rate",  # of each shadow
    ("shadows", "detached"): "dedicated",
    ("shadows", "budget"): "max_load",
}
_REASONS: Final = get_args(Reason)  # each was an option of `on_error`, with one of these values
_ACTIONS: Final = ("dead_letter", "stop")
_FORMER_ACTIONS: Final = {"expired": (*_ACTIONS, "skip")}


def with_new_names(document: Document) -> Document:
    """The document with each option under its present name. An option under both names is a problem."""
    data, lines, problems = dict(document.data), dict(document.lines), list(document.problems)
    for (section, former), name in RENAMED.items():
        options = data.get(section)
        if isinstance(options, dict):
            data[section] = _with_new_name(document, (section,), options, former, name, lines, problems)
        elif isinstance(options, tuple):  # a list of them
            data[section] = tuple(
                _with_new_name(document, (section, number), item, former, name, lines, problems)
                for number, item in enumerate(options)
            )
    if "on_error" in data:
        data["on_error"] = _with_lists_of_reasons(document)
    return replace(document, data=data, lines=lines, problems=tuple(problems))


def _with_new_name(
    document: Document,
    loc: Loc,
    options: object,
    former: str,
    name: str,
    lines: dict[Loc, int],
    problems: list[Problem],
) -> object:
    """The options at `loc`, with one of them under its present name. `lines` gets its place, and `problems` its problems."""
    if not isinstance(options, dict) or former not in options:
        return options
    line = document.lines[*loc, former]
    if name in options:
        said = f"expected one of {former} and {name}, found both: they are one option. Keep {name}."
        problems.append(Problem(said, line, dotted((*loc, former))))
    log.warning(
        "%s line %d: %s is now %s; the former name works in this version only",
        *(document.path, line, dotted((*loc, former)), dotted((*loc, name))),
    )
    depth = len(loc)
    lines |= {
        (*loc, name, *place[depth + 1 :]): at
        for place, at in document.lines.items()
        if place[: depth + 1] == (*loc, former)
    }
    return {name if key == former else key: value for key, value in options.items()}


def _with_lists_of_reasons(document: Document) -> object:
    """The section `on_error`. Its former form, an action for each reason, becomes a list of reasons for each action."""
    options = document.data["on_error"]
    if not isinstance(options, dict) or options.keys() & {"stop", "skip"} or not options.keys() & set(_REASONS):
        return options
    if any(options.get(r) not in _FORMER_ACTIONS.get(r, _ACTIONS) for r in options.keys() & set(_REASONS)):
        return options  # its problems are reported elsewhere
    lists = {action: tuple(r for r in _REASONS if options.get(r) == action) for action in ("stop", "skip")}
    present = ", ".join(f"{action}: [{', '.join(reasons)}]" for action, reasons in lists.items() if reasons)
    log.warning(
        "%s line %d: on_error lists the reasons of an action now; the former names work in this version only. %s",
        *(document.path, document.lines["on_error",]),
        f"Write on_error: {{{present}}}" if present else "Leave on_error out: each reason makes a dead letter",
    )
    return {**lists, **{key: value for key, value in options.items() if key not in _REASONS}}
