"""Which versions were tried: from the changes that the control topic still has. Pure.

A version is tried by itself only once. After it was rolled back, or a person put another one in its place, only a person
starts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.consumers.autopilot.words import AUTOPILOT
from millstream.consumers.rollout.progress import ENDED

if TYPE_CHECKING:
    from millstream.consumers.rollout.record import RolloutRecord


class History:
    """The past of a pipeline's rollouts, change by change."""

    def __init__(self) -> None:
        self._tried: set[tuple[str, int]] = set()
        self._newest: RolloutRecord | None = None
        self._by_person = False

    def see(self, record: RolloutRecord) -> None:
        """Note a change that counts, in the order of the topic."""
        before = self._newest
        if before is None or before.rollout != record.rollout:
            self._by_person = record.by != AUTOPILOT
            if before is not None and self._by_person:
                self._note(before)
        if record.state in ENDED:
            self._note(record)
        self._newest = record

    def was_tried(self, model: str, version: int) -> bool:
        """Whether a rollout of it has ended, or a person replaced it."""
        return (model, version) in self._tried

    @property
    def by_person(self) -> bool:
        """Whether a person started the newest rollout."""
        return self._by_person

    def _note(self, record: RolloutRecord) -> None:
        self._tried |= {(own.model, own.version) for own in record.variants[1:]}
