"""Which changes of a rollout count, if several are made at the same time: compare-and-set on the revision.

A writer reads the newest record, makes the next one from it (`next_record`), and writes it. All readers go through the records in
the order of the topic, and apply each with `followed`. A record counts only if it replaces the newest one. So of two writers that
saw the same revision, the one whose record comes first wins, and all readers agree on it. The other one reads its own record
back, sees that it does not count, and shows the refusal.

Compaction keeps only the last record of a key. If that were the loser's, a new reader would take it for the state. So a loser
must not be written after the winner: writers use one transactional ID per pipeline, read to the end inside of it, and then write.
Kafka fences a writer whose transaction another one has overtaken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.consumers.rollout.slots import reallocated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.consumers.rollout.record import RolloutRecord


class StaleRevisionError(ValueError):
    """Somebody else changed the rollout in the meantime.

    Raised by `next_record` and `refuse_stale`. Show the message; whoever asked for the change looks at the new state, and decides
    again.
    """


@dataclass(frozen=True, slots=True)
class Change:
    """Who changes a rollout, when and why."""

    change_id: str  # unique
    at: int  # ms since the epoch
    by: str
    action: str
    reason: str
    emergency: bool = False


@dataclass(frozen=True, slots=True)
class Followed:
    """A reader's state after one more record."""

    record: RolloutRecord | None  # the newest record that counts
    counts: bool  # whether the one just read does
    why_not: str = ""  # a sentence; empty if it counts or was there already


def first_record(record: RolloutRecord, current: RolloutRecord | None, change: Change) -> RolloutRecord:
    """The first record of a rollout; it may follow one of an earlier rollout of the pipeline.

    Args:
        record: the new rollout. What belongs to the change is replaced.
        current: the newest record, if there is one.
        change: who starts it.
    """
    if current is None:
        return replace(record, revision=1, replaces=0, before_state="", before_shares=(), **_of(change, change.at))
    return replace(
        record,
        revision=current.revision + 1,
        replaces=current.revision,
        before_state=current.state,
        before_shares=current.shares,
        **_of(change, change.at),  # if the clock before was ahead, the new rollout must not wait for that time
    )


def next_record(
    current: RolloutRecord,
    change: Change,
    *,
    expected: int,
    state: str | None = None,
    shares: Sequence[int] | None = None,
    strategy_state: str | None = None,
) -> RolloutRecord:
    """The record that a change leads to.

    Args:
        current: the newest record.
        change: who changes it. If its time is before the newest record's, by a clock that is wrong, that one's is taken, so
            that times never run backwards.
        expected: the revision that the writer decided on.
        state: the strategy's new state; None leaves it.
        shares: slots of each variant; None leaves them.
        strategy_state: as JSON; None leaves it.

    Raises:
        StaleRevisionError: the newest revision is another one.
        BadSharesError: the shares are not 100 % together.
    """
    refuse_stale(current.pipeline, current, expected)
    return replace(
        current,
        revision=current.revision + 1,
        replaces=current.revision,
        before_state=current.state,
        before_shares=current.shares,
        state=current.state if state is None else state,
        ranges=current.ranges if shares is None else reallocated(current.ranges, shares),
        strategy_state=current.strategy_state if strategy_state is None else strategy_state,
        **_of(change, max(change.at, current.at)),
    )


def refuse_stale(pipeline: str, current: RolloutRecord | None, expected: int) -> None:
    """Check that a writer decided on the newest record. `expected`: the revision that it saw; 0 for none.

    Raises:
        StaleRevisionError: the newest revision is another one.
    """
    found = 0 if current is None else current.revision
    if found == expected:
        return
    what = (
        "somebody deleted the rollout's record in the meantime"
        if current is None
        else f"{current.by} made the change {current.action!r} in the meantime ({current.reason})"
    )
    raise StaleRevisionError(
        f"rollout of {pipeline}: expected revision {expected}, found {found}: {what}. Look at the new state, then decide again"
    )


def followed(current: RolloutRecord | None, record: RolloutRecord) -> Followed:
    """The state after a record of the topic. A refused record leaves the state as it is."""
    if current is None:
        return Followed(record, counts=True)  # older ones may have been compacted away
    if record.pipeline != current.pipeline:
        return Followed(current, False, f"expected a record of {current.pipeline}, found one of {record.pipeline}")
    if record.change_id == current.change_id and record.revision == current.revision:
        return Followed(current, counts=False)
    if record.replaces < current.revision:
        return Followed(
            current,
            False,
            f"revision {record.revision} by {record.by} ({record.action}) does not count: it replaces revision "
            f"{record.replaces}, but {current.by} had written revision {current.revision} ({current.action}) before",
        )
    return Followed(record, counts=True)


def _of(change: Change, at: int) -> dict[str, Any]:
    return {
        "change_id": change.change_id,
        "at": at,
        "by": change.by,
        "action": change.action,
        "reason": change.reason,
        "emergency": change.emergency,
    }
