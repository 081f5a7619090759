"""Which rollout may start: of the version that `rollout.candidate` names, or of a shadow that has won."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.consumers.autopilot.arrival import Arrival, Start, arrived
from millstream.consumers.autopilot.version_check import Refusal
from millstream.consumers.rollout.changes import standing

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.autopilot.candidate_watch import CandidateWatch
    from millstream.consumers.autopilot.history import History
    from millstream.consumers.autopilot.shadow_watch import ShadowWatch
    from millstream.consumers.rollout.changes import Entry
    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.consumers.rollout.steps import Steps
    from millstream.pipeline.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Ready:
    """A rollout that may start: its version fits."""

    version: int
    reason: str
    steps: Steps
    entry: Entry


class Starts:
    """See the module. For one thread."""

    def __init__(
        self,
        pipeline: Pipeline,
        check: Callable[[int, RolloutRecord | None], tuple[Steps, Entry] | str],
        *,
        candidate: CandidateWatch | None = None,
        shadows: ShadowWatch | None = None,
    ) -> None:
        """Args:
        pipeline: with a rollout.
        check: as `VersionCheck.of`.
        candidate: knows the version of `rollout.candidate`; None: the file names none.
        shadows: judges shadows; None: none may start a rollout.
        """
        self._pipeline = pipeline
        self._check = check
        self._candidate = candidate
        self._shadows = shadows

    def idle(self, current: RolloutRecord | None, history: History) -> Ready | str:
        """While no rollout is on its way: what starts, or why nothing does: a Refusal if a version should start, and can't.

        Raises as `ShadowWatch.winner`.
        """
        wanted = self._wanted()
        found = wanted if isinstance(wanted, str) else arrived(wanted, current, history, self._baseline(current))
        if not isinstance(found, Start) and self._shadows is not None:
            won = self._of_shadow(self._shadows, current, history)
            if isinstance(won, Start) or (won and not isinstance(found, Refusal)):
                found = won
        return self._checked(found, current)

    def beside(self, current: RolloutRecord, history: History) -> Ready | str:
        """While one is on its way: what takes its place, or what people should know. A Refusal, likewise."""
        if self._shadows is not None:
            self._shadows.close()
        wanted = self._wanted() if self._candidate is not None else ""
        return self._checked(wanted if isinstance(wanted, str) else arrived(wanted, current, history, None), current)

    def close(self) -> None:
        """Close all connections."""
        if self._shadows is not None:
            self._shadows.close()

    def _checked(self, found: Start | str, current: RolloutRecord | None) -> Ready | str:
        if isinstance(found, str):
            return found
        checked = self._check(found.version, current)
        return checked if isinstance(checked, str) else Ready(found.version, found.reason, *checked)

    def _wanted(self) -> Arrival | str:
        """What `rollout.candidate` names."""
        if self._candidate is None:
            return "no rollout is on its way: `millstream rollout start` starts one"
        answer = self._candidate.answer
        if answer.problem or answer.version is None:
            return Refusal(f"the version of rollout.candidate is not known: {answer.problem.rstrip('.')}")
        assert self._pipeline.rollout is not None
        named = self._pipeline.rollout.candidate
        told = "rollout.candidate" if named == answer.version else f"rollout.candidate ({named})"
        return Arrival(self._pipeline.model.name, answer.version, f"{told} names version {answer.version}")

    def _of_shadow(self, shadows: ShadowWatch, current: RolloutRecord | None, history: History) -> Start | str:
        baseline = self._baseline(current)
        if baseline is None:
            return ""
        won = shadows.winner(baseline, 0 if current is None else current.at)
        return won if isinstance(won, str) else arrived(won, current, history, baseline)

    def _baseline(self, current: RolloutRecord | None) -> int | None:
        if current is not None:
            return standing(current).version
        version = self._pipeline.wanted_version
        return version if isinstance(version, int) else None
