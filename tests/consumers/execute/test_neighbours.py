"""No event changes what a Python model's other events get, whatever the model returns for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.inference.errors import ModelRejected
from millstream.inference.executors.python_outputs import OutputError, as_array

if TYPE_CHECKING:
    from millstream.inference.executors.interface import Tensors

INTEGERS = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
FLOATS = st.one_of(st.floats(width=32), st.sampled_from([0.5, 2.0, 1e300, math.nan, math.inf]))
TEXTS = st.sampled_from(["", "a", "0.5", "a\0", "é"])
ODD = st.sampled_from(
    [
        None,
        np.ma.masked,
        np.ma.array([0.5, 1.5], mask=[True, False]),
        np.ma.array(0.5, mask=True),
        np.str_("s"),
        np.array(["long text", "b"]),
        np.array(["a\ud800", "b"]),
        [np.str_("s")],
        2**63,
        10**400,
        "a\ud800",
        b"a",
        {"a": 1},
        [[1], [2, 3]],
        np.uint64(7),
        np.float32(0.1),
    ]
)
VALUES = st.one_of(
    INTEGERS,
    FLOATS,
    st.booleans(),
    TEXTS,
    ODD,
    st.lists(INTEGERS, max_size=3),
    st.lists(FLOATS, max_size=3),
    st.lists(TEXTS, max_size=3),
)
USUAL = st.sampled_from(
    [7, 2**53 + 1, 0.25, True, "text", [1, 2**53 + 1], [0.5, 1.5], ["a", "b"], np.array(["a", "b"])]
)


def answers(values: list[Any]) -> tuple[dict[int, Any], dict[int, str]]:
    """The output of each event that has one, and why the others have none; the model returns one value an event."""

    def run(inputs: Tensors) -> dict[str, Any]:
        try:
            return {"y": as_array([values[row] for row in inputs["x"].tolist()], len(inputs["x"]))}
        except OutputError as error:
            raise ModelRejected(str(error)) from None

    isolation = BisectingExecutor(run, max_events=len(values), allow_nan_outputs=False)
    outputs, rows, rejected = isolation.run({"x": np.arange(len(values))})
    made = outputs["y"].tolist() if len(rows) else []
    return dict(zip(rows.tolist(), made, strict=True)), {row: why.error for row, why in rejected.items()}


def is_same(value: Any, other: Any) -> bool:
    """Whether they are equal, and of one type; an integer may be a float that is equal."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(is_same, value, other))
    if type(value) is type(other) or {type(value), type(other)} == {int, float}:
        return bool(value == other)
    return False


@given(USUAL, st.lists(st.one_of(st.none(), VALUES), min_size=1, max_size=40), st.integers(1, 30))
@example(7, [2**53 + 1, 0.0], 1)  # 7 may run with 0.0 only, and is a float then
@example(7, [None, None, 2**53 + 1, 0.0], 1)
@example(0.25, [*[None] * 7, 2**63], 1)  # a float holds it, but alone it is refused
def test_an_event_has_the_output_that_it_has_alone_or_none(usual: Any, others: list[Any], count: int) -> None:
    values = [usual] * (len(others) + count) + others
    values = [values[at] for at in np.random.default_rng(len(others)).permutation(len(values)).tolist()]
    made, refused = answers(values)
    assert made.keys() | refused.keys() == set(range(len(values)))
    for row, value in enumerate(values):
        alone, why = answers([value])
        if why:
            assert row in refused
        elif value is usual:
            assert row in made, refused.get(row)
        if row in made:
            assert is_same(made[row], alone[0]), (made[row], alone[0])
