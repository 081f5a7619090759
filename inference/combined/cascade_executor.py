"""The executor of a cascade: the cheap model first, and the next one for events of which it isn't sure."""

from collections.abc import Callable, Container, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.inference.combined.blanks import blank_part, first_answers
from millstream.inference.combined.gathering import Gathering
from millstream.inference.combined.member import Member, close_members, replaced
from millstream.inference.combined.part import Outputs, Part
from millstream.inference.combined.route_executor import device_of
from millstream.inference.errors import ModelConfigError
from millstream.inference.executors.interface import ANSWERED_BY, Inputs, rows_of
from millstream.inference.model_id import ModelId
from millstream.schemas.arrays import Ints, Mask

ESCALATED, MODELS = "escalated", "models"
"""Outputs that predictions get: whether the first model wasn't sure, and the models that ran."""


class Escalation(NamedTuple):
    """Which events go on to the next step. An output that is NaN goes on."""

    output: str  # that says how sure the model is; of several scores, the highest counts
    above: float  # events go on if it is above this number; may be -infinity
    below: float  # ... and below this one

    def goes_on(self, outputs: Outputs, place: str) -> Mask:
        """For each event, whether it goes on. Raises ModelConfigError: there is no such output of numbers."""
        score = self._score(outputs, place)
        stays: Mask = (score <= self.above) | (score >= self.below)
        return ~stays

    def _score(self, outputs: Outputs, place: str) -> npt.NDArray[np.floating]:
        # Scores of named classes are outputs of their own: `label.cat`, `label.dog`.
        found = [outputs[self.output]] if self.output in outputs else []
        found = found or [output for name, output in outputs.items() if name.startswith(f"{self.output}.")]
        if not found or any(output.dtype.kind not in "iuf" for output in found):
            there = ", ".join(name for name, output in outputs.items() if output.dtype.kind in "iuf")
            raise ModelConfigError(
                f"{place}: expected an output `{self.output}` of numbers, as `escalate.output` in the pipeline file wants; found "
                f"{there or 'no numbers'}. Name another output there."
            )
        columns = [output.reshape(len(output), -1) for output in found]
        joined = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
        scores: npt.NDArray[np.floating] = joined[:, 0] if joined.shape[1] == 1 else joined.max(axis=1)
        return scores


class CascadeExecutor:
    """Runs all events on the first model, and those that it escalates on the next one, and so on.

    Threads may share it if they may share the models.
    """

    batch_sizes: tuple[int, ...] = ()

    def __init__(self, members: Sequence[Member], escalations: Sequence[Escalation]) -> None:
        """Args:
        members: the models, the cheapest first; they have the same outputs.
        escalations: of each but the last one.
        """
        self._members = members
        self._escalations = escalations
        self.device = device_of(members)
        self.max_events = min(member.executor.max_events for member in members)
        self.on_answered: Callable[[int, int], object] | None = (
            None  # gets the events, and how many of them were escalated
        )
        # For each step, the models that ran if this step answers.
        ran = [f"{member.model.name}:{member.model.version}" for member in members]
        self._ran = np.array([" ".join(ran[: step + 1]) for step in range(len(ran))], object)

    @cached_property
    def models(self) -> tuple[ModelId, ...]:
        """See `ANSWERED_BY`."""
        return tuple(member.model.id for member in self._members)

    def warm_up(self) -> None:
        """See `Executor.warm_up`."""
        for member in self._members:
            member.executor.warm_up()

    def answer_blank(self) -> Outputs:
        """The outputs of a blank event. Raises ModelRejected, and ModelConfigError if the outputs of the models differ."""
        parts = [blank_part(member) for member in self._members]
        for part, member, escalation in zip(parts, self._members, self._escalations, strict=False):
            if part.outputs:
                escalation.goes_on(part.outputs, member.model.place)
        outputs = first_answers(parts)
        refuse_reserved(outputs, (ESCALATED, MODELS), self._members[0].model.place)
        return {**outputs, ESCALATED: np.zeros(1, np.bool_), MODELS: self._ran[:1]}

    def run(self, inputs: Inputs) -> Outputs:
        """See `Executor.run`."""
        gathering = Gathering(rows_of(inputs))
        rows: Ints = np.arange(rows_of(inputs))
        escalated = 0
        for step, member in enumerate(self._members):
            part = member.answer(inputs, rows)
            rows = rows[:0]
            if step < len(self._escalations) and len(part.rows):
                goes_on = self._escalations[step].goes_on(part.outputs, member.model.place)
                rows = part.rows[goes_on]
                part = _without(part, goes_on) if len(rows) else part
            gathering.add(part, step)
            if not len(rows):
                break
            escalated = escalated or len(rows)
        if self.on_answered is not None:
            self.on_answered(rows_of(inputs), escalated)
        return gathering.outputs(self._described)

    def _described(self, outputs: Outputs) -> Outputs:
        answered_by = outputs[ANSWERED_BY]
        return {**outputs, ESCALATED: answered_by > 0, MODELS: self._ran[answered_by]}

    @property
    def members(self) -> Sequence[Member]:
        """See `CombinedExecutor`."""
        return self._members

    def with_member(self, number: int, member: Member) -> "CascadeExecutor":
        """See `CombinedExecutor`."""
        executor = CascadeExecutor(replaced(self._members, number, member), self._escalations)
        executor.on_answered = self.on_answered
        return executor

    def close(self, *, but: Container[int] = ()) -> None:
        """See `CombinedExecutor`."""
        close_members(self._members, but)


def _without(part: Part, left_out: Mask) -> Part:
    """The answers to the other events."""
    kept = ~left_out
    return part._replace(
        outputs={name: output[kept] for name, output in part.outputs.items()} if kept.any() else {},
        rows=part.rows[kept],
    )


def refuse_reserved(outputs: Outputs, reserved: Sequence[str], place: str) -> None:
    """Refuse outputs with a name that the prediction needs. Raises ModelConfigError."""
    for name in reserved:
        if name in outputs:
            raise ModelConfigError(
                f"{place}: expected no output `{name}`, because predictions of several models have one of that name. Give the "
                f"output another `name` in config.yaml."
            )
