"""A model that rejects events of a part: only they are blamed, and only this model runs again."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.combined.part import run_part
from millstream.inference.errors import ModelRejected
from millstream.inference.executors.interface import Inputs
from millstream.inference.executors.python_outputs import OutputError, as_array
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


def test_good_events_run_together_again_where_the_longest_decides_the_shape() -> None:
    def run(inputs: Inputs) -> dict[str, Any]:
        if 1 in inputs["x"]:
            raise ModelRejected("bad")
        return {"y": np.ones((len(inputs["x"]), int(inputs["x"].max())))}

    part = run_part(run, {"x": np.arange(6)}, np.arange(6) + 10, version("m"))
    assert (part.rows.tolist(), set(part.rejected)) == ([10, 12, 13, 14, 15], {11})
    assert part.outputs["y"].shape == (5, 5)


@pytest.mark.parametrize("order", [[7, 0.0, 2**53 + 1, 7, 7, 7, 0.0, 7], [0.0, 7, 7, 2**53 + 1, 7, 0.0, 7, 7]])
def test_integers_beside_floats_that_hold_none_of_them_are_kept(order: list[float]) -> None:
    def run(inputs: Inputs) -> dict[str, Any]:
        try:
            return {"y": as_array([order[row] for row in inputs["x"].tolist()], len(inputs["x"]))}
        except OutputError as error:
            raise ModelRejected(str(error)) from None

    part = run_part(run, {"x": np.arange(8)}, np.arange(8), version("m"))
    kept = [row for row, value in enumerate(order) if isinstance(value, int)]
    assert part.rows.tolist() == kept
    assert part.outputs["y"].tolist() == [order[row] for row in kept]
    assert set(part.rejected) == set(range(8)) - set(kept)
