"""What a look at the rollout led to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from millstream.consumers.rollout.record import RolloutRecord

Result = Literal["hold", "change", "advice", "lost", "failed"]


@dataclass(frozen=True, slots=True)
class Looked:
    """See the module."""

    result: Result
    reason: str  # a sentence without a full stop; empty: there is nothing to say
    action: str = "hold"
    revision: int = 0  # of the record that was looked at; 0: there is none
    idle: bool = False  # whether no rollout is on its way
    beside: str = ""  # what people should know about another version than the rollout's own, likewise


def idle(reason: str, record: RolloutRecord | None = None) -> Looked:
    """Nothing happens, because no rollout is on its way."""
    return Looked("hold", reason, revision=0 if record is None else record.revision, idle=True)


def failed(reason: str, record: RolloutRecord | None = None) -> Looked:
    """Nothing happens, because something is away or wrong."""
    return Looked("failed", reason, revision=0 if record is None else record.revision)
