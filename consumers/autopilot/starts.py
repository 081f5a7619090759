"""Starts rollouts: of the version that `rollout.candidate` names, or of a shadow that has won."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from millstream.consumers.autopilot.arrival import Arrival, Start, arrived
from millstream.consumers.rollout.changes import Entry, standing, started_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.autopilot.candidate_watch import CandidateWatch
    from millstream.consumers.autopilot.history import History
    from millstream.consumers.autopilot.shadow_watch import ShadowWatch
    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.consumers.rollout.revisions import Change
    from millstream.consumers.rollout.steps import Steps
    from millstream.pipeline.pipeline import Pipeline

RETRY: Final = (
    30.0  # seconds after which a version that can't take part is tried again: its files may have been corrected
)


class Starts:
    """See the module. For one thread."""

    def __init__(
        self,
        pipeline: Pipeline,
        entry_of: Callable[[int, RolloutRecord | None], tuple[Steps, Entry]],
        *,
        candidate: CandidateWatch | None = None,
        shadows: ShadowWatch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        pipeline: with a rollout.
        entry_of: version and newest record -> how a rollout of it starts. It raises an error with a message if the version
            can't take part.
        candidate: knows the version of `rollout.candidate`; None: the file names none.
        shadows: judges shadows; None: none may start a rollout.
        clock: seconds.
        """
        self._pipeline = pipeline
        self._entry_of = entry_of
        self._candidate = candidate
        self._shadows = shadows
        self._clock = clock
        self._refused: tuple[int, float, Exception] | None = None  # version, when to try again, why not

    def idle(self, current: RolloutRecord | None, history: History) -> Start | str:
        """While no rollout is on its way: what starts, or why nothing does. Raises as `ShadowWatch.winner`."""
        wanted = self._wanted()
        found = wanted if isinstance(wanted, str) else arrived(wanted, current, history, self._baseline(current))
        if isinstance(found, Start) or self._shadows is None:
            return found
        return self._of_shadow(self._shadows, current, history) or found

    def beside(self, current: RolloutRecord, history: History) -> Start | str:
        """While one is on its way: what takes its place, or what people should know."""
        if self._shadows is not None:
            self._shadows.close()
        wanted = self._wanted() if self._candidate is not None else ""
        return wanted if isinstance(wanted, str) else arrived(wanted, current, history, None)

    def record(self, start: Start, current: RolloutRecord | None, change: Change) -> RolloutRecord:
        """The first record of the rollout. Raises the errors of `entry_of`."""
        refused = self._refused
        if refused is not None and refused[0] == start.version and self._clock() < refused[1]:
            raise refused[2]
        try:
            steps, entry = self._entry_of(start.version, current)
        except Exception as error:
            self._refused = start.version, self._clock() + RETRY, error
            raise
        self._refused = None
        return started_record(steps, entry, current, change)

    def close(self) -> None:
        """Close all connections."""
        if self._shadows is not None:
            self._shadows.close()

    def _wanted(self) -> Arrival | str:
        """What `rollout.candidate` names."""
        if self._candidate is None:
            return "no rollout is on its way: `millstream rollout start` starts one"
        answer = self._candidate.answer
        if answer.problem or answer.version is None:
            return f"the version of rollout.candidate is not known: {answer.problem.rstrip('.')}"
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
