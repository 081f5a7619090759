"""Several models, where one is expected. How they work together is in `combination`, which a worker of one model doesn't need."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from millstream.inference.executors.interface import ModelExecutor
from millstream.inference.model_id import ModelId
from millstream.inference.overrides import Fields
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorOutput
from millstream.inference.sources.interface import Wanted
from millstream.schemas.wording import Loc

if TYPE_CHECKING:
    from millstream.inference.combined.member import Member
    from millstream.inference.combined.member_inputs import CombinedInputs
    from millstream.inference.combined.part import Outputs

OpenModel = Callable[[ModelVersion], ModelExecutor]
"""Loads a model into its executor."""


class CombinedExecutor(ModelExecutor, Protocol):
    """An executor of several models."""

    @property
    def models(self) -> tuple[ModelId, ...]:
        """See `ANSWERED_BY`."""

    @property
    def members(self) -> "Sequence[Member]":
        """The models, in the order of `Combination.models`."""

    def with_member(self, number: int, member: "Member") -> "CombinedExecutor":
        """Another executor, with another version of one model. Both may run at a time: they share all other models.

        Args:
            number: of the model in `members`.
            member: the version, which is warmed up.
        """

    def answer_blank(self) -> "Outputs":
        """The outputs of a blank event.

        Raises:
            ModelRejected: the models reject blank events.
            ModelConfigError: the models don't fit each other.
        """

    def close(self, *, but: Container[int] = ()) -> None:
        """See `Executor.close`. `but`: the numbers of the models that stay open."""


class Combination(Protocol):
    """Several models and how they work together."""

    @property
    def models(self) -> Sequence[ModelVersion]:
        """The models that are named; of tenants' models, one stands for all."""

    @property
    def inputs(self) -> "CombinedInputs":
        """The union of their inputs."""

    @property
    def outputs(self) -> tuple[TensorOutput, ...]:
        """The outputs of the prediction, for people."""

    def open(self, open_model: OpenModel) -> CombinedExecutor:
        """Load the models. Raises ModelConfigError, DeviceError."""
        ...


class NamedMember(NamedTuple):
    """How the pipeline file names a model."""

    name: str
    version: Wanted
    inputs: Fields  # that it maps to the model's inputs; empty: as config.yaml says
    place: Loc  # within the section `models`


@dataclass(frozen=True, slots=True)
class CombinedVersion(ModelVersion):
    """Several models, where one is expected: their signatures together."""

    combination: Combination | None = None  # there is always one
    described: str = ""
    named: tuple[NamedMember, ...] = ()  # how the pipeline file names the models, in their order; empty: it names none

    @property
    def place(self) -> str:
        """How messages name it."""
        return self.described

    @property
    def several(self) -> Combination:
        """The models."""
        assert self.combination is not None
        return self.combination
