"""A model of a combination."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.inference.combined.member_inputs import UNFIT
from millstream.inference.combined.output_types import OutputTypes
from millstream.inference.combined.part import Part, run_part
from millstream.inference.errors import EventRejection
from millstream.inference.executors.interface import Inputs, ModelExecutor
from millstream.inference.repository import ModelVersion
from millstream.schemas.arrays import Ints


@dataclass(frozen=True, slots=True)
class Member:
    """A model with its executor, and where its inputs are among those of all models."""

    model: ModelVersion
    executor: ModelExecutor
    names: Mapping[str, str]  # the model's tensor -> the tensor in the union
    unfit: int | None = None  # its column of `UNFIT`; None: all events that run fit
    types: OutputTypes | None = None  # that all members have; None: each has its own outputs

    def answer(self, inputs: Inputs, rows: Ints, fed: Inputs | None = None) -> Part:
        """Run the events in these rows of the micro-batch.

        Args:
            inputs: the union's, for all events of the micro-batch.
            rows: ascending, at least one.
            fed: inputs that are not in the union, by the model's tensor, for the events in `rows`.

        Raises:
            OutOfMemory, ExecutorUnavailable, ModelConfigError, Exception: see `Executor.run`.
        """
        unfit = self._unfit(inputs, rows)
        if unfit:
            keep = np.array([row not in unfit for row in rows.tolist()])
            rows = rows[keep]
            fed = None if fed is None else {name: tensor[keep] for name, tensor in fed.items()}
            if not len(rows):
                return Part({}, rows, unfit)
        own = self._own(inputs, rows)
        part = self.answer_own(own if fed is None else {**own, **fed}, rows)
        return part._replace(rejected={**unfit, **part.rejected}) if unfit else part

    def answer_own(self, own: Inputs, rows: Ints) -> Part:
        """Run the events in these rows of the micro-batch. Raises what `answer` does.

        Args:
            own: the model's inputs of these events, by its own tensors.
            rows: ascending, at least one.
        """
        part = run_part(self.executor.run, own, rows, self.model)
        if self.types is None or not part.outputs:
            return part
        outputs = self.types.unified(part.outputs, self.model)
        return part if outputs is part.outputs else part._replace(outputs=outputs)

    def _own(self, inputs: Inputs, rows: Ints) -> dict[str, Any]:
        """The model's inputs for these rows. All rows are not copied."""
        own = {name: inputs[union] for name, union in self.names.items()}
        if all(len(tensor) == len(rows) for tensor in own.values()):
            return own
        return {name: tensor[rows] for name, tensor in own.items()}

    def _unfit(self, inputs: Inputs, rows: Ints) -> dict[int, EventRejection]:
        """The events whose fields don't fill this model's inputs."""
        if self.unfit is None or UNFIT not in inputs:
            return {}
        said = inputs[UNFIT][rows, self.unfit]
        bad = np.flatnonzero(said.astype(np.bool_))
        return {int(rows[at]): EventRejection("unfit", said[at]) for at in bad.tolist()}


def replaced(members: Sequence[Member], number: int, member: Member) -> list[Member]:
    """The members, with another one in place of that of this number."""
    return [*members[:number], member, *members[number + 1 :]]


def close_members(members: Sequence[Member], but: Container[int]) -> None:
    """Release what the members take. `but`: the numbers of those that stay open."""
    for number, member in enumerate(members):
        if number not in but:
            member.executor.close()
