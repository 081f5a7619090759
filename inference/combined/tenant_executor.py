"""The executor that runs each event on the model of its tenant."""

from collections.abc import Callable, Container, Iterator, Sequence

import numpy as np

from millstream.inference.combined.blanks import blank_part, first_answers
from millstream.inference.combined.gathering import Gathering, groups_of
from millstream.inference.combined.member import Member, close_members
from millstream.inference.combined.model_numbers import ModelNumbers
from millstream.inference.combined.part import Outputs
from millstream.inference.combined.routing import shown_key
from millstream.inference.combined.tenant_models import Counts, TenantModels
from millstream.inference.errors import EventRejection, ModelConfigError
from millstream.inference.executors.interface import Inputs
from millstream.inference.model_id import ModelId
from millstream.schemas.arrays import Ints


class TenantExecutor:
    """Threads may share it if they may share the models."""

    batch_sizes: tuple[int, ...] = ()

    def __init__(
        self,
        field: str,
        tensor: str,
        models: TenantModels,
        pattern: Member,
        default: Member | None,
        may_have_model: Callable[[str], bool],
        numbers: ModelNumbers,
        generation: int = 0,
    ) -> None:
        """Args:
        field: of the event, that names the tenant.
        tensor: the input with its values as texts.
        models: of the tenants.
        pattern: a model with the inputs and outputs that all have.
        default: the model of tenants without one; None: their events are rejected.
        may_have_model: whether a text can be the name of a tenant.
        numbers: of the models, for all copies of the executor.
        generation: of the tenants' versions, see `TenantModels.change_over`.
        """
        self._field = field
        self._tensor = tensor
        self._models = models
        self._pattern = pattern
        self._default = default
        self._may_have_model = may_have_model
        self.on_change: Callable[[], object] | None = None  # called when a model was loaded or unloaded, or failed
        self._changes = 0
        self._numbers = numbers
        self._generation = generation
        self.device = pattern.executor.device
        self.max_events = pattern.executor.max_events

    @property
    def models(self) -> tuple[ModelId, ...]:
        """See `ANSWERED_BY`."""
        return self._numbers.models

    def warm_up(self) -> None:
        """See `Executor.warm_up`. Models of tenants are loaded on first use."""
        self._pattern.executor.warm_up()

    def answer_blank(self) -> Outputs:
        """The outputs of a blank event. Raises ModelRejected."""
        return first_answers([blank_part(self._pattern)])

    def run(self, inputs: Inputs) -> Outputs:
        """See `Executor.run`."""
        keys = inputs[self._tensor].tolist()
        names = list(dict.fromkeys(keys))
        tenants = dict(zip(names, range(len(names)), strict=True))
        groups = groups_of(np.fromiter(map(tenants.__getitem__, keys), np.int64, len(keys)))
        if not self._models.are_loaded(tenants.keys()):
            # Those that are loaded run first: loading others may unload them.
            groups.sort(key=lambda group: not self._models.is_loaded(names[group[0]]))
        gathering = Gathering(len(keys))
        without: list[Ints] = []
        for number, rows, own in self._in_order(inputs, groups):
            if not self._run_tenant(names[number], own, rows, gathering):
                without.append(rows)
        if without:
            self._run_default(inputs, np.sort(np.concatenate(without)), gathering)
        if self._changes != self._models.changes:
            self._changes = self._models.changes
            if self.on_change is not None:
                self.on_change()
        return gathering.outputs()

    def _in_order(self, inputs: Inputs, groups: Sequence[tuple[int, Ints]]) -> Iterator[tuple[int, Ints, Inputs]]:
        """Each group with the inputs of its events."""
        own = {name: inputs[union] for name, union in self._pattern.names.items()}
        if len(groups) == 1:
            yield *groups[0], own
            return
        # Copying all events once, in the order of the groups, is faster than copying for each group.
        order = np.concatenate([rows for _, rows in groups])
        own = {name: tensor[order] for name, tensor in own.items()}
        start = 0
        for number, rows in groups:
            stop = start + len(rows)
            yield number, rows, {name: tensor[start:stop] for name, tensor in own.items()}
            start = stop

    def counts(self) -> Counts:
        """What is loaded."""
        return self._models.counts()

    @property
    def members(self) -> Sequence[Member]:
        """See `CombinedExecutor`: the default model, or the pattern of all."""
        return [self._pattern]

    def with_member(self, number: int, member: Member) -> "TenantExecutor":  # noqa: ARG002
        """See `CombinedExecutor`. The models of the tenants are shared."""
        return self._with(member, self._generation)

    @property
    def tenants(self) -> TenantModels:
        """The models of the tenants."""
        return self._models

    def at_generation(self, generation: int) -> "TenantExecutor":
        """Another executor, for batches of this generation of the tenants' versions. All else is shared."""
        return self._with(self._pattern, generation)

    def _with(self, pattern: Member, generation: int) -> "TenantExecutor":
        default = None if self._default is None else pattern
        executor = TenantExecutor(
            self._field, self._tensor, self._models, pattern, default, self._may_have_model, self._numbers, generation
        )
        executor.on_change = self.on_change
        return executor

    def close(self, *, but: Container[int] = ()) -> None:
        """See `CombinedExecutor`."""
        self._models.close()
        close_members(self.members, but)

    def _run_tenant(self, tenant: str, own: Inputs, rows: Ints, gathering: Gathering) -> bool:
        """Run the events of one tenant. Returns False if it has no model."""
        if not self._models.is_loaded(tenant) and not self._may_have_model(tenant):
            return False
        try:
            loaded = self._models.acquire(tenant, self._generation)
        except ModelConfigError as error:  # of this tenant's model; the others go on
            gathering.reject(_broken(rows, error))
            return True
        if loaded is None:
            return False
        try:
            if loaded.number is None:
                loaded.number = self._numbers.number(loaded.member.model.id)
            gathering.add(loaded.member.answer_own(own, rows), loaded.number)
        except ModelConfigError as error:
            self._models.reject(tenant, loaded, str(error))
            gathering.reject(_broken(rows, error))
        finally:
            self._models.release(loaded)
        return True

    def _run_default(self, inputs: Inputs, rows: Ints, gathering: Gathering) -> None:
        """Run the events of tenants without a model."""
        if self._default is not None:
            gathering.add(self._default.answer(inputs, rows), self._numbers.number(self._default.model.id))
            return
        for row in rows.tolist():
            tenant = shown_key(inputs[self._tensor][row])
            why = f"tenant {tenant} (field `{self._field}`) has no model, and there is no default"
            gathering.reject({row: EventRejection("no_model", why)})


def _broken(rows: Ints, error: ModelConfigError) -> dict[int, EventRejection]:
    return dict.fromkeys(rows.tolist(), EventRejection("no_model", str(error)))
