"""Chooses the variant of each event: a pure function of the routing keys and the rollout.

An event's routing key is its record's key; without a key, it is the event ID in UTF-8. A key has the same variant on every
worker, after a restart, and on replay, as long as the rollout's ranges are the same. The first rule that fits decides:

1. the rollout names the key (`RoutingPlan.keys`);
2. a field of the event has a value that the rollout names (`RoutingPlan.fields`, in their order);
3. the slot of the key's hash: `slot = hash * 10,000 >> 32`. The variant is the owner of the slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from millstream.consumers.rollout.hashes import Hashes, hashed
from millstream.consumers.rollout.slots import Ranges, shares_of
from millstream.pipeline.shares import SLOTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.schemas.arrays import Floats, Ints, Mask

Variants = npt.NDArray[np.int16]
_LAST_BITS = 0xFFFF


@dataclass(frozen=True)
class FieldOverride:
    """All events whose field has one of these values get the variant."""

    field: str
    values: frozenset[str]
    variant: int


@dataclass(frozen=True)
class RoutingPlan:
    """What routing needs of a rollout."""

    salt: str  # the rollout's ID: each rollout meets other keys first
    ranges: Ranges
    variants: int = 2  # how many there are
    keys: Mapping[bytes, int] = field(default_factory=dict)  # routing key -> variant
    fields: tuple[FieldOverride, ...] = ()

    @cached_property
    def _owners(self) -> Variants:
        """The variant of each slot: [10,000]."""
        slots, variants = zip(*self.ranges, strict=True)
        return np.repeat(np.array(variants, np.int16), slots)

    @cached_property
    def _may_be_named(self) -> Mask:
        """Whether a hash with these last 16 bits may be of a key in `keys`: [65,536]. A lookup is much faster than a search."""
        found = np.zeros(_LAST_BITS + 1, np.bool_)
        found[hashed(list(self.keys), self.salt) & np.uint32(_LAST_BITS)] = True
        return found

    @property
    def shares(self) -> Floats:
        """Each variant's share of the keys without overrides, 0 to 1: its propensity, [variants]."""
        return np.array(shares_of(self.ranges, self.variants)) / SLOTS


@dataclass(frozen=True, slots=True)
class Routed:
    """The variants of events."""

    variant: Variants  # [events]
    randomised: Mask  # [events]; False: an override decided, so the event must not count in a comparison

    def rows(self, variant: int) -> Ints:
        """The events of a variant, ascending."""
        return np.flatnonzero(self.variant == variant)


def route(plan: RoutingPlan, keys: Sequence[bytes], fields: Mapping[str, Sequence[str | None]] | None = None) -> Routed:
    """The variant of each event.

    Args:
        plan: the rollout.
        keys: the events' routing keys; fast if they are `Packed`.
        fields: name -> the field's value of each event, for the names in `plan.fields`; None is no value.

    Raises:
        KeyError: a field that the plan names is missing in `fields`.
    """
    hashes = hashed(keys, plan.salt)
    variant = plan._owners[_slots(hashes)]
    randomised = np.ones(len(keys), np.bool_)
    for override in reversed(plan.fields):  # the first one that fits is the last one written
        chosen = _with_value(override, (fields or {})[override.field])
        variant[chosen] = override.variant
        randomised[chosen] = False
    if plan.keys:
        # Only the few events whose hash is like that of a named key are compared byte by byte.
        for row in np.flatnonzero(plan._may_be_named[hashes & np.uint32(_LAST_BITS)]).tolist():
            named = plan.keys.get(bytes(keys[row]))
            if named is not None:
                variant[row], randomised[row] = named, False
    return Routed(variant, randomised)


def _slots(hashes: Hashes) -> Ints:
    slots: Ints = ((hashes.astype(np.uint64) * np.uint64(SLOTS)) >> np.uint64(32)).astype(np.int64)
    return slots


def _with_value(override: FieldOverride, values: Sequence[str | None]) -> Mask:
    return np.fromiter((value in override.values for value in values), np.bool_, count=len(values))
