"""Chooses the variants of a micro-batch: the rules of `consumers.rollout.routing`, with what they need from the events."""

from collections.abc import Sequence

import numpy as np

from millstream.consumers.events import BatchSlice, DecodedBatch, MicroBatch
from millstream.consumers.execute.opened_rollout import Assigned
from millstream.consumers.rollout.routing import RoutingPlan, route
from millstream.schemas.arrays import Ints
from millstream.schemas.column import Column
from millstream.schemas.ids import ids_of
from millstream.schemas.packed import Packed
from millstream.schemas.routing_keys import routing_keys

KEPT_BLOCKS = 8  # a batch has parts of several blocks if topics have weights


class RolloutRouter:
    """Routes by one revision of a rollout. Threads may share it."""

    def __init__(self, plan: RoutingPlan, fields: Sequence[str], *, absent: Sequence[int], fallback: int) -> None:
        """Args:
        plan: the revision's.
        fields: the fields of `plan` that the worker decodes. Overrides by others are not known here, so they don't decide.
        absent: variants that are being loaded. Until they are, the baseline has their events, and no event counts as randomised:
            this worker's shares are not those of the rollout.
        fallback: the baseline.
        """
        known = tuple(override for override in plan.fields if override.field in fields)
        self._plan = (
            plan
            if len(known) == len(plan.fields)
            else RoutingPlan(plan.salt, plan.ranges, plan.variants, plan.keys, known)
        )
        self._fields = sorted({override.field for override in known})
        self._absent = np.array(absent, np.int64)
        self._fallback = fallback
        shares = self._plan.shares
        whole = int(shares.argmax())
        # The blocks that were routed last, each recognised by its array `good`: the whole block would keep more memory.
        self._known: tuple[tuple[Ints, Assigned], ...] = ()
        # If one variant has all events, no key needs a hash.
        self._only = whole if shares[whole] == 1 and not plan.keys and not known else None

    def assigned(self, batch: MicroBatch, rows: Ints | None) -> Assigned:
        """The variants of the events in these rows of the batch; None: of all."""
        parts = [self._of_part(part) for part in batch.parts if part.last > part.first]
        variant = parts[0].variant if len(parts) == 1 else np.concatenate([part.variant for part in parts])
        randomised = None
        if not all(part.randomised is None for part in parts):
            randomised = np.concatenate(
                [np.ones(len(part.variant), np.bool_) if part.randomised is None else part.randomised for part in parts]
            )
        if rows is None:
            return Assigned(variant, randomised)
        return Assigned(variant[rows], None if randomised is None else randomised[rows])

    def _of_part(self, part: BatchSlice) -> Assigned:
        """The variants of a part's events. Batches are parts of larger blocks, and routing a whole block costs less."""
        known, rows = self._known, part.block.good  # read once: another thread may replace it
        found = next((assigned for of, assigned in known if of is rows), None)
        if found is None:
            found = self._of_block(part.block)
            self._known = ((rows, found), *known[: KEPT_BLOCKS - 1])
        variant, randomised = found.variant, found.randomised
        where = slice(part.first, part.last)
        return Assigned(variant[where], None if randomised is None else randomised[where])

    def _of_block(self, block: DecodedBatch) -> Assigned:
        events = len(block.good)
        if self._only is not None:
            variant, randomised = np.full(events, self._only), None
        else:
            routed = route(self._plan, keys_of(block), self._texts(block))
            variant = routed.variant.astype(np.int64)
            randomised = None if routed.randomised.all() else routed.randomised
        if len(self._absent):
            variant[np.isin(variant, self._absent)] = self._fallback
            randomised = np.zeros(events, np.bool_)
        return Assigned(variant, randomised)

    def _texts(self, block: DecodedBatch) -> dict[str, Sequence[str | None]]:
        """The values of the fields that overrides name."""
        if not self._fields:
            return {}
        assert block.features is not None
        return {field: texts_of(block.features[field]) for field in self._fields}


def keys_of(block: DecodedBatch) -> Packed:
    """The routing keys of a block's events."""
    whole = BatchSlice(block, 0, len(block.offsets), 0, len(block.good))
    return Packed.of(routing_keys(whole.event_keys, block.ids))


def texts_of(column: Column) -> Sequence[str | None]:
    """The values as overrides name them: texts as they are, numbers in decimal, `true` and `false`; None for null.

    Raises TypeError for lists and records.
    """
    if column.valid is None:
        return list(ids_of(column))
    there = np.flatnonzero(column.valid)
    texts: list[str | None] = [None] * len(column)
    for row, text in zip(there.tolist(), ids_of(column.take(there)), strict=True):
        texts[row] = text
    return texts
