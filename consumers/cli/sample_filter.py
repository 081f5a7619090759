"""The option `--filter` of `millstream init`: which events of a sample are looked at."""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.consumers.decode.event_filter import open_filter, types_of
from millstream.consumers.errors import WorkerError
from millstream.pipeline.conditions import ParsedCondition, parse_condition
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.packed import Packed

Events = Sequence[Mapping[str, Any]]


def conditions_of(args: argparse.Namespace) -> tuple[ParsedCondition, ...]:
    """The conditions that are given. Ends the command if one is malformed."""
    try:
        return tuple(map(parse_condition, args.filter))
    except ValueError as error:
        args.parser.error(f"--filter: {error}")
        raise


def passing(events: Events, conditions: tuple[ParsedCondition, ...]) -> Events:
    """The events for which all conditions hold, as a worker filters them.

    Raises:
        WorkerError: none passes, or a condition's path leads to no value.
    """
    if not conditions:
        return events
    try:
        event_filter = open_filter(conditions, JsonDecoder.of_types(types_of(conditions)))
    except ValueError as error:
        raise WorkerError(f"--filter: {error}") from None
    passed, _, read = event_filter.split(Packed.of([json.dumps(event).encode() for event in events]))
    if not len(passed):
        unread = f" In {len(read.bad)} of them, it can't be read: {read.bad[0].error}." if read.bad else ""
        raise WorkerError(
            f"--filter: expected events that pass {event_filter}, found none: {event_filter.examples(read)}.{unread} Correct the "
            "condition, or look at more events with `--limit`."
        )
    return [events[row] for row in passed.tolist()]
