"""Finds out whether sample events are of several kinds, and whether a field has two names in them. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import takewhile
from shlex import quote
from typing import Any

from millstream.consumers.scaffold.guesses import FieldGuess, InputGuess
from millstream.consumers.scaffold.own_fields import last_name
from millstream.consumers.scaffold.survey import Found
from millstream.consumers.scaffold.texts import entry_text
from millstream.pipeline.conditions import parse_condition
from millstream.schemas.paths import Every, parse_path, value_at
from millstream.schemas.wording import first_of

MAX_KINDS = 20  # different values of a field that tells kinds of events apart
MAX_NAMED = 4  # values that the hint names
_NAMES = ("type", "kind", "event", "name", "action", "operation", "table")  # of such a field, or the ends of its name

Events = Sequence[Mapping[str, Any]]


def hints(events: Events, found: Mapping[str, Found], used: Collection[str]) -> Iterator[str]:
    """Sentences about fields that only some events have, if that follows from another field.

    Args:
        events: that were looked at.
        found: what they have at each path.
        used: paths of the fields that fill the model's inputs, or are the events' ID.
    """
    if kinds := _of_kinds(events, found, used):
        yield kinds
    else:
        yield from _of_names(events, found, used)


def with_fallbacks(inputs: Sequence[InputGuess], events: Events, found: Mapping[str, Found]) -> list[InputGuess]:
    """The guesses, with fallbacks: fields that events have in the place of others."""
    used = [one.options["field"] for entry in inputs for one in entry.fields]
    if _of_kinds(events, found, used):
        return [*inputs]
    made = list[InputGuess]()
    for entry in inputs:
        fields = list[FieldGuess]()
        for one in () if entry.is_list else entry.fields:
            fields.append(_with_fallback(one, events, found, used))
            used += [path for name, path in fields[-1].options.items() if name == "fallback"]  # of one field at most
        made.append(entry if entry.is_list else replace(entry, fields=fields))
    return made


def _with_fallback(one: FieldGuess, events: Events, found: Mapping[str, Found], used: Collection[str]) -> FieldGuess:
    path = one.options["field"]
    other = _in_place_of(path, events, found, used) if one.options.keys() <= {"field", "missing"} else None
    if other is None:
        return one
    count = sum(_having(events, path))
    why = f"{count} of {len(events)} events have {path}, and the other {len(events) - count} have {other} in its place"
    return FieldGuess({"field": path, "fallback": other}, f"{why}; right only if both are one field under two names")


def _of_kinds(events: Events, found: Mapping[str, Found], used: Collection[str]) -> str:
    """That the events are of several kinds, of which only some have a used field; empty: they don't seem to be."""
    having = [_having(events, path) for path in used]
    tells = [one for one in found.values() if one.events == len(events) and _may_tell(one)]
    for one in sorted(tells, key=lambda one: one.path.count(".")):
        kinds = _values_at(events, one.path)
        fields = Counter[str]()  # of each kind: how many used fields its events have
        for has in having:
            own = {kind for kind, there in zip(kinds, has, strict=True) if there}
            others = {kind for kind, there in zip(kinds, has, strict=True) if not there}
            if others and not own & others:
                fields.update(own)
        if fields:
            return _hint(one, max(fields, key=lambda kind: (fields[kind], one.distinct[kind])), len(events))
    return ""


def _of_names(events: Events, found: Mapping[str, Found], used: Collection[str]) -> Iterator[str]:
    """A sentence for each used field in whose place other events have another one."""
    for path in used:
        if (other := _in_place_of(path, events, found, used)) is not None:
            count = sum(_having(events, path))
            yield (
                f"{count} of {len(events)} events have {path}, and the other {len(events) - count} have {other} in its place. If "
                f"both are one field under two names, write fallback: {entry_text({'field': other})} beside it."
            )


def _in_place_of(path: str, events: Events, found: Mapping[str, Found], used: Collection[str]) -> str | None:
    """The path that those events have which lack this one, and no others; None: there is none of its type.

    Of several, the one in the same object, and with the name that is most alike.
    """
    having = _having(events, path)
    if path not in found or all(having) or not any(having):
        return None
    lacking = [not has for has in having]
    others = [
        other.path
        for other in found.values()
        if (other.kind == found[path].kind or (other.is_numeric and found[path].is_numeric))
        and other.path not in used
        and _having(events, other.path) == lacking
    ]
    return max(others, key=lambda other: _likeness(path, other), default=None)


def _likeness(path: str, other: str) -> tuple[bool, float]:
    same = path.rpartition(".")[0] == other.rpartition(".")[0]
    return same, SequenceMatcher(None, last_name(path), last_name(other)).ratio()


def _may_tell(one: Found) -> bool:
    is_called_so = last_name(one.path).lower().endswith(_NAMES) and " " not in one.path  # no condition has such a path
    is_text = {*one.kinds} == {"text"} and not any('"' in text for text in one.distinct)
    return is_called_so and is_text and not one.is_list and 1 < len(one.distinct) <= MAX_KINDS


def _hint(one: Found, kind: str, events: int) -> str:
    counted = first_of([f"{_written(kind)} in {count}" for kind, count in one.distinct.most_common()], MAX_NAMED)
    condition = f"{one.path} == {_written(kind)}"
    return (
        f"The events seem to be of several kinds: {one.path} is {counted} of {events} events, and fields that fill inputs are "
        "only in some of these kinds. If the model is for one kind, create the folder anew with a filter, such as "
        f"--filter {quote(condition)}: it leaves out the others (`millstream docs filter`)."
    )


def _written(kind: str) -> str:
    """A text as a condition has it."""
    with suppress(ValueError):
        if parse_condition(f"f == {kind}").constants == (kind,):
            return kind
    return f'"{kind}"'


def _having(events: Events, path: str) -> list[bool]:
    """For each event, whether it has a value at the path that isn't null."""
    return [value is not None for value in _values_at(events, path)]


def _values_at(events: Events, path: str) -> list[Any]:
    # A list tells as much as its items.
    steps = [*takewhile(lambda step: step is not Every.ITEM, parse_path(path).steps)]
    return [value_at(event, steps) for event in events]
