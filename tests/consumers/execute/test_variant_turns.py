"""No variant pays more than another for being the first of a micro-batch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.execute.variant_turns import VariantTurns


@pytest.mark.parametrize("size", [1, 8, 256])
@pytest.mark.parametrize("shares", [(0.99, 0.01), (0.9, 0.1), (0.5, 0.5), (0.6, 0.2, 0.1, 0.1)])
def test_each_variant_is_first_for_the_same_share_of_its_events(shares: tuple[float, ...], size: int) -> None:
    turns, chance = VariantTurns(), np.random.default_rng(1)
    events, first = Counter[int](), Counter[int]()
    for counts in chance.multinomial(size, shares, 20_000).tolist():
        sizes = [(variant, count) for variant, count in enumerate(counts) if count]
        chosen = turns.first(sizes)
        events.update(dict(sizes))
        first[chosen] += counts[chosen]
    found = [first[variant] / events[variant] for variant in range(len(shares))]
    assert found == pytest.approx([found[0]] * len(shares), abs=0.02)


def test_batches_of_two_sizes_in_turn_are_no_advantage() -> None:
    turns = VariantTurns()
    first = Counter((turns.first([(1, size), (0, size)]), size) for size in [10, 100] * 1000)
    assert all(first[0, size] == pytest.approx(500, abs=5) for size in (10, 100))


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), max_size=30))
def test_the_same_batches_have_the_same_turns_of_variants_that_they_have(batches: list[list[int]]) -> None:
    one, other = VariantTurns(), VariantTurns()
    for counts in batches:
        chosen = one.first(list(enumerate(counts)))
        assert chosen in range(len(counts))
        assert other.first(list(enumerate(counts))) == chosen
