"""Divides the routing slots among variants. A change of shares moves as few keys as possible.

A key's hash picks one of 10,000 slots, so a slot is 0.01 % of the keys. Each variant owns ranges of slots. Whole numbers make the
shares exact in every language, and their sum can't pass 100 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from millstream.pipeline.shares import SLOTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.schemas.arrays import Ints


class SlotRange(NamedTuple):
    """Neighbouring slots of one variant."""

    slots: int
    variant: int  # index in the rollout's variants


Ranges = tuple[SlotRange, ...]


class BadSharesError(ValueError):
    """Shares or ranges that no rollout can have; the message says what to do. Raised before anything changes."""


def whole(variant: int = 0) -> Ranges:
    """All slots for one variant."""
    return (SlotRange(SLOTS, variant),)


def percent(slots: int) -> str:
    """A share for people, such as `5 %`."""
    return f"{slots / 100:g} %"


def shares_of(ranges: Ranges, variants: int) -> tuple[int, ...]:
    """The slots of each variant."""
    shares = [0] * variants
    for slots, variant in ranges:
        shares[variant] += slots
    return tuple(shares)


def check_shares(shares: Sequence[int]) -> None:
    """Raises BadSharesError unless the shares are at least 0 and add up to 10,000."""
    if any(share < 0 for share in shares) or sum(shares) != SLOTS:
        listed = ", ".join(map(percent, shares))
        raise BadSharesError(
            f"shares: expected at least 0 % each and 100 % together, found {listed} (together {percent(sum(shares))}): "
            "lower one of them, or give the rest to the baseline"
        )


def reallocated(ranges: Ranges, shares: Sequence[int]) -> Ranges:
    """The ranges with new shares. Only variants whose share shrinks lose slots, and only growing ones gain some.

    The baseline (variant 0) gives its lowest slots, and the others give their highest. Variants that grow take the lowest of the
    slots given, in their order. So a canary that goes from 1 % to 5 % and back to 1 % has the same keys as before.

    Args:
        ranges: the ranges so far; together 10,000 slots.
        shares: the new share of each variant, in slots.

    Raises:
        BadSharesError: shares below 0, or not 10,000 together.
    """
    check_shares(shares)
    owners = np.repeat([variant for _, variant in ranges], [slots for slots, _ in ranges])
    if len(owners) != SLOTS or owners.max() >= len(shares):
        raise BadSharesError(
            f"ranges: expected {SLOTS} slots of {len(shares)} variants, found {len(owners)} slots and variant "
            f"{owners.max(initial=-1)}: start the rollout anew"
        )
    growth = np.array(shares) - np.bincount(owners, minlength=len(shares))
    given = [np.flatnonzero(owners == variant) for variant in range(len(shares))]
    given = [
        own[: max(0, -grown)] if variant == 0 else own[len(own) - max(0, -grown) :]
        for variant, (own, grown) in enumerate(zip(given, growth.tolist(), strict=True))
    ]
    # Sorted, so that a growing variant takes the lowest ones.
    owners[np.sort(np.concatenate(given))] = np.repeat(np.arange(len(shares)), growth.clip(0))
    return _ranges(owners)


def _ranges(owners: Ints) -> Ranges:
    starts = np.concatenate(([0], np.flatnonzero(np.diff(owners)) + 1))
    slots = np.diff(starts, append=len(owners))
    return tuple(map(SlotRange, slots.tolist(), owners[starts].tolist()))
