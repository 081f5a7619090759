"""While no rollout is on its way: judges the shadows, and says which one has won (`rollout.start_after_shadow`).

A shadow answers the same events as the primary, so the comparison is paired. Its intervals hold at any time, unlike those of
`millstream compare --show`, which are of one window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.consumers.autopilot.arrival import Arrival
from millstream.consumers.autopilot.step_decision import FORWARD, decide
from millstream.consumers.autopilot.words import seconds
from millstream.consumers.rollout.progress import Progress
from millstream.consumers.rollout.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.consumers.autopilot.step_reading import StepReading
    from millstream.consumers.rollout.record import RolloutRecord


class ShadowWatch:
    """See the module. For one thread."""

    def __init__(
        self,
        records: Callable[[int, int], Sequence[RolloutRecord]],
        reading: Callable[[], StepReading],
        *,
        least_ms: int,
        least_labels: int,
    ) -> None:
        """Args:
        records: baseline and time -> a record for each shadow, as `shadow_record` makes them.
        reading: makes a reading, one for each shadow.
        least_ms: for how long a shadow must have been compared.
        least_labels: matured labels that it needs.
        """
        self._records = records
        self._reading = reading
        self._steps = Steps((0,), bake_ms=least_ms, least_labels=least_labels)
        self._readings: dict[str, StepReading] = {}
        self._of: tuple[int, int] | None = None  # the baseline and the time that the readings are of

    def winner(self, baseline: int, since: int) -> Arrival | str:
        """The first shadow that has won, or why none has.

        Args:
            baseline: the version that answers.
            since: when it began to do so, ms since the epoch; 0: not known, so all comparisons count that the topic has.

        Raises:
            TopicError, BrokerUnreachableError, SchemaError, EvaluationError: it can't be evaluated at the moment.
        """
        if (baseline, since) != self._of:
            self.close()  # what was read belongs to another baseline
            self._of = baseline, since
        said = []
        for record in self._records(baseline, since):
            name, variant = record.variants[1].name, record.variants[1]
            if variant.version == baseline:
                continue
            reading = self._readings.setdefault(name, self._reading()).read(record, Progress("", since=since))
            oldest = reading.evaluator.arrivals.oldest
            if oldest is None:
                said.append(f"shadow {name}: no comparison yet")
                continue
            progress = Progress(f"{variant.model} {variant.version}", since=max(since, oldest))
            decision = decide(self._steps, progress, reading.evaluation(), reading.doubts)
            if decision.action in FORWARD:
                told = f"shadow {name} (version {variant.version}) has won over {seconds(reading.now - progress.since)}"
                return Arrival(variant.model, variant.version, f"{told}: {decision.reason}")
            said.append(f"shadow {name}: {decision.reason.replace('the step', 'the comparison')}")
        return "; ".join(said)

    def close(self) -> None:
        """Close all connections."""
        for reading in self._readings.values():
            reading.close()
        self._readings = {}
