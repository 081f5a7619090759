"""Watches the rollout: the changes on the control topic, and the evaluation of the current step."""

import time
from typing import Self

from millstream.consumers.control.topic import open_reader
from millstream.consumers.demo.rollout.screen import Look
from millstream.consumers.demo.rollout.story import METRIC, answering
from millstream.consumers.evaluation.settings import shadow_record
from millstream.consumers.evaluation.step_evaluator import StepEvaluator
from millstream.consumers.rollout.changes import Memory
from millstream.consumers.rollout.progress import ENDED, Evaluation
from millstream.consumers.rollout.record import RolloutRecord
from millstream.consumers.rollout.slots import percent
from millstream.consumers.rollout.verdicts import Verdict
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.shares import SLOTS
from millstream.schemas.store import SchemaStore

READ_SECONDS = 0.3  # how long one look may read


class Eye:
    """See the module. A context manager, for one thread."""

    def __init__(self, pipeline: Pipeline, store: SchemaStore, baseline: int) -> None:
        """Args:
        pipeline: with a rollout, and the shadow that is judged before.
        store: its schemas.
        baseline: the version that answers before.
        """
        self._pipeline = pipeline
        self._baseline = baseline
        self._reader = open_reader(pipeline, store)
        self._evaluator: StepEvaluator | None = None
        self._step = ("", 0)  # that is evaluated: rollout and epoch
        self.records: list[RolloutRecord] = []  # all changes so far

    def changes(self) -> list[RolloutRecord]:
        """The new changes. Raises as `ControlReader.read_to_end`."""
        new = [own.record for own in self._reader.read_to_end() if own.counts and own.record is not None]
        self.records += new
        return new

    def look(self, seconds: float, sent: int, hold: str) -> Look:
        """The state. The arguments are those of `Look`. Raises as `StepEvaluator`."""
        record = self.records[-1] if self.records else None
        found = self._evaluation(record)
        return Look(
            seconds,
            sent,
            step_of(record, self._pipeline),
            {self._baseline: SLOTS} if record is None else answering(record),
            0 if found is None else found.labels,
            None if found is None else _deciding(found),
            hold,
        )

    def close(self) -> None:
        """Close the connections."""
        self._reader.close()
        if self._evaluator is not None:
            self._evaluator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _evaluation(self, record: RolloutRecord | None) -> Evaluation | None:
        """Of the shadow, or of the rollout's step; None: there is nothing to evaluate."""
        if record is None:
            shadow = self._pipeline.shadows[0]
            step, judged = ("", 1), shadow_record(self._pipeline, shadow, baseline=self._baseline, since=0)
        else:
            step, judged = (record.rollout, Memory.of(record).progress.epoch), record
        if step != self._step and self._evaluator is not None:
            self._evaluator.close()
            self._evaluator = None
        self._step = step
        if record is not None and record.state in ENDED:
            return None
        if self._evaluator is None:
            self._evaluator = StepEvaluator(self._pipeline, judged)
        self._evaluator.advance(READ_SECONDS)
        return self._evaluator.evaluation(min(self._evaluator.read_until, int(time.time() * 1000)))


def step_of(record: RolloutRecord | None, pipeline: Pipeline) -> str:
    """What happens at the moment. Before the first rollout, that is the pipeline's shadow."""
    if record is None:
        return f"shadow of version {pipeline.shadows[0].version}"
    assert pipeline.rollout is not None
    own, state = record.variants[-1], record.state.replace("_", " ")
    if record.state in ENDED:
        return f"version {own.version}: {state}"
    step, steps = Memory.of(record).progress.step + 1, len(pipeline.rollout.step_shares()) + 1  # the last one is 100 %
    return f"version {own.version}, step {step} of {steps}, {percent(record.shares[-1])}: {state}"


def _deciding(found: Evaluation) -> Verdict | None:
    return next((own for own in found.verdicts if own.metric == METRIC and own.segment is None), None)
