"""Dead letters in their topic: where they are, which are wanted, what a replay writes. All of it pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self

from millstream.pipeline.units import parse_duration
from millstream.schemas.dead_letters import DeadLetter
from millstream.topics.records import Headers, ReadRecord

REPLAYED: Final = "millstream.replayed"
"""Header of a marker: the letter in the same partition that was replayed, as `partition@offset`."""
REPLAY_ID: Final = "millstream.replay.id"
"""Header of a replayed event: the dead letter it comes from, as `topic/partition/offset`."""
ATTEMPTS: Final = "millstream.attempts"
"""Header of a replayed event: how many times it was tried before, as decimal digits."""

_MOST_DIGITS = 6  # of attempts: nobody replays more often, and the dead letter's field is an int of 32 bits
_POSITION = re.compile(r"([0-9]{1,9})@([0-9]{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a record lies in a topic; written `partition@offset`."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The position that a text such as `3@17` names. Raises ValueError."""
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ValueError(f"expected partition@offset, such as 3@17, found {text[:60]!r}")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A dead letter as it lies in its topic."""

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
    """What can't be read: a partition of the dead-letter topic, none of whose letters is given, or one that is asked for."""

    position: Position  # of a partition: from where on
    error: str


@dataclass(frozen=True, slots=True)
class Selection:
    """Which letters are wanted; an empty set wants all."""

    reasons: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()  # where the events were read
    partitions: frozenset[int] = frozenset()  # the same
    since: int | None = None  # ms since the epoch: given up at this time or later
    until: int | None = None  # ms since the epoch: given up before this time

    def takes(self, letter: DeadLetter) -> bool:
        """Whether the letter is wanted."""
        return (
            (not self.reasons or letter.reason in self.reasons)
            and (not self.topics or letter.topic in self.topics)
            and (not self.partitions or letter.partition in self.partitions)
            and (self.since is None or letter.failed_at >= self.since)
            and (self.until is None or letter.failed_at < self.until)
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """An event ready to be written to its topic once more, and the letter that is replayed with it."""

    position: Position  # of the letter
    topic: str
    partition: int
    key: bytes | None
    value: bytes
    headers: Headers
    timestamp: int | None  # ms since the epoch; None: the time of the replay


@dataclass(frozen=True, slots=True)
class Stays:
    """A letter that is wanted and can't be replayed."""

    position: Position
    why: str


def marker(position: Position) -> list[tuple[str, bytes]]:
    """The headers of the record that says that the letter at `position` was replayed; it has neither key nor value."""
    return [(REPLAYED, str(position).encode())]


def marked(record: ReadRecord) -> Position | None:
    """The letter that a record marks as replayed; None where the record is no marker."""
    if record.value is not None:
        return None
    for name, value in record.headers or ():
        if name == REPLAYED and value is not None:
            try:
                return Position.parse(value.decode())
            except ValueError:  # somebody else's
                return None
    return None


def replay_of(
    stored: StoredLetter, letters: str, original: ReadRecord | None = None, *, keep_timestamp: bool
) -> Replay | None:
    """The event of a letter, to be written again.

    Args:
        stored: the letter.
        letters: the dead-letter topic.
        original: the event as it lies in its topic, for a letter whose value was left out.
        keep_timestamp: whether the event keeps its Kafka timestamp.

    Returns:
        None if the letter has no value and there is no original with readable headers.
    """
    letter, position = stored.letter, stored.position
    value, headers = letter.value, letter.headers
    if value is None:
        if original is None or original.value is None or original.headers is None:
            return None
        value, headers = original.value, original.headers
    # An event may have been replayed before: what that replay said of it is over.
    kept = tuple(header for header in headers if header[0] not in {REPLAY_ID, ATTEMPTS})
    return Replay(
        position=position,
        topic=letter.topic,
        partition=letter.partition,
        key=letter.key,
        value=value,
        headers=(
            *kept,
            (REPLAY_ID, f"{letters}/{position.partition}/{position.offset}".encode()),
            (ATTEMPTS, b"%d" % letter.attempts),
        ),
        timestamp=letter.timestamp if keep_timestamp and letter.timestamp >= 0 else None,
    )


def attempts_before(headers: Iterable[tuple[str, Any]]) -> int:
    """How many times an event was tried before, by its headers; 0 where they don't say, or say what no replay writes."""
    said = [value for name, value in headers if name == ATTEMPTS]
    # Anybody may write headers: nothing in one may end a worker. `isdigit` of bytes takes 0 to 9 only.
    if not said or not isinstance(said[-1], bytes) or not said[-1].isdigit() or len(said[-1]) > _MOST_DIGITS:
        return 0
    return int(said[-1])


def parse_moment(text: str, now: float) -> int:
    """The time that a text names: ISO 8601 (UTC where it names no zone), or how long before `now`, such as 15m or 2h.

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
        except ValueError as error:
            raise ValueError(
                f"expected a time such as 2026-03-01T12:00 (UTC), or how long ago, such as 15m or 2h: {error}"
            ) from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
