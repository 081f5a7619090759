"""Guesses which fields of the events are their ID and their time. Pure."""

from collections.abc import Mapping, Sequence

from millstream.consumers.scaffold.element import differing_times, malformed
from millstream.consumers.scaffold.guesses import FieldGuess
from millstream.consumers.scaffold.survey import Found

ID_NAMES = ("event_id", "id", "uuid", "key")  # in order of preference; and names that end in _id
TIME_NAMES = (
    "event_time",
    "timestamp",
    "ts",
    "time",
    "occurred_at",
    "created_at",
)  # and names that end in _at or _time


def event_id_of(found: Mapping[str, Found], events: int) -> FieldGuess | None:
    """The field that identifies an event: all events have it, and all values differ."""
    fitting = [
        one
        for one in found.values()
        if one.kind in {"text", "int"} and not one.is_list and one.events == events == len(one.distinct)
    ]
    best = min((one for one in fitting if is_id(one.path)), key=lambda one: _rank(one.path, ID_NAMES), default=None)
    if best is None:
        return None
    why = "it is in the only event" if events == 1 else f"all {events} events have it, and all differ"
    if refused := sum(best.kinds[kind] for kind in ("bool", "float", "odd")):
        why += (
            f"; {refused} of {best.kinds.total()} values are neither texts nor whole numbers: these events become dead "
            "letters (`undecodable`); let the producer send texts or whole numbers"
        )
    return FieldGuess({"field": best.path}, why)


def event_time_of(found: Mapping[str, Found]) -> FieldGuess | None:
    """The field that says when an event happened: by its name, or the only one of which all values are times as text."""
    fitting = [one for one in found.values() if one.time_format and _is_time(one.path)]
    texts = [
        one for one in found.values() if one.time_format == "iso8601" and not one.is_list and not any(malformed(one))
    ]
    best = min(fitting, key=lambda one: _rank(one.path, TIME_NAMES), default=texts[0] if len(texts) == 1 else None)
    if best is None:
        return None
    only = "" if fitting else ", and no other field's do"
    why = f"its values look like {best.time_format}{only}"
    others = [differing_times(best)] if best.differing else []
    return FieldGuess({"field": best.path, "format": best.time_format}, "; ".join([why, *others, *malformed(best)]))


def is_id(path: str) -> bool:
    """Whether a field is called like an ID."""
    last = last_name(path).lower()
    return last in ID_NAMES or last.endswith(("_id", "uuid")) or last_name(path).endswith("Id")


def _is_time(path: str) -> bool:
    last = last_name(path).lower()
    return last in TIME_NAMES or last.endswith(("_at", "_time", "time", "date", "timestamp"))


def _rank(path: str, names: Sequence[str]) -> tuple[int, int]:
    """Fields at the top come first; among them, those with a usual name."""
    last = last_name(path).lower()
    return path.count("."), names.index(last) if last in names else len(names)


def last_name(path: str) -> str:
    """The last name of a path."""
    return path.rpartition(".")[2]
