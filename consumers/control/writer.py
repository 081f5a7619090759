"""Writes changes of a rollout by compare-and-set: a change counts only if it replaces the newest revision."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Final, Protocol

from millstream.consumers.control.errors import ChangeRefusedError, ControlTopicError
from millstream.consumers.control.transaction import AbandonedError, Transaction
from millstream.consumers.rollout.record import encode_rollout
from millstream.consumers.rollout.revisions import StaleRevisionError, refuse_stale
from millstream.schemas.errors import SchemaUnavailable
from millstream.topics.errors import BrokerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.control.state import Seen
    from millstream.consumers.rollout.record import RolloutRecord

log = logging.getLogger(__name__)

MAX_ATTEMPTS: Final = 5  # of a write that other writers, or the broker, interrupt before it is known who wins
PAUSE: Final = 0.5  # seconds before another attempt, at most, so that the other writer can finish
_UNREADABLE: Final = (ControlTopicError, BrokerUnreachableError, SchemaUnavailable)
_LOOK: Final = "Look at the state (`millstream rollout status PIPELINE`), then try again."


class Reader(Protocol):
    """What a writer needs of `ControlReader`."""

    @property
    def record(self) -> RolloutRecord | None:
        """The newest record that counts."""
        ...

    @property
    def unknown(self) -> bool:
        """Whether there is a state, but nobody can tell which."""
        ...

    def read_to_end(self) -> list[Seen]:
        """Read all records that are committed now."""
        ...


class ControlWriter:
    """See the module. All writers of a pipeline share a transactional ID, so Kafka lets only the newest one commit.

    A writer reads to the end inside of its turn: once it has fenced the others, nobody can write before it commits. So a loser's
    record never comes after the winner's, and compaction keeps the winner's.
    """

    def __init__(self, reader: Reader, transaction: Callable[[], Transaction], schema_id: int) -> None:
        """Args:
        reader: of the same topic and pipeline. It stays usable for others of the same thread.
        transaction: creates one.
        schema_id: of rollout-v1 on the topic.
        """
        self._reader = reader
        self._transaction = transaction
        self._schema_id = schema_id

    def write(self, record: RolloutRecord, check: Callable[[], None] = lambda: None) -> None:
        """Write a record made with `first_record` or `next_record`. It is committed when this returns.

        `check` is called just before. It raises ChangeRefusedError if the reason for the change is too old: a process may have
        been stopped in between for any time.

        If the state is unknown, a first record (revision 1) replaces it: the topic first gets a record without a value, so that
        readers which still have the old state forget it.

        Raises:
            ChangeRefusedError: somebody else changed the rollout in the meantime. The change does not count.
            ControlTopicError: the topic can't be written or read. The message says so if the change may be written all the same.
            BrokerUnreachableError: no broker answers. Nothing is written.
            SchemaUnavailable: the newest record's schema can't be had at the moment. Nothing is written.
        """
        why = ""
        for _ in range(MAX_ATTEMPTS):
            try:
                self._write(record, check, why)
            except AbandonedError as error:
                why = str(error)
                time.sleep(random.uniform(PAUSE / 2, PAUSE))
            else:
                return
        with self._transaction() as transaction:
            if self._is_written(record, transaction, why):
                return
        raise ControlTopicError(
            f"rollout of {record.pipeline}: the change {record.action!r} was not written in {MAX_ATTEMPTS} attempts ({why}). "
            f"{_LOOK}"
        )

    def _write(self, record: RolloutRecord, check: Callable[[], None], abandoned: str) -> None:
        """One attempt. `abandoned`: why the one before was; empty: this is the first."""
        with self._transaction() as transaction:
            if self._is_written(record, transaction, abandoned):
                return
            try:
                refuse_stale(record.pipeline, self._reader.record, record.replaces)
            except StaleRevisionError as error:
                raise ChangeRefusedError(f"{error}: millstream rollout status PIPELINE") from None
            forget = [(record.key, None)] if self._reader.unknown else []
            transaction.commit([*forget, (record.key, encode_rollout(record, self._schema_id))], check)
        # A broker that doesn't fence, such as the embedded one, lets both of two writers commit. The topic's order decides.
        try:
            seen = self._reader.read_to_end()
        except _UNREADABLE as error:
            log.warning(
                "rollout of %s: revision %d (%s) is written, but can't be read back: %s",
                record.pipeline,
                record.revision,
                record.action,
                error,
            )
        else:
            _counts(record, seen)

    def _is_written(self, record: RolloutRecord, transaction: Transaction, abandoned: str) -> bool:
        """Whether an earlier attempt was committed, and the broker's answer was lost. After this, none can commit any more.

        Raises:
            ChangeRefusedError, ControlTopicError, BrokerUnreachableError, SchemaUnavailable: as `write`.
        """
        try:
            transaction.begin()
            seen = self._reader.read_to_end()
        except _UNREADABLE as error:
            if not abandoned:
                raise
            raise ControlTopicError(
                f"rollout of {record.pipeline}: the change {record.action!r} may be written: an attempt was abandoned "
                f"({abandoned}), and what became of it can't be read: {error} {_LOOK}"
            ) from error
        return _counts(record, seen)


def _counts(record: RolloutRecord, seen: list[Seen]) -> bool:
    """Whether the change is among the records of the topic. Raises ChangeRefusedError: it is, but another one came before it."""
    own = next((each for each in seen if each.record is not None and each.record.change_id == record.change_id), None)
    if own is None:
        return False
    if not own.counts:
        raise ChangeRefusedError(
            f"rollout of {record.pipeline}: {own.problem}. Look at the new state, then decide again"
        )
    return True
