"""A control topic in memory: writers in turns, as Kafka lets them commit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from millstream.consumers.control.state import ControlState, Seen
from millstream.consumers.control.transaction import AbandonedError
from millstream.consumers.control.writer import ControlWriter
from millstream.consumers.rollout.record import RolloutDecoder, RolloutRecord, RolloutVariant
from millstream.consumers.rollout.revisions import Change, first_record, next_record
from millstream.consumers.rollout.slots import whole
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.records import OWN_SCHEMAS_FOLDER, ROLLOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.consumers.rollout.record import RolloutRecord

PIPELINE = "flights"


def decode(value: bytes) -> RolloutRecord:
    return RolloutDecoder(DirectoryStore(OWN_SCHEMAS_FOLDER)).decode(value)


def change(change_id: str, action: str = "set", by: str = "alice") -> Change:
    return Change(change_id, 1_000, by, action, "because")


def started(change_id: str = "c1", current: RolloutRecord | None = None) -> RolloutRecord:
    variants = (RolloutVariant("primary", "delay", 1), RolloutVariant("canary", "delay", 2))
    empty = RolloutRecord(PIPELINE, 1, 0, "", 0, "", "", "", "r1", "manual", "running", variants, whole())
    return first_record(empty, current, change(change_id, "start"))


def shifted(current: RolloutRecord, change_id: str, share: int = 100, by: str = "alice") -> RolloutRecord:
    return next_record(current, change(change_id, by=by), expected=current.revision, shares=(10_000 - share, share))


@dataclass
class Topic:
    """The committed records. `interrupt` is called once, between a writer's begin and its commit."""

    rows: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    epoch: int = 0
    interrupt: Callable[[], object] | None = None
    while_waiting: list[Callable[[], object]] = field(default_factory=list)  # one for each `poll`
    most_polled: int | None = None  # records that one `poll` gives
    read_errors: list[Exception | None] = field(
        default_factory=list
    )  # one for each `read_to_end`, which then reads nothing
    created: int = 1  # how often

    def recreate(self) -> None:
        """Delete the topic, and create it anew."""
        self.rows, self.created = [], self.created + 1

    def compacted(self) -> Topic:
        return replace(self, rows=list({row[0]: row for row in self.rows}.values()))

    def writer(self) -> ControlWriter:
        return ControlWriter(TopicReader(self), lambda: TopicTransaction(self), ROLLOUT.reserved_id)

    def state(self) -> ControlState:
        reader = TopicReader(self)
        reader.read_to_end()
        return reader.state


class TopicReader:
    """As ControlReader."""

    def __init__(self, topic: Topic, pipeline: str = PIPELINE) -> None:
        self._topic = topic
        self._created, self._next = topic.created, 0
        self.state = ControlState(pipeline)

    @property
    def record(self) -> RolloutRecord | None:
        return self.state.record

    @property
    def unknown(self) -> bool:
        return self.state.unknown

    @property
    def problem(self) -> str:
        return self.state.problem

    def poll(self, timeout: float) -> list[Seen]:  # noqa: ARG002
        """What happens while somebody waits happens now."""
        if self._topic.while_waiting:
            self._topic.while_waiting.pop(0)()
        return self._read(self._topic.most_polled)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read_to_end(self) -> list[Seen]:
        error = self._topic.read_errors.pop(0) if self._topic.read_errors else None
        if error is not None:
            raise error
        return self._read(None)

    def _read(self, most: int | None) -> list[Seen]:
        if self._created != self._topic.created:
            self._created, self._next = self._topic.created, 0
        rows = list(enumerate(self._topic.rows))[self._next :][:most]
        self._next += len(rows)
        seen = (self.state.see(offset, key, value, decode) for offset, (key, value) in rows)
        return [own for own in seen if own is not None]


class TopicTransaction:
    """As KafkaTransaction: a newer one fences it."""

    def __init__(self, topic: Topic, *, answer_lost: bool = False) -> None:
        self._topic = topic
        self._epoch = 0
        self._answer_lost = answer_lost

    def begin(self) -> None:
        self._topic.epoch += 1
        self._epoch = self._topic.epoch

    def commit(self, rows: Sequence[tuple[bytes, bytes | None]], check: Callable[[], None]) -> None:
        interrupt, self._topic.interrupt = self._topic.interrupt, None
        if interrupt is not None:
            interrupt()
        if self._epoch != self._topic.epoch:
            raise AbandonedError("another writer of this rollout came in between")
        check()
        self._topic.rows += rows
        if self._answer_lost:
            raise AbandonedError("the broker did not answer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
