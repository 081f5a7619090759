"""Finds paths that lead nowhere in all events of a sample, such as those with a typo. Without a schema, nothing else can."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Any

from millstream.consumers.scaffold.own_fields import last_name
from millstream.consumers.scaffold.survey import survey
from millstream.schemas.paths import Every, Step, parse_path, text_of, value_at
from millstream.schemas.wording import meant

MAX_SURVEYED = 200  # events that are searched for a similar path
SHORT_LISTS = " Their lists are shorter, or have no value there."
EMPTY_LISTS = " Their lists are empty."


class MissingFields:
    """Counts the events that have none of these paths."""

    def __init__(self, paths: Collection[str], instead: Mapping[str, str], of_lists: Collection[str]) -> None:
        """Args:
        paths: of the fields.
        instead: of fields that may be absent: what the model gets then.
        of_lists: paths that may lead to a list.
        """
        self._instead = instead
        self._steps = {path: parse_path(path).steps for path in paths}
        self._read = {*map(text_of, self._steps.values())}
        self._of_lists = of_lists
        self._absent = dict.fromkeys(paths, 0)  # how many events lack it
        self._surveyed: list[Mapping[str, Any]] = []

    def note(self, event: Mapping[str, Any]) -> None:
        """Take an event into account."""
        for path in [*self._absent]:
            values = _values_at(event, self._steps[path])
            if any(value is not None for value in values):
                del self._absent[path]
            elif values:  # an empty list doesn't show what its items would be
                self._absent[path] += 1
        if len(self._surveyed) < MAX_SURVEYED:
            self._surveyed.append(event)

    @property
    def paths(self) -> Collection[str]:
        """The paths that none of the events has."""
        return self._absent

    def warnings(self) -> Iterator[str]:
        """One line per path that none of several events has, with the nearest one that the events have."""
        lacking = {
            path: events for path, events in self._absent.items() if events > 1
        }  # a single one may lack it by right
        if not lacking:
            return
        surveyed = survey(self._surveyed)
        for path, events in lacking.items():
            advice = EMPTY_LISTS
            if not self._has_empty_lists(path):
                advice = _advice(path, surveyed, self._read, is_list=path in self._of_lists)
            instead = f"; {self._instead[path]}" if path in self._instead else ""
            yield f"warning: field {path} was missing or null in {events} of {events} events{instead}.{advice}"

    def _has_empty_lists(self, path: str) -> bool:
        """Whether the path leads into lists that are empty in all events: these don't show what their items would be."""
        to_list = [*takewhile(lambda step: isinstance(step, str), self._steps[path])]
        lists = [value_at(event, to_list) for event in self._surveyed]
        return [] in lists and not any(lists)


def _values_at(value: Any, steps: Sequence[Step]) -> list[Any]:
    """The values at these steps: with `[]`, one for each item of the list; None where a step leads nowhere."""
    for depth, step in enumerate(steps):
        if step is Every.ITEM:
            items = value if isinstance(value, list) else [None]
            return [found for item in items for found in _values_at(item, steps[depth + 1 :])]
        value = value_at(value, [step])
    return [value]


def _advice(path: str, surveyed: Collection[str], read: Collection[str], *, is_list: bool) -> str:
    """What may be wrong with the path, with a space before it; empty if it is right, but null, or if nothing is like it.

    Args:
        path: the path that the events lack.
        surveyed: the paths that they have.
        read: the paths that fill something: none of them is the one that was meant.
        is_list: whether the path may lead to a list.
    """
    steps = parse_path(path).steps
    own = text_of(steps)
    if own in surveyed:
        return ""
    other = Every.ITEM if is_list else 0
    there = [near for near in (_with_indices(found, steps, other) for found in surveyed) if near.count("[]") <= 1]
    if own in there:
        return SHORT_LISTS
    # Paths into the same record are alike, whatever their last names are.
    return meant(
        own, [near for near in there if near not in read and get_close_matches(last_name(own), [last_name(near)])]
    )


def _with_indices(found: str, steps: Sequence[Step], other: Step) -> str:
    """A path of the survey, which has `[]` for each list, with the indices that a path with these steps has, and `other`."""
    given = iter([step for step in steps if not isinstance(step, str)])
    return text_of([next(given, other) if step is Every.ITEM else step for step in parse_path(found).steps])
