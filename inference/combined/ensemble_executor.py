"""The executor of an ensemble: all models run, and outputs of some are inputs of others."""

from collections.abc import Container, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import NamedTuple

import numpy as np

from millstream.inference.combined.blanks import blank_inputs
from millstream.inference.combined.cascade_executor import MODELS, refuse_reserved
from millstream.inference.combined.combining import Array, Source, combined
from millstream.inference.combined.member import Member, close_members
from millstream.inference.combined.part import Outputs
from millstream.inference.combined.route_executor import device_of
from millstream.inference.errors import EventRejection, EventsRejected, ModelConfigError
from millstream.inference.executors.interface import ANSWERED_BY, Inputs, rows_of
from millstream.inference.model_id import ModelId
from millstream.inference.signature import DTYPES, TensorInput
from millstream.schemas.arrays import Ints


class Fed(NamedTuple):
    """An input that other steps fill."""

    entry: TensorInput
    source: Source


class Step(NamedTuple):
    """A model of the ensemble."""

    name: str
    member: Member
    feed: Sequence[Fed] = ()


class EnsembleExecutor:
    """Runs all events on all models. Threads may share it if they may share the models."""

    batch_sizes: tuple[int, ...] = ()

    def __init__(self, own: ModelId, steps: Sequence[Step], outputs: Mapping[str, Source]) -> None:
        """Args:
        own: what predictions name as their model.
        steps: in any order; they feed each other in no circle.
        outputs: those of the prediction.
        """
        self._own = own
        self._given = steps
        needs = {step.name: {of for fed in step.feed for of in fed.source.steps} for step in steps}
        by_name = {step.name: step for step in steps}
        self._steps = [by_name[name] for name in TopologicalSorter(needs).static_order()]
        self._outputs = outputs
        self._ran = " ".join(f"{step.member.model.name}:{step.member.model.version}" for step in steps)
        self.models = (own,)
        members = [step.member for step in steps]
        self.device = device_of(members)
        self.max_events = min(member.executor.max_events for member in members)

    def warm_up(self) -> None:
        """See `Executor.warm_up`."""
        for step in self._steps:
            step.member.executor.warm_up()

    def answer_blank(self) -> Outputs:
        """The outputs of a blank event. Raises ModelRejected, and ModelConfigError if outputs don't fit inputs."""
        refuse_reserved(dict.fromkeys(self._outputs, np.empty(0)), (MODELS,), "models.ensemble.outputs")
        inputs: dict[str, Array] = {}
        for step in self._steps:
            inputs |= blank_inputs(step.member)
        return self.run(inputs)

    def run(self, inputs: Inputs) -> Outputs:
        """See `Executor.run`."""
        rows: Ints = np.arange(rows_of(inputs))
        rejected: dict[int, EventRejection] = {}
        answers: dict[str, Mapping[str, Array]] = {}  # of each step, for `rows`
        for step in self._steps:
            fed = {each.entry.tensor: _fed(each, answers) for each in step.feed}
            part = step.member.answer(inputs, rows, fed or None)
            if part.rejected:
                rejected |= part.rejected
                if not len(part.rows):
                    raise EventsRejected({}, part.rows, dict(sorted(rejected.items())))
                kept = np.isin(rows, part.rows, assume_unique=True)
                answers = {name: {at: one[kept] for at, one in of.items()} for name, of in answers.items()}
                rows = part.rows
            answers[step.name] = part.outputs
        outputs: Outputs = {name: combined(source, answers) for name, source in self._outputs.items()}
        outputs[MODELS] = np.full(len(rows), self._ran, object)
        outputs[ANSWERED_BY] = np.zeros(len(rows), np.int64)
        if rejected:
            raise EventsRejected(outputs, rows, dict(sorted(rejected.items())))
        return outputs

    @property
    def members(self) -> Sequence[Member]:
        """See `CombinedExecutor`."""
        return [step.member for step in self._given]

    def with_member(self, number: int, member: Member) -> "EnsembleExecutor":
        """See `CombinedExecutor`."""
        steps = list(self._given)
        steps[number] = steps[number]._replace(member=member)
        return EnsembleExecutor(self._own, steps, self._outputs)

    def close(self, *, but: Container[int] = ()) -> None:
        """See `CombinedExecutor`."""
        close_members(self.members, but)


def _fed(fed: Fed, answers: Mapping[str, Mapping[str, Array]]) -> Array:
    """The tensor, [events, *shape]. Raises ModelConfigError: the outputs don't fit the input."""
    found, entry = combined(fed.source, answers), fed.entry
    dtype = DTYPES[entry.dtype]
    width = found[:1].size
    takes_texts, has_texts = entry.dtype == "string", found.dtype.kind in "UO"
    narrows = dtype.kind in "ib" and found.dtype.kind not in ("b" if dtype.kind == "b" else "iub")
    if width != entry.width or takes_texts != has_texts or narrows:
        kind = "string" if has_texts else str(found.dtype)
        raise ModelConfigError(
            f"{fed.source.place}: expected {list(entry.shape)} x {entry.dtype} per event for tensor `{entry.tensor}`, found "
            f"{list(found.shape[1:])} x {kind}. Feed other outputs, or change the model."
        )
    return found.astype(dtype, copy=False).reshape(len(found), *entry.shape)
