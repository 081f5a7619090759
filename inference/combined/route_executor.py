"""The executor that runs each event on one of several models."""

from collections.abc import Container, Sequence
from functools import cached_property

from millstream.inference.combined.blanks import blank_part, first_answers
from millstream.inference.combined.gathering import Gathering, groups_of
from millstream.inference.combined.member import Member, close_members, replaced
from millstream.inference.combined.part import Outputs
from millstream.inference.combined.routing import NO_MODEL, Choice
from millstream.inference.errors import EventRejection
from millstream.inference.executors.interface import Inputs, rows_of
from millstream.inference.model_id import ModelId


class RouteExecutor:
    """Runs each event on the model that a rule chooses. Threads may share it if they may share the models."""

    batch_sizes: tuple[int, ...] = ()

    def __init__(self, members: Sequence[Member], choice: Choice) -> None:
        """Args:
        members: the models; they have the same outputs.
        choice: decides by the number of a model.
        """
        self._members = members
        self._choice = choice
        self.device = device_of(members)
        self.max_events = min(member.executor.max_events for member in members)

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
        return first_answers([blank_part(member) for member in self._members])

    def run(self, inputs: Inputs) -> Outputs:
        """See `Executor.run`."""
        gathering = Gathering(rows_of(inputs))
        for number, rows in groups_of(self._choice.chosen(inputs)):
            if number == NO_MODEL:
                why = {row: EventRejection("no_model", self._choice.why_none(inputs, row)) for row in rows.tolist()}
                gathering.reject(why)
            else:
                gathering.add(self._members[number].answer(inputs, rows), number)
        return gathering.outputs()

    @property
    def members(self) -> Sequence[Member]:
        """See `CombinedExecutor`."""
        return self._members

    def with_member(self, number: int, member: Member) -> "RouteExecutor":
        """See `CombinedExecutor`."""
        return RouteExecutor(replaced(self._members, number, member), self._choice)

    def close(self, *, but: Container[int] = ()) -> None:
        """See `CombinedExecutor`."""
        close_members(self._members, but)


def device_of(members: Sequence[Member]) -> str:
    """The device of all models: a GPU if one of them runs there."""
    return next((member.executor.device for member in members if member.executor.device != "cpu"), "cpu")
