"""Guesses which fields of the events are their ID and their time. Pure."""

import re
from collections.abc import Mapping, Sequence

from millstream.consumers.scaffold.element import differing_times, malformed
from millstream.consumers.scaffold.guesses import FieldGuess
from millstream.consumers.scaffold.survey import MAX_DISTINCT, Found
from millstream.consumers.scaffold.texts import entry_text
from millstream.schemas.wording import first_of

ID_NAMES = ("event_id", "id", "uuid", "key")  # in order of preference; and names that end in _id
TIME_NAMES = (
    "event_time",
    "timestamp",
    "ts",
    "time",
    "at",
    "occurred_at",
    "created_at",
)  # and names that end in _at or _time
_UNIT = re.compile("_(s|ms|us)$")
_NEARLY_ALL = 0.9  # of the events: a sample may have a few that are broken
_MAX_NAMED = 3  # fields that are named as possible IDs or times


def event_id_of(found: Mapping[str, Found], events: int) -> FieldGuess | None:
    """The field that identifies an event: it is called like an ID, and all its values differ.

    All events have it; or nearly all, if its name says that it is the event's own, and not for example that of a refund.
    """
    fitting = [one for one in found.values() if is_id(one.path) and _differs(one)]
    fitting = [
        one for one in fitting if one.events == events or (one.events >= _NEARLY_ALL * events and _is_own(one.path))
    ]
    best = min(
        fitting, key=lambda one: (_depth(one.path), one.events < events, _rank(one.path, ID_NAMES)), default=None
    )
    if best is None:
        return None
    all_differ = (
        "all differ" if best.events <= MAX_DISTINCT else f"the {MAX_DISTINCT:,} values that were compared differ"
    )
    why = "it is in the only event" if events == 1 else f"all {events:,} events have it, and {all_differ}"
    if lacking := events - best.events:
        why = f"{all_differ}; {lacking} of {events:,} events lack it: these become dead letters (`unfit`)"
    if rivals := [one.path for one in fitting if one is not best]:
        why += f"; other IDs do, too: {first_of(rivals, _MAX_NAMED)}. Take the one that names the event"
    if refused := sum(best.kinds[kind] for kind in ("bool", "float", "large", "odd")):
        why += (
            f"; {refused} of {best.kinds.total()} values are neither texts nor whole numbers: these events become dead "
            "letters (`undecodable`); let the producer send texts or whole numbers"
        )
    return FieldGuess({"field": best.path}, why)


def why_no_event_id(found: Mapping[str, Found], events: int) -> str:
    """Why no field is taken as the ID, and which ones may be it although they aren't called like one."""
    if events == 1:
        return "the only event has no text or whole number with a name like id or order_id"
    compared = "" if events <= MAX_DISTINCT else f", of which {MAX_DISTINCT:,} were compared"
    each = f"each of the {events:,} events{compared}"
    why = f"no field with a name like id or order_id has a different text or whole number in {each}"
    others = [one for one in found.values() if one.events == events and _differs(one)]
    others = [one for one in others if not one.time_format and not one.is_prose]
    if not others:
        return why
    others.sort(key=lambda one: one.kind != "text")  # a whole number that differs is often an amount
    named = first_of([entry_text({"field": one.path}) for one in others], _MAX_NAMED)
    return f"{why}. Fields with other names that do: {named}. If one of them identifies an event, write it as event_id"


def _differs(one: Found) -> bool:
    """Whether each event that has the field has a value of its own there, as far as values are remembered."""
    compared = min(one.events, MAX_DISTINCT)
    return one.kind in {"text", "int"} and not one.is_list and one.distinct.total() == len(one.distinct) == compared


def event_time_of(found: Mapping[str, Found], events: int) -> FieldGuess | None:
    """The field that says when an event happened: by its name, or the only one of which all values are times as text.

    Fields that all events have come first.
    """
    fitting = [one for one in found.values() if one.time_format and _is_time(one.path)]
    texts = [one for one in found.values() if one.time_format == "iso8601" and not any(malformed(one))]
    best = min(
        fitting,
        key=lambda one: (one.events < events, _rank(_unit_off(one.path), TIME_NAMES)),
        default=texts[0] if len(texts) == 1 else None,
    )
    if best is None:
        return None
    only = "" if fitting else ", and no other field's do"
    why = f"its values look like {best.time_format}{only}"
    others = [differing_times(best)] if best.differing else []
    rivals = [one.path for one in found.values() if one.time_format and one is not best and not is_id(one.path)]
    if rivals:
        others.append(
            f"other fields have times, too: {first_of(rivals, _MAX_NAMED)}. Take the one that says when the event happened"
        )
    if best.events < events:
        others.append(f"{events - best.events} of {events} events lack it, and their time is that of their records")
    return FieldGuess({"field": best.path, "format": best.time_format}, "; ".join([why, *others, *malformed(best)]))


def why_no_event_time(found: Mapping[str, Found]) -> str:
    """Why no field is taken as the time, and which ones may be it although they aren't called like one."""
    times = [one for one in found.values() if one.time_format]
    why = "no field is called like a time and has values that look like times"
    if not times:
        return why
    named = first_of([entry_text({"field": one.path}) for one in times], _MAX_NAMED)
    return (
        f"{why}. Values of other fields do: {named}. If one of them says when an event happened, write it as event_time"
    )


def _is_own(path: str) -> bool:
    """Whether a field is called like the ID of the event itself."""
    return squeezed(last_name(path)) in map(squeezed, ID_NAMES)


def _depth(path: str) -> int:
    return path.count(".")


def is_id(path: str) -> bool:
    """Whether a field is called like an ID."""
    last = last_name(path).lower()
    return last in ID_NAMES or last.endswith(("_id", "uuid")) or last_name(path).endswith("Id")


def _unit_off(path: str) -> str:
    """The path without the unit at its end, such as that of `ts_ms`."""
    return _UNIT.sub("", path)


def _is_time(path: str) -> bool:
    last = last_name(_unit_off(path)).lower()
    is_called_so = last in TIME_NAMES or last.endswith(("_at", "time", "date", "timestamp"))
    return is_called_so or last_name(path).endswith("At")


def _rank(path: str, names: Sequence[str]) -> tuple[int, int]:
    """Fields at the top come first; among them, those with a usual name."""
    last = last_name(path).lower()
    return _depth(path), names.index(last) if last in names else len(names)


def squeezed(name: str) -> str:
    """A name without case and separators: `orderId` and `order_id` are the same."""
    return "".join(character for character in name.lower() if character.isalnum())


def last_name(path: str) -> str:
    """The last name of a path."""
    return path.rpartition(".")[2]
