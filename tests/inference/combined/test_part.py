"""A model that rejects events of a part: only they are blamed, and only this model runs again."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.combined.part import run_part
from tests.inference.combined.scaling import Scaling, version

EVENTS = st.integers(1, 70)


@given(EVENTS, st.sets(st.integers(0, 69)))
def test_exactly_the_bad_events_are_rejected_in_few_runs(events: int, bad: set[int]) -> None:
    executor = Scaling(2, bad)
    rows = np.arange(events) * 3 + 1
    part = run_part(executor.run, {"x": np.arange(events, dtype=np.float64)}, rows, version("m"))
    good = [row for row in range(events) if row not in bad]
    found = [row for row in range(events) if row in bad]
    assert part.rows.tolist() == [row * 3 + 1 for row in good]
    assert part.rejected == {row * 3 + 1: ("model_rejected", f"model m version 1: {row}.0 is bad") for row in found}
    assert part.outputs.keys() == ({"y"} if good else set())
    if good:
        assert part.outputs["y"].tolist() == [row * 2 for row in good]
    assert len(executor.sizes) <= 1 + 2 * len(found) * math.ceil(math.log2(max(events, 2)))
    # Each level of halving runs each event at most once.
    assert sum(executor.sizes) <= events * (1 + math.ceil(math.log2(events)) if events > 1 else 1)
