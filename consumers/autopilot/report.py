"""Tells people what autopilot does: one line in the log per change and per new reason to hold, metrics, webhooks."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.consumers.autopilot import metrics as m
from millstream.consumers.autopilot.words import AUTOPILOT, kind_of
from millstream.consumers.rollout.change_text import change_text
from millstream.consumers.rollout.judging import breaches
from millstream.consumers.rollout.rounded import span
from millstream.pipeline.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.autopilot.looked import Looked
    from millstream.consumers.autopilot.metrics import AutopilotMetrics
    from millstream.consumers.autopilot.step_reading import Reading
    from millstream.consumers.evaluation.figures import StepFigures
    from millstream.consumers.rollout.progress import Evaluation
    from millstream.consumers.rollout.record import RolloutRecord

log = logging.getLogger(__name__)

RECENT_MS: Final = 60_000
"""A process that has just got its turn sends the changes of this time again: the one before may have died before it did."""
MOST_LABEL: Final = 300
"""Characters of a reason in a metric's label."""
_SIGNS: Final = {"pass": 1, "undecided": 0, "breach": -1}


class Webhooks(Protocol):
    """As `WebhookThread`."""

    def send(self, change: dict[str, Any]) -> None:
        """Send a change soon."""


class Report:
    """See the module. For one thread."""

    def __init__(
        self, metrics: AutopilotMetrics, webhooks: Webhooks | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Args:
        metrics: get the state.
        webhooks: get the changes; None: there are none.
        clock: seconds.
        """
        self._metrics = metrics
        self._webhooks = webhooks
        self._clock = clock
        self._told = ""  # the kind of the newest reason
        self._beside = ""  # the kind of what was told beside it
        self._told_at = 0.0
        self._is_new_turn = True  # no change was read since this process got its turn

    def changes(self, records: list[RolloutRecord], turn: int) -> None:
        """Tell of the changes that were read: of those before this turn, the log only has the newest.

        Args:
            records: the changes.
            turn: when this process got its turn, ms since the epoch.
        """
        found = [own for own in records if own.at < turn] if self._is_new_turn else []
        self._is_new_turn &= not records
        if found:
            log.info("found, changed %s ago: %s", span(turn - found[-1].at), change_text(found[-1]))
        for record in records:
            if record.at < turn - RECENT_MS:
                continue
            if record not in found:
                log.info("%s", change_text(record))
            if self._webhooks is not None:
                self._webhooks.send(as_change(record))

    def looked(self, looked: Looked, pipeline: str) -> None:
        """Tell of a look."""
        self._metrics.count(m.LOOKS, 1, looked.result)
        self._metrics.set(m.FAILING, looked.result == "failed")
        if looked.result == "change":
            self._metrics.count(m.CHANGES, 1, looked.action)
        self._metrics.forget(m.HOLDING)
        if looked.result in ("change", "lost"):
            self._told, self._told_at = "", self._clock()
            return
        reason, beside = kind_of(looked.reason), kind_of(looked.beside)
        kind = f"{looked.revision} {looked.result} {reason}"
        if is_new := kind != self._told:
            self._told, self._told_at = kind, self._clock()
            self._advise(looked, pipeline)
        if is_new or beside != self._beside:
            self._beside = beside
            _log(looked)
        if looked.result == "hold" and not looked.idle:
            self._metrics.set(m.HOLDING, self._clock() - self._told_at, printable(reason)[:MOST_LABEL])

    def candidate(self, *, is_refused: bool) -> None:
        """Whether a version should start, and can't."""
        self._metrics.set(m.REFUSED, is_refused)

    def step(self, reading: Reading, found: Evaluation, since: int) -> None:
        """Put a step's state into the metrics."""
        self._metrics.set(m.STEP, max(0, reading.now - since) / 1000)
        self._metrics.set(m.LABELS, found.labels)
        self._metrics.set(m.UNMATURED, found.unmatured_share)
        self._metrics.set(m.BEHIND, reading.evaluator.behind)

    def figures(self, figures: StepFigures) -> None:
        """Put the figures that were published into the metrics. Those of segments would be too many series."""
        self._metrics.forget(m.FIGURE)
        self._metrics.forget(m.VERDICT)
        for figure in figures.total.figures:
            if figure.segment is None and figure.value is not None:
                self._metrics.set(m.FIGURE, figure.value, figure.variant, figure.metric)
        for found in figures.candidates:
            counted = breaches(found.verdicts, found.invalid)
            for verdict in found.verdicts:
                if verdict.segment is None:
                    outcome = "undecided" if verdict.outcome == "breach" and verdict not in counted else verdict.outcome
                    self._metrics.set(m.VERDICT, _SIGNS[outcome], found.candidate, verdict.metric)

    def idle(self) -> None:
        """No rollout is on its way."""
        for metric in (m.STEP, m.LABELS, m.UNMATURED, m.BEHIND):
            self._metrics.set(metric, 0)
        self._metrics.forget(m.FIGURE)
        self._metrics.forget(m.VERDICT)

    def turn(self, *, is_ours: bool) -> None:
        """Whether this process decides."""
        self._metrics.set(m.ACTIVE, is_ours)
        self._told, self._is_new_turn = "", True
        if not is_ours:
            self.idle()
            self._metrics.forget(m.HOLDING)
            self._metrics.set(m.FAILING, 0)
            self._metrics.set(m.REFUSED, 0)

    def _advise(self, looked: Looked, pipeline: str) -> None:
        if looked.result != "advice" or self._webhooks is None:
            return
        self._webhooks.send(
            {
                "pipeline": pipeline,
                "revision": looked.revision,
                "action": looked.action,
                "reason": looked.reason,
                "by": AUTOPILOT,
                "advised": True,
            }
        )


def _log(looked: Looked) -> None:
    reason = printable("; ".join(filter(None, (looked.reason, looked.beside))))
    if not reason:
        return
    if looked.result == "advice":
        log.info("advice at revision %d: %s", looked.revision, reason)
    elif looked.result == "failed":
        log.warning("the rollout stays as it is: %s", reason)
    else:
        log.info("holds: %s", reason)


def as_change(record: RolloutRecord) -> dict[str, Any]:
    """The body of the webhook: the change, and the state after it. Shares are in percent."""
    return {
        "pipeline": record.pipeline,
        "rollout": record.rollout,
        "revision": record.revision,
        "at": record.at,
        "by": record.by,
        "action": record.action,
        "reason": record.reason,
        "emergency": record.emergency,
        "advised": False,
        "strategy": record.strategy,
        "state": record.state,
        "variants": [
            {"name": own.name, "model": own.model, "version": own.version, "share": share / 100}
            for own, share in zip(record.variants, record.shares, strict=True)
        ],
        "before": {"state": record.before_state, "shares": [share / 100 for share in record.before_shares]},
    }
