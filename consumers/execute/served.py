"""What answers batches, as the executor slots of a pool run it: a model version, or those of a rollout."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from millstream.consumers.execute.batch_start import Work
from millstream.consumers.execute.bisecting import BisectingExecutor, Result
from millstream.consumers.execute.opened_rollout import Opened, OpenedRollout
from millstream.consumers.execute.variant_run import VariantRun
from millstream.consumers.execute.variant_turns import VariantTurns
from millstream.consumers.observability.metrics import Metrics
from millstream.inference.executors.interface import Executor
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from millstream.schemas.arrays import Ints
from millstream.schemas.rollout_choices import RowChoices

# Full batches that run as one: with 256 events each, those of a whole block.
TOGETHER, TOGETHER_IN_ROLLOUT = 24, 4


class Begun(NamedTuple):
    """A micro-batch that is about to run."""

    run: Callable[[], Result]  # may be called again after an outage
    variants: tuple[str, ...] | None = None  # of the slot's models, in a rollout
    choices: Callable[[Ints], RowChoices] | None = None  # of rows that have outputs, after `run`


class Slot(Protocol):
    """What answers batches in one executor slot, which runs one batch at a time."""

    @property
    def models(self) -> tuple[ModelId, ...]:
        """The models that may have answered a batch so far."""
        ...

    def begin(self, work: Work) -> Begun:
        """Decide what runs, whatever is switched to afterwards."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SlotModel:
    """A model version in one executor slot."""

    isolation: BisectingExecutor
    model: OpenedModel

    @property
    def models(self) -> tuple[ModelId, ...]:
        """See Slot."""
        return self.model.models

    def begin(self, work: Work) -> Begun:
        """See Slot."""
        return Begun(partial(self.isolation.run, work.inputs))


@dataclass(frozen=True, slots=True, eq=False)
class SlotRollout:
    """The versions of a rollout in one executor slot."""

    isolations: Sequence[BisectingExecutor | None]  # of each variant; None: it isn't loaded
    rollout: OpenedRollout
    turns: VariantTurns
    metrics: Metrics

    @property
    def models(self) -> tuple[ModelId, ...]:
        """See Slot."""
        return self.rollout.models

    def begin(self, work: Work) -> Begun:
        """See Slot."""
        rollout = self.rollout
        assigned = rollout.route(work.batch, work.kept)
        run = VariantRun(rollout, self.isolations, work.inputs, assigned, self.turns, self.metrics)
        return Begun(run.run, rollout.names, run.choices)


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """What answers batches in all executor slots of a pool."""

    model: Opened
    slots: Sequence[Slot]  # one for each

    @property
    def together(self) -> int:
        """Most full batches that run as one."""
        if isinstance(self.model, OpenedModel):
            return TOGETHER
        # Predictions of a rollout say how long their run took. So runs are longer only where versions share the batches.
        return TOGETHER_IN_ROLLOUT if self.model.is_split else 1


class ModelSlots:
    """The executor slots of a pool. Each keeps what it has learned of a version while it serves this version.

    It has learned how many events fit into memory, and whether the version works. If it began anew at each revision of a
    rollout, it would run out of memory again, and take the errors of a broken version for those of its events again. So it also
    keeps which variant of a rollout has run first how often. One thread at a time calls it.
    """

    def __init__(self, in_flight: int, isolated: Callable[[Executor], BisectingExecutor], metrics: Metrics) -> None:
        """Args:
        in_flight: slots for each copy of a model.
        isolated: runs a copy so that bad events only fail themselves.
        metrics: where to count.
        """
        self._in_flight = in_flight
        self._isolated = isolated
        self._metrics = metrics
        self._isolations: dict[OpenedModel, list[BisectingExecutor]] = {}  # in each slot
        self._turns: tuple[str, list[VariantTurns]] = "", []  # the rollout's ID; in each slot

    def serve(self, model: Opened) -> ServedModel:
        """What answers batches in all slots."""
        opened = [each.opened for each in model.variants] if isinstance(model, OpenedRollout) else [model]
        before = self._isolations
        self._isolations = {one: before.get(one) or self._isolations_of(one) for one in opened if one is not None}
        if isinstance(model, OpenedModel):
            return ServedModel(model, [SlotModel(isolation, model) for isolation in self._isolations[model]])
        variants = [None if one is None else self._isolations[one] for one in opened]
        return ServedModel(
            model,
            [
                SlotRollout([None if own is None else own[at] for own in variants], model, turns, self._metrics)
                for at, turns in enumerate(self._turns_of(model))
            ],
        )

    def _isolations_of(self, opened: OpenedModel) -> list[BisectingExecutor]:
        return [self._isolated(executor) for _ in range(self._in_flight) for executor in opened.executors]

    def _turns_of(self, rollout: OpenedRollout) -> list[VariantTurns]:
        if self._turns[0] != rollout.id:
            fallback = rollout.variants[rollout.fallback].opened
            assert fallback is not None
            self._turns = rollout.id, [VariantTurns() for _ in range(self._in_flight * len(fallback.executors))]
        return self._turns[1]
