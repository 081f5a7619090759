"""Shares are exact; a change moves as few slots as it can."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.rollout.slots import BadSharesError, Ranges, SlotRange, reallocated, shares_of, whole
from millstream.pipeline.shares import SLOTS


@st.composite
def shares(draw: st.DrawFn, variants: int = 4) -> tuple[int, ...]:
    cuts = sorted(draw(st.lists(st.integers(0, SLOTS), min_size=variants - 1, max_size=variants - 1)))
    return tuple(np.diff([0, *cuts, SLOTS]).tolist())


def owners(ranges: Ranges) -> list[int]:
    return [variant for slots, variant in ranges for _ in range(slots)]


@given(st.lists(shares(), min_size=1, max_size=4))
def test_changes_move_only_what_must_move(steps: list[tuple[int, ...]]) -> None:
    ranges = whole()
    for wanted in steps:
        before, held = owners(ranges), shares_of(ranges, 4)
        ranges = reallocated(ranges, wanted)
        after = owners(ranges)
        assert shares_of(ranges, 4) == wanted
        assert all(one.variant != other.variant for one, other in itertools.pairwise(ranges))
        moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        assert len(moved) == sum(max(new - old, 0) for old, new in zip(held, wanted, strict=True))
        assert all(wanted[old] < held[old] and wanted[new] > held[new] for old, new in moved)


@given(st.lists(st.integers(0, SLOTS), min_size=1, max_size=5))
def test_canary_always_has_the_lowest_slots(steps: list[int]) -> None:
    ranges = whole()
    for share in steps:
        ranges = reallocated(ranges, (SLOTS - share, share))
        assert owners(ranges) == [1] * share + [0] * (SLOTS - share)


@pytest.mark.parametrize("wrong", [(9000, 1001), (9000, 999), (10_001, -1)])
def test_shares_that_are_not_100_percent_are_refused(wrong: tuple[int, int]) -> None:
    with pytest.raises(BadSharesError, match="100 % together"):
        reallocated(whole(), wrong)


def test_ranges_that_are_damaged_are_refused() -> None:
    with pytest.raises(BadSharesError, match="found 9999 slots and variant 0: start the rollout anew"):
        reallocated((SlotRange(9999, 0),), (SLOTS, 0))
    with pytest.raises(BadSharesError, match="variant 2"):
        reallocated(whole(2), (SLOTS, 0))
