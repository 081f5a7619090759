"""Options under their former names, which go on working for one version, with a warning."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.pipeline.errors import Problem

if TYPE_CHECKING:
    from millstream.pipeline.yaml_places import Document
    from millstream.schemas.wording import Loc

log = logging.getLogger(__name__)

RENAMED: Final = {  # (section, former name) -> name; CHANGELOG.md lists them
    ("limits", "held_events"): "in_flight_events",
    ("limits", "held_bytes"): "in_flight_bytes",
    ("model", "in_flight"): "concurrent_batches",
}


def with_new_names(document: Document) -> Document:
    """The document with each option under its present name. An option that has both names is a problem."""
    data, lines, problems = dict(document.data), dict(document.lines), list(document.problems)
    for (section, former), name in RENAMED.items():
        options = data.get(section)
        if not isinstance(options, dict) or former not in options:
            continue
        line = lines[section, former]
        if name in options:
            said = f"expected one of {former} and {name}, found both: they are one option. Keep {name}."
            problems.append(Problem(said, line, f"{section}.{former}"))
        log.warning(
            "%s line %d: %s.%s is now %s.%s; the former name works in this version only",
            *(document.path, line, section, former, section, name),
        )
        data[section] = {name if key == former else key: value for key, value in options.items()}
        lines |= {_renamed(place, section, former, name): at for place, at in document.lines.items()}
    return replace(document, data=data, lines=lines, problems=tuple(problems))


def _renamed(place: Loc, section: str, former: str, name: str) -> Loc:
    return (section, name, *place[2:]) if place[:2] == (section, former) else place
