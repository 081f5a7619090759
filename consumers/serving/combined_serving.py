"""Several models that are served together, of which one at a time gets another version."""

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from millstream.consumers.execute.interface import Pool
from millstream.consumers.serving.loaded import Loaded
from millstream.consumers.serving.place import Place
from millstream.inference.combined.version import CombinedExecutor
from millstream.inference.executors.interface import ModelExecutor
from millstream.inference.executors.opened import OpenedModel


class _Served(NamedTuple):
    """All models with one version each."""

    together: OpenedModel
    members: Sequence[OpenedModel]  # each with its copies


class CombinedServing:
    """What the pool serves. Another version of one model makes another `OpenedModel`, which shares the other models.

    One thread at a time calls it.
    """

    def __init__(self, pool: Pool, first: OpenedModel) -> None:
        """Args:
        pool: runs the models.
        first: the models at the start; its executors are `CombinedExecutor`s.
        """
        self._pool = pool
        members = zip(*(copy.members for copy in copies_of(first)), strict=True)
        opened = [OpenedModel(each[0].model.id, [member.executor for member in each]) for each in members]
        self._serving = _Served(first, opened)
        self._old: list[_Served] = []  # before the one that is served, that may have batches in flight

    @property
    def members(self) -> Sequence[OpenedModel]:
        """The versions that are served now, in the order of `Combination.models`."""
        return self._serving.members

    def place(self, number: int) -> Place:
        """Where the versions of one model are served. `number`: of the model in `members`."""
        return _MemberPlace(self, number)

    def switch_member(self, number: int, new: Loaded) -> None:
        """Let this version of one model answer, with the others as they are, from the next batch on."""
        own = cast("Sequence[ModelExecutor]", new.opened.executors)
        copies = zip(copies_of(self._serving.together), own, strict=True)
        executors = [
            copy.with_member(number, replace(copy.members[number], model=new.model, executor=executor))
            for copy, executor in copies
        ]
        members = list(self._serving.members)
        members[number] = new.opened
        self._switch(_Served(OpenedModel(self._serving.together.id, executors), members))

    def switch_copies(self, copies: Sequence[CombinedExecutor]) -> None:
        """Let other executors of the same models answer from the next batch on."""
        self._switch(_Served(OpenedModel(self._serving.together.id, copies), self._serving.members))

    @property
    def copies(self) -> Sequence[CombinedExecutor]:
        """What answers new batches."""
        return copies_of(self._serving.together)

    @property
    def has_old(self) -> bool:
        """Whether batches are in flight that were submitted before the last switch."""
        self._forget_free()
        return bool(self._old)

    def has_member_in_use(self, opened: OpenedModel) -> bool:
        """Whether a version of a model answers new batches, or has batches in flight."""
        self._forget_free()
        return any(opened is member for each in (*self._old, self._serving) for member in each.members)

    def close(self, *, but: Container[int] = ()) -> None:
        """Close what is served. `but`: the numbers of the models that stay open."""
        for copy in copies_of(self._serving.together):
            copy.close(but=but)

    def _switch(self, new: _Served) -> None:
        before, self._serving = self._serving, new
        self._pool.switch_to(new.together)
        self._old.append(before)
        self._forget_free()

    def _forget_free(self) -> None:
        self._old = [old for old in self._old if self._pool.is_in_use(old.together)]


class _MemberPlace:
    """See `CombinedServing.place`."""

    def __init__(self, serving: CombinedServing, number: int) -> None:
        self._serving = serving
        self._number = number

    def switch_to(self, loaded: Loaded) -> None:
        """See Place."""
        self._serving.switch_member(self._number, loaded)

    def is_in_use(self, loaded: Loaded) -> bool:
        """See Place."""
        return self._serving.has_member_in_use(loaded.opened)


def copies_of(opened: OpenedModel) -> list[CombinedExecutor]:
    """The executors of several models."""
    return cast("list[CombinedExecutor]", list(opened.executors))
