"""One look at a rollout: read, evaluate, decide, write."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from millstream.consumers.autopilot.choice import Choice, choose
from millstream.consumers.autopilot.looked import Looked, Result, failed, idle
from millstream.consumers.autopilot.starts import Ready
from millstream.consumers.autopilot.step_decision import FORWARD
from millstream.consumers.autopilot.version_check import Refusal
from millstream.consumers.autopilot.words import AUTOPILOT, kind_of, seconds
from millstream.consumers.control.errors import ChangeRefusedError
from millstream.consumers.errors import WorkerError
from millstream.consumers.evaluation.figures import idle_figures
from millstream.consumers.rollout.changes import Memory, decided_record, started_record
from millstream.consumers.rollout.progress import ENDED
from millstream.consumers.rollout.revisions import Change
from millstream.inference.errors import InferenceError
from millstream.pipeline.shares import SLOTS
from millstream.schemas.errors import SchemaError
from millstream.topics.errors import TopicsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.autopilot.control import Control
    from millstream.consumers.autopilot.report import Report
    from millstream.consumers.autopilot.starts import Starts
    from millstream.consumers.autopilot.step_reading import Reading, StepReading
    from millstream.consumers.evaluation.figures import StepFigures
    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.pipeline.pipeline import Pipeline

log = logging.getLogger(__name__)

TRIES: Final = 3  # of a look, while others change the rollout at the same time
PUBLISH_MS: Final = 10_000  # the least time between two publications of a step's figures, if nothing is decided
PUBLISH_IDLE_MS: Final = 60_000  # likewise, between two notes while no rollout is on its way
LONGEST_REASON: Final = 4000  # characters
BACK: Final = ("rollback", "pause")
"""Actions that come before the start of another version."""
MOST_AGE_MS: Final = 60_000
"""How old may be what a change was decided on. A process that was stopped meanwhile decides anew."""
_REFUSALS: Final = (TopicsError, SchemaError, WorkerError, InferenceError)
"""Errors with a message for people. Whatever is away may come back, so autopilot goes on."""


class Publisher(Protocol):
    """As `FiguresPublisher`."""

    def publish(self, figures: StepFigures) -> None:
        """Write the figures, and wait until the broker has them. After an error, the next call tries anew."""


class Autopilot:
    """See the module. For one thread. All that must outlive it is on the topics."""

    def __init__(
        self,
        pipeline: Pipeline,
        control: Control,
        reading: StepReading,
        publisher: Publisher,
        starts: Starts,
        report: Report,
        now: Callable[[], int],
    ) -> None:
        """Args:
        pipeline: with a rollout.
        control: its control topic.
        reading: reads the current step.
        publisher: writes the figures.
        starts: starts rollouts.
        report: tells people.
        now: ms since the epoch.
        """
        assert pipeline.rollout is not None
        self._pipeline = pipeline
        self._rollout = pipeline.rollout
        self._control = control
        self._reading = reading
        self._publisher = publisher
        self._starts = starts
        self._report = report
        self._now = now
        self._published = 0  # when, ms since the epoch
        self._idle = ""  # the kind of what was published while no rollout was on its way
        self._decided_on = 0  # when it was read, ms since the epoch
        self.since = 0  # when this process got its turn, ms since the epoch

    def look(self) -> Looked:
        """Look once, and tell about it. It raises nothing: while something is away, the rollout stays as it is."""
        looked = self._looked()
        self._report.changes(self._control.take_new(), self.since)
        self._report.looked(looked, self._pipeline.name)
        return looked

    def close(self) -> None:
        """Close the connections of evaluations."""
        self._reading.close()
        self._starts.close()

    def _looked(self) -> Looked:
        try:
            for _ in range(TRIES):
                try:
                    return self._try()
                except ChangeRefusedError as error:
                    log.info("decides anew: %s", error)  # the next try reads the other's change
            return Looked("lost", "others change the rollout all the time")
        except _REFUSALS as error:
            return failed(str(error).rstrip("."), self._control.record)
        except Exception as error:  # a bug must not end it: the next look may do better
            log.exception("an unexpected error")
            return failed(f"unexpected {type(error).__name__}: {error}", self._control.record)

    def _try(self) -> Looked:
        self._control.read_to_end()
        self._decided_on = self._now()
        record, problem = self._control.record, self._control.problem.rstrip(".")
        is_idle = record is None or record.state in ENDED
        if problem and (is_idle or self._control.unknown):
            return failed(f"the control topic: {problem}", record)
        if record is None or record.state in ENDED:
            self._reading.close()
            self._report.idle()
            found = self._starts.idle(record, self._control.history)
            self._report.candidate(is_refused=isinstance(found, Refusal))
            looked = self._start(found, record) if isinstance(found, Ready) else idle(found, record)
            if looked.result != "change":
                self._publish_idle(looked)
            return looked
        return self._on_its_way(record, f"the control topic: {problem}" if problem else "")

    def _start(self, ready: Ready, current: RolloutRecord | None) -> Looked:
        action = "start" if current is None or current.state in ENDED else "restart"
        if self._rollout.mode == "advise":
            return Looked("advice", _advice(action, ready), action, 0 if current is None else current.revision)
        record = started_record(ready.steps, ready.entry, current, self._change(action, ready.reason))
        self._write(record)
        return Looked("change", record.reason, record.action, record.revision)

    def _on_its_way(self, record: RolloutRecord, doubt: str) -> Looked:
        """`doubt`: why the record may not be the newest one. Workers follow it, too, so a bad version must still go back."""
        try:
            memory = Memory.of(record)
        except ValueError as error:
            return failed(f"revision {record.revision}: {error}", record)
        reading = self._reading.read(record, memory.progress)
        self._decided_on = reading.now
        if doubt:
            reading = replace(reading, doubts=(doubt, *reading.doubts))
        choice = choose(self._rollout, record, memory, reading)
        if reading.absence and choice.decision.action == "hold":  # the other reasons follow from this one
            reason = f"{reading.absence}; {choice.decision.reason}"
            choice = replace(choice, decision=replace(choice.decision, reason=reason))
        self._report.step(reading, choice.found, memory.progress.since)
        told = ""
        if choice.decision.action not in BACK and not doubt:
            beside = self._starts.beside(record, self._control.history)
            self._report.candidate(is_refused=isinstance(beside, Refusal))
            if isinstance(beside, Ready) and self._rollout.mode != "advise":
                return self._start(beside, record)
            if isinstance(beside, Ready):
                advice = replace(choice.decision, action="restart", reason=_advice("restart", beside), advised=True)
                choice = replace(choice, decision=advice)
            else:
                told = beside
        return self._act(record, choice, reading, told)

    def _act(self, record: RolloutRecord, choice: Choice, reading: Reading, beside: str) -> Looked:
        """Publish the figures, and write the decision. A step needs its figures on the topic; a rollback waits for nothing.

        `beside`: as in `Looked`.
        """
        decision = choice.decision
        # Advice names its action itself: "would step: ...".
        note = (
            f"autopilot: {decision.reason}" if decision.advised else f"autopilot: {decision.action}: {decision.reason}"
        )
        writes = decision.action != "hold" and not decision.advised
        if not writes:
            told = f"{note}; {beside}" if beside else note
            self._publish(record, reading, told, is_due=self._now() - self._published >= PUBLISH_MS)
            result: Result = "advice" if decision.advised else "hold"
            return Looked(result, decision.reason, decision.action, record.revision, beside=beside)
        if decision.action in FORWARD:
            self._publish(record, reading, note)
        change = self._change(decision.action, decision.reason)
        # The file may have another mode than it had when the rollout started: the one that autopilot follows counts.
        written = replace(decided_record(record, decision, change, choice.arms, choice.shares), mode=self._rollout.mode)
        self._write(written)
        if decision.action not in FORWARD:
            try:
                self._publish(record, reading, note)
            except _REFUSALS as error:
                log.warning("the figures were not published: %s", error)
        return Looked("change", written.reason, written.action, written.revision)

    def _write(self, record: RolloutRecord) -> None:
        """Raises as `ControlWriter.write`; ChangeRefusedError also if this process was stopped since it has read."""

        def check() -> None:
            if (age := self._now() - self._decided_on) > MOST_AGE_MS:
                raise ChangeRefusedError(
                    f"the change {record.action!r} was decided on what was read {seconds(age)} ago"
                )

        self._control.write(record, check)

    def _publish(self, record: RolloutRecord, reading: Reading, note: str, *, is_due: bool = True) -> None:
        if not is_due:
            return
        figures = reading.evaluator.figures(reading.until)
        doubts, shares = reading.doubts, record.shares
        figures = replace(
            figures,
            revision=record.revision,
            notes=(note, *doubts, *figures.notes),
            candidates=tuple(replace(own, invalid=(*own.invalid, *doubts)) for own in figures.candidates),
            variants=tuple(
                replace(own, share=share / SLOTS) for own, share in zip(figures.variants, shares, strict=True)
            ),
        )
        self._report.figures(figures)
        self._publisher.publish(figures)
        self._published = self._now()

    def _publish_idle(self, looked: Looked) -> None:
        """For `rollout status`: what autopilot says while no rollout is on its way."""
        told, now = kind_of(looked.reason), self._now()
        if told != self._idle or now - self._published >= PUBLISH_IDLE_MS:
            note = f"autopilot: {looked.reason}"
            self._publisher.publish(idle_figures(self._pipeline.name, looked.revision, now, note))
            self._idle, self._published = told, now

    def _change(self, action: str, reason: str) -> Change:
        if len(reason) > LONGEST_REASON:
            reason = f"{reason[:LONGEST_REASON]} …"
        return Change(uuid.uuid4().hex, self._now(), AUTOPILOT, action, reason)


def _advice(action: str, ready: Ready) -> str:
    return f"would {action} version {ready.version}: {ready.reason}"
