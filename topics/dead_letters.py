"""Dead letters in their topic: positions, filters, and the records that a replay writes. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

from millstream.schemas.dead_letters import DeadLetter
from millstream.schemas.units import parse_duration
from millstream.topics.attempts import ATTEMPTS
from millstream.topics.records import Headers, ReadRecord

REPLAYED: Final = "millstream.replayed"
"""Header of a marker: the letter in the same partition that was replayed, as `partition@offset`."""
REPLAY_ID: Final = "millstream.replay.id"
"""Header of a replayed event: the dead letter it comes from, as `topic/partition/offset`."""

_ITEM = re.compile(r"\[-?[0-9]+\]", re.ASCII)  # the index of an item in a path
_POSITION = re.compile(r"([0-9]{1,9})@([0-9]{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The position of a record in a topic; as text `partition@offset`."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a text such as `3@17`. Raises ValueError."""
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ValueError(f"expected partition@offset, such as 3@17, found {text[:60]!r}")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A dead letter in its topic."""

    position: Position
    letter: DeadLetter
    replayed_at: int | None = None  # ms since the epoch; None: not replayed


@dataclass(frozen=True, slots=True)
class NoLetter:
    """A record of the dead-letter topic that is neither a dead letter nor a marker."""

    position: Position
    error: str


@dataclass(frozen=True, slots=True)
class Unread:
    """A partition of the dead-letter topic that can't be read to its end, none of whose letters is returned; or a letter that
    was asked for and is not there.
    """

    position: Position  # of a partition: where reading stopped
    error: str


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter for letters. An empty collection accepts all."""

    reasons: frozenset[str] = frozenset()
    errors: tuple[str, ...] = ()  # parts of the letter's error, whatever their case: one is in it
    fields: tuple[str, ...] = ()  # paths: the letter's error is about one of these fields, or about a field in it
    topics: frozenset[str] = frozenset()  # the topics of the events
    partitions: frozenset[int] = frozenset()  # the partitions of the events
    since: int | None = None  # ms since the epoch: failed at this time or later
    until: int | None = None  # ms since the epoch: failed before this time

    def takes(self, letter: DeadLetter) -> bool:
        """Whether the filter accepts the letter."""
        return (
            (not self.reasons or letter.reason in self.reasons)
            and (not self.errors or any(part.lower() in letter.error.lower() for part in self.errors))
            and (not self.fields or any(_is_about(letter.error, field) for field in self.fields))
            and (not self.topics or letter.topic in self.topics)
            and (not self.partitions or letter.partition in self.partitions)
            and (self.since is None or letter.failed_at >= self.since)
            and (self.until is None or letter.failed_at < self.until)
        )


def _is_about(error: str, field: str) -> bool:
    """Whether an error is about a field, or about a field in it. Items of a list count alike."""
    path = re.escape(_ITEM.sub("[]", field))
    return re.search(rf"(?:^|field [`']){path}[`'.:\[]", _ITEM.sub("[]", error)) is not None


@dataclass(frozen=True, slots=True)
class Replay:
    """An event to write to its topic again, and the letter that it comes from."""

    position: Position  # of the letter
    topic: str
    partition: int
    key: bytes | None
    value: bytes
    headers: Headers
    timestamp: int | None  # ms since the epoch; None: the time of the replay
    copy_of: Position | None = None  # another letter of this event, with which it is written already


@dataclass(frozen=True, slots=True)
class Stays:
    """A letter that can't be replayed, although the filter accepts it."""

    position: Position
    why: str


def marker(position: Position) -> list[tuple[str, bytes]]:
    """The headers of the marker for the replayed letter at `position`. A marker has no key and no value."""
    return [(REPLAYED, str(position).encode())]


def marked(record: ReadRecord) -> Position | None:
    """The letter that a marker is for; None if the record is not a marker."""
    if record.value is not None:
        return None
    for name, value in record.headers or ():
        if name == REPLAYED and value is not None:
            try:
                return Position.parse(value.decode())
            except ValueError:  # not a marker of Millstream
                return None
    return None


def replay_of(
    stored: StoredLetter, letters: str, original: ReadRecord | None = None, *, keep_timestamp: bool
) -> Replay | None:
    """Create the replay of a letter.

    Args:
        stored: the letter.
        letters: the dead-letter topic.
        original: the event from its own topic, for a letter without a value.
        keep_timestamp: whether the event keeps its Kafka timestamp.

    Returns:
        None if the letter has no value and there is no original with readable headers.
    """
    letter, position = stored.letter, stored.position
    key, value, headers = letter.key, letter.value, letter.headers
    if value is None:
        if original is None or original.value is None or original.headers is None:
            return None
        key, value, headers = original.key, original.value, original.headers
    # The headers of an earlier replay of this event are replaced.
    kept = tuple(header for header in headers if header[0] not in {REPLAY_ID, ATTEMPTS})
    return Replay(
        position=position,
        topic=letter.topic,
        partition=letter.partition,
        key=key,
        value=value,
        headers=(
            *kept,
            (REPLAY_ID, f"{letters}/{position.partition}/{position.offset}".encode()),
            (ATTEMPTS, b"%d" % letter.attempts),
        ),
        timestamp=letter.timestamp if keep_timestamp and letter.timestamp >= 0 else None,
    )


def parse_moment(text: str, now: float) -> int:
    """Parse a time: ISO 8601 (UTC if it has no zone), or a duration before `now`, such as 15m or 2h.

    Args:
        text: the text.
        now: seconds since the epoch.

    Returns:
        milliseconds since the epoch.

    Raises:
        ValueError: with what was expected and found.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return round((now - parse_duration(text)) * 1000)
        except ValueError:
            raise ValueError(
                f"expected a time such as 2026-03-01T12:00 (UTC), or how long ago, such as 15m or 2h, found {text!r}"
            ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
