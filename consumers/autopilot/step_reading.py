"""Keeps the evaluator of the current step, and reads with it."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from millstream.consumers.autopilot.doubts import Sight, doubts
from millstream.schemas.errors import SchemaError, SchemaUnavailable
from millstream.topics.errors import BrokerUnreachableError, TopicError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.evaluation.figures import StepFigures
    from millstream.consumers.evaluation.step_state import Arrivals
    from millstream.consumers.rollout.bandit import Rewards
    from millstream.consumers.rollout.progress import Evaluation, Progress
    from millstream.consumers.rollout.record import RolloutRecord

READ_SECONDS: Final = 5.0
"""How long one look may read. With a backlog, the next look goes on."""
LABELS_RETRY: Final = 30.0  # seconds between two attempts to read labels that can't be read


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


class OpenEvaluator(Protocol):
    """Opens an evaluator, which connects. Raises as `StepEvaluator`."""

    def __call__(self, record: RolloutRecord, since: int, *, labels: bool) -> Evaluator:
        """Args:
        record: the newest one.
        since: when the step began, ms since the epoch.
        labels: whether to read labels.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look has read."""

    evaluator: Evaluator
    now: int  # by this machine's clock, ms since the epoch
    until: int  # the time as of which to evaluate
    doubts: tuple[str, ...]

    def evaluation(self, candidate: int = 1) -> Evaluation:
        """As of what was read; its time is that of the clock."""
        return replace(self.evaluator.evaluation(self.until, candidate), now=self.now)


class StepReading:
    """Reads a step, one look after the other. For one thread.

    If labels can't be read, it goes on without them: errors and latency still roll back, and a doubt holds everything else.
    """

    def __init__(
        self,
        open_evaluator: OpenEvaluator,
        now: Callable[[], int],
        *,
        has_labels: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        open_evaluator: opens one.
        now: ms since the epoch.
        has_labels: whether the pipeline has labels.
        clock: seconds.
        """
        self._open = open_evaluator
        self._now = now
        self._has_labels = has_labels
        self._clock = clock
        self._key: tuple[object, ...] | None = None  # of the step
        self._evaluator: Evaluator | None = None
        self._no_labels = ""  # why labels can't be read; empty: they can
        self._again = 0.0  # when to try that again

    def read(self, record: RolloutRecord, progress: Progress, since: int) -> Reading:
        """Read what came. Another step needs another evaluator, which reads from `since` on.

        Raises:
            TopicError, BrokerUnreachableError, SchemaError, EvaluationError: it can't be evaluated at the moment.
        """
        # If the control topic begins anew, another rollout may have the same ID.
        key = record.rollout, record.variants, progress.epoch, since
        if key != self._key or (self._no_labels and self._clock() >= self._again):
            self.close()
            self._key = key
        try:
            evaluator = self._advanced(record, since)
        except SchemaUnavailable:
            raise  # the next look goes on with the same records
        except BaseException:
            self.close()  # the next look begins anew, perhaps at another broker
            raise
        now = self._now()
        # As long as nothing was read, it is not known for which time.
        until = min(now, max(evaluator.read_until, since))
        sight = Sight(now, until, evaluator.behind, progress.since, evaluator.arrivals)
        labels = (f"labels can't be read: {self._no_labels.rstrip('.')}",) if self._no_labels else ()
        return Reading(evaluator, now, until, (*labels, *doubts(record, sight)))

    def close(self) -> None:
        """Close the evaluator."""
        self._key, self._no_labels = None, ""
        evaluator, self._evaluator = self._evaluator, None
        if evaluator is not None:
            with suppress(Exception):  # it may be broken: that is why it is closed
                evaluator.close()

    def _advanced(self, record: RolloutRecord, since: int) -> Evaluator:
        """The evaluator, after it has read. Without labels, if with them it fails and without them it doesn't."""
        try:
            if self._evaluator is None:
                self._evaluator = self._open(record, since, labels=self._has_labels)
            self._evaluator.advance(READ_SECONDS)
        except (SchemaUnavailable, BrokerUnreachableError):
            raise
        except (TopicError, SchemaError) as error:
            if not self._has_labels or self._no_labels:
                raise
            key = self._key
            self.close()
            self._key = key
            self._evaluator = self._open(record, since, labels=False)  # raises again if it was not the labels
            self._evaluator.advance(READ_SECONDS)
            self._no_labels, self._again = str(error), self._clock() + LABELS_RETRY
        return self._evaluator
