"""Checks the result of each event: compares the events sent with the records that a read-committed reader found. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Sent:
    """An event that the broker has acknowledged."""

    id: str
    key: bytes
    seq: int  # position among the key's events, in the order in which they were sent
    partition: int  # of the input topic
    offset: int


@dataclass(frozen=True, slots=True)
class Result:
    """A prediction, or a dead letter."""

    id: str  # ID of its event
    key: bytes
    topic: str  # it was read from
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The errors found. All fields are empty if each event has exactly one result and each key keeps its order."""

    lost: tuple[str, ...] = ()  # ids of events without a result
    doubled: tuple[str, ...] = ()  # ids of events with more than one
    reordered: tuple[bytes, ...] = ()  # keys whose first results are not in the order of their events
    unknown: tuple[str, ...] = ()  # ids of results without an event that was sent
    skipped: tuple[str, ...] = ()  # ids of events without a result below their partition's committed offset

    def __str__(self) -> str:
        """The number of errors of each kind, and the first three."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return (
            "; ".join(f"{len(some)} {name}: {some[:3]}" for name, some in found.items() if some) or "nothing is wrong"
        )


RIGHT = Verdict()


def check(sent: Sequence[Sent], results: Sequence[Result], committed: Mapping[int, int]) -> Verdict:
    """Compare.

    Args:
        sent: all events, in any order.
        results: of all output topics; those of one partition in the order of their offsets.
        committed: the group's committed offset of each input partition that has one.
    """
    events = {event.id: event for event in sent}
    if len(events) != len(sent):
        raise ValueError("the load itself is wrong: two events have the same id")
    answers = Counter(result.id for result in results)
    lost = [event for event in sent if event.id not in answers]
    return Verdict(
        lost=tuple(event.id for event in lost),
        doubled=tuple(event_id for event_id, count in answers.items() if count > 1),
        reordered=tuple(_reordered(events, results)),
        unknown=tuple(event_id for event_id in answers if event_id not in events),
        skipped=tuple(event.id for event in lost if event.offset < committed.get(event.partition, 0)),
    )


def _reordered(events: Mapping[str, Sent], results: Iterable[Result]) -> Iterable[bytes]:
    """The keys whose results are out of order. Only the first result of each event counts."""
    of_key: dict[tuple[str, bytes], list[Result]] = defaultdict(list)
    seen: set[str] = set()
    for result in results:
        if result.id in events and result.id not in seen:
            seen.add(result.id)
            of_key[result.topic, result.key].append(result)
    wrong: dict[bytes, None] = {}
    for (_, key), answers in of_key.items():
        numbers = [events[answer.id].seq for answer in answers]
        strangers = any(events[answer.id].key != key for answer in answers)
        if numbers != sorted(numbers) or strangers or len({answer.partition for answer in answers}) > 1:
            wrong[key] = None
    return wrong
