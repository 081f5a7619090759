"""Chooses the variants of a micro-batch: the rules of `consumers.rollout.routing`, with what they need from the events."""

from collections.abc import Sequence

import numpy as np

from millstream.consumers.events import BatchSlice, MicroBatch
from millstream.consumers.execute.opened_rollout import Assigned
from millstream.consumers.rollout.routing import RoutingPlan, route
from millstream.schemas.arrays import Ints
from millstream.schemas.column import Column
from millstream.schemas.ids import ids_of
from millstream.schemas.packed import Packed


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
        # If one variant has all events, no key needs a hash.
        self._only = whole if shares[whole] == 1 and not plan.keys and not known else None

    def assigned(self, batch: MicroBatch, rows: Ints | None) -> Assigned:
        """The variants of the events in these rows of the batch; None: of all."""
        events = batch.events if rows is None else len(rows)
        if self._only is not None:
            variant = np.full(events, self._only)
            randomised = np.ones(events, np.bool_)
        else:
            routed = route(self._plan, routing_keys(batch, rows), self._texts(batch, rows))
            variant, randomised = routed.variant.astype(np.int64), routed.randomised
        if len(self._absent):
            variant[np.isin(variant, self._absent)] = self._fallback
            randomised = np.zeros(events, np.bool_)
        return Assigned(variant, randomised)

    def _texts(self, batch: MicroBatch, rows: Ints | None) -> dict[str, Sequence[str | None]]:
        """The values of the fields that overrides name."""
        if not self._fields:
            return {}
        table = batch.features(np.arange(batch.events) if rows is None else rows, self._fields)
        return {field: texts_of(table[field]) for field in self._fields}


def routing_keys(batch: MicroBatch, rows: Ints | None = None) -> Packed:
    """The routing keys of the events in these rows; None: of all. A key is the record's, or else the event ID in UTF-8."""
    keys = Packed.concat([_keys_of(part) for part in batch.parts if part.last > part.first])
    return keys if rows is None else keys.take(rows)


def _keys_of(part: BatchSlice) -> Packed:
    keys = part.event_keys
    if isinstance(keys, Packed):
        return keys
    ids = part.block.ids[part.first : part.last].utf8
    return Packed.of([own if key is None else key for key, own in zip(keys, ids, strict=True)])


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
