"""The option `--filter` of `millstream init`: which events of a sample are looked at."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.consumers.decode.event_filter import EventFilter, open_filter
from millstream.consumers.errors import WorkerError
from millstream.pipeline.conditions import ParsedCondition, parse_condition
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.packed import Packed

Events = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class SampleFilter:
    """Finds the events for which all conditions hold, as a worker does."""

    conditions: tuple[ParsedCondition, ...] = ()
    _filter: EventFilter | None = None  # None: there are no conditions

    @classmethod
    def of(cls, args: argparse.Namespace) -> "SampleFilter":
        """The filter that is given. Ends the command if a condition is malformed.

        Raises:
            WorkerError: a condition's path leads to no value.
        """
        try:
            conditions = tuple(map(parse_condition, args.filter))
        except ValueError as error:
            args.parser.error(f"--filter: {error}")
            raise
        if not conditions:
            return cls()
        try:
            return cls(conditions, open_filter(conditions, JsonDecoder.of_types))
        except ValueError as error:
            raise WorkerError(f"--filter: {error}") from None

    def passes(self, event: Mapping[str, Any]) -> bool:
        """Whether all conditions hold."""
        return self._filter is None or len(self._filter.split(_packed([event])).passed) > 0

    def passing(self, events: Events) -> Events:
        """The events that pass. Raises WorkerError: there is none."""
        if self._filter is None:
            return events
        values, passed, _, bad = self._filter.split(_packed(events))
        if not len(passed):
            unread = f" In {len(bad)} of them, it can't be read: {bad[0].error}." if bad else ""
            raise WorkerError(
                f"--filter: expected events that pass {self._filter}, found none: "
                f"{self._filter.examples(values)}.{unread} Correct the condition, or give a sample that has such events."
            )
        return [events[row] for row in passed.tolist()]


def _packed(events: Events) -> Packed:
    return Packed.of([json.dumps(event).encode() for event in events])
