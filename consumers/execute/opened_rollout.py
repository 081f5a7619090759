"""The model versions of a rollout that are loaded, and what a worker routes by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millstream.consumers.events import MicroBatch
from millstream.consumers.execute.variant_outage import VariantOutage
from millstream.inference.executors.interface import Tensors
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from millstream.schemas.arrays import Floats, Ints, Mask


@dataclass(frozen=True, slots=True)
class Assigned:
    """What a rollout chose for the events of a micro-batch."""

    variant: Ints  # [events], the index of each event's variant
    randomised: Mask | None  # [events], whether the hash of the key chose it; None: always


@dataclass(frozen=True, slots=True, eq=False)
class OpenedVariant:
    """A variant of a rollout. It is not loaded if that failed, or if it has no events."""

    name: str
    id: ModelId
    opened: OpenedModel | None  # None: not loaded
    outage: VariantOutage


@dataclass(frozen=True, slots=True, eq=False)
class OpenedRollout:
    """One revision of a rollout, with its loaded versions. Nothing changes it: another revision is another object."""

    id: str
    revision: int
    variants: Sequence[OpenedVariant]
    shares: Floats  # of each variant, 0 to 1
    fallback: int  # index of the variant that answers if another can't: the baseline. It is loaded
    route: Callable[[MicroBatch, Ints | None], Assigned]  # takes a batch and the rows of it that run; None: all
    sample: Tensors | None = None  # what the fallback answers to a blank event; None: not known
    is_split: bool = field(init=False)  # whether several variants have events of their own
    models: tuple[ModelId, ...] = field(init=False)  # of each variant
    names: tuple[str, ...] = field(init=False)  # of each variant

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_split", int((self.shares > 0).sum()) > 1)
        object.__setattr__(self, "models", tuple(variant.id for variant in self.variants))
        object.__setattr__(self, "names", tuple(variant.name for variant in self.variants))


Opened = OpenedModel | OpenedRollout
"""What answers batches: one version, or those of a rollout."""
