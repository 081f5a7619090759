"""Keeps the evaluator of the current step, and reads with it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from millstream.consumers.autopilot.doubts import FOLLOWED_MS, Sight, doubts
from millstream.schemas.errors import SchemaUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.evaluation.figures import StepFigures
    from millstream.consumers.evaluation.step_state import Arrivals
    from millstream.consumers.rollout.bandit import Rewards
    from millstream.consumers.rollout.progress import Evaluation, Progress
    from millstream.consumers.rollout.record import RolloutRecord

READ_SECONDS: Final = 5.0
"""How long one look may read. With a backlog, the next look goes on."""


class Evaluator(Protocol):
    """As `StepEvaluator`."""

    @property
    def behind(self) -> int:
        """Records that are not read yet."""
        ...

    @property
    def read_until(self) -> int:
        """All events and labels before this time were read."""
        ...

    @property
    def label_problem(self) -> str:
        """Why labels can't be read; empty: they can, or there are none."""
        ...

    @property
    def arrivals(self) -> Arrivals:
        """Which events came since the step began."""
        ...

    def advance(self, timeout: float) -> int:
        """Read what is there."""
        ...

    def evaluation(self, now: int, candidate: int = 1) -> Evaluation:
        """What strategies decide on."""
        ...

    def rewards(self, after: int, until: int) -> tuple[Rewards, ...]:
        """The rewards that matured in this time."""
        ...

    def figures(self, now: int) -> StepFigures:
        """All that is known."""
        ...

    def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look has read."""

    evaluator: Evaluator
    now: int  # by this machine's clock, ms since the epoch
    until: int  # the time as of which to evaluate
    doubts: tuple[str, ...]
    absence: str = ""  # that no worker runs, if no prediction came lately, as a sentence

    def evaluation(self, candidate: int = 1) -> Evaluation:
        """As of what was read; its time is that of the clock."""
        return replace(self.evaluator.evaluation(self.until, candidate), now=self.now, late=self.now - self.until)


class StepReading:
    """Reads a step, one look after the other. For one thread.

    If labels can't be read, it goes on without them: errors and latency still roll back, and a doubt holds everything else.
    """

    def __init__(
        self,
        open_evaluator: Callable[[RolloutRecord], Evaluator],
        now: Callable[[], int],
        absence: Callable[[], str] = str,
    ) -> None:
        """Args:
        open_evaluator: opens one for the newest record. It connects, and raises as `StepEvaluator`.
        now: ms since the epoch.
        absence: says that no worker runs, as `WorkerWatch.absence`; asked only if no prediction came lately.
        """
        self._open = open_evaluator
        self._now = now
        self._absence = absence
        self._key: tuple[object, ...] | None = None  # of the evaluator's step
        self._evaluator: Evaluator | None = None

    def read(self, record: RolloutRecord, progress: Progress) -> Reading:
        """Read what came. Another step needs another evaluator.

        Raises:
            TopicError, BrokerUnreachableError, SchemaError, EvaluationError: it can't be evaluated at the moment.
        """
        key = record.rollout, progress.epoch, progress.since
        if key != self._key:
            self.close()
        try:
            if self._evaluator is None:
                self._evaluator, self._key = self._open(record), key
            self._evaluator.advance(READ_SECONDS)
        except SchemaUnavailable:
            raise  # the next look goes on with the same records
        except BaseException:
            self.close()  # the next look begins anew, perhaps at another broker
            raise
        evaluator, now = self._evaluator, self._now()
        # As long as nothing was read, it is not known for which time.
        until = min(now, max(evaluator.read_until, progress.since))
        sight = Sight(now, until, evaluator.behind, progress.since, evaluator.arrivals)
        problem = evaluator.label_problem
        labels = (f"labels can't be read: {problem}",) if problem else ()
        # A bandit reads from before the step on, so until then, `until` is later than what was read.
        rewards: tuple[str, ...] = ()
        if record.strategy == "bandit" and evaluator.read_until < progress.since:
            rewards = (f"rewards of before the step are read first: {evaluator.behind:,} records are not read yet",)
        newest = sight.arrivals.newest
        absence = self._absence() if newest is None or now - newest > FOLLOWED_MS else ""
        return Reading(evaluator, now, until, (*labels, *rewards, *doubts(record, sight)), absence)

    def close(self) -> None:
        """Close the evaluator."""
        self._key, evaluator, self._evaluator = None, self._evaluator, None
        if evaluator is not None:
            with suppress(Exception):  # it may be broken: that is why it is closed
                evaluator.close()
