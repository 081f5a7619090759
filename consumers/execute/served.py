"""What answers batches, as the executor slots of a pool run it: a model version, or those of a rollout."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from millstream.consumers.execute.batch_start import Work
from millstream.consumers.execute.bisecting import BisectingExecutor, Result
from millstream.consumers.execute.opened_rollout import Opened, OpenedRollout
from millstream.consumers.execute.variant_run import VariantRun
from millstream.consumers.execute.variant_turns import VariantTurns
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from millstream.schemas.arrays import Ints
from millstream.schemas.rollout_choices import RowChoices


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
    models: tuple[ModelId, ...]
    names: tuple[str, ...]
    turns: VariantTurns = field(default_factory=VariantTurns)

    def begin(self, work: Work) -> Begun:
        """See Slot."""
        rollout = self.rollout
        assigned = rollout.route(work.batch, work.kept)
        run = VariantRun(rollout, self.isolations, rollout.sample, work.inputs, assigned, self.turns)
        return Begun(run.run, self.names, run.choices)


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """What answers batches in all executor slots of a pool."""

    model: Opened
    slots: Sequence[Slot]  # one for each

    @property
    def is_split(self) -> bool:
        """Whether several models have events of their own."""
        return isinstance(self.model, OpenedRollout) and self.model.is_split
