"""Which model an event runs on, compared with one event at a time."""

import math
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.combined.gathering import groups_of
from millstream.inference.combined.routing import NO_MODEL, ByRules, ByValue, Condition

TEXTS = st.sampled_from(["", "DE", "AT", "US", "7"])
NUMBERS = st.sampled_from([math.nan, -1.0, 0.0, 0.5, 1.0, 10.0])
CONDITIONS = st.one_of(
    st.builds(
        lambda op, value: Condition("n", op, (value,)),
        st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
        st.sampled_from([0.0, 0.5, 1.0]),
    ),
    st.builds(
        lambda op, value: Condition("t", op, (value,)), st.sampled_from(["==", "!="]), st.sampled_from(["DE", "AT"])
    ),
    st.builds(
        lambda op, values: Condition("t", op, tuple(values)),
        st.sampled_from(["in", "not in"]),
        st.lists(st.sampled_from(["DE", "US"]), min_size=1),
    ),
    st.builds(
        lambda op, values: Condition("n", op, tuple(values)),
        st.sampled_from(["in", "not in"]),
        st.lists(st.sampled_from([0.0, 10.0]), min_size=1),
    ),
)
EVENTS = st.lists(st.tuples(TEXTS, NUMBERS), min_size=1, max_size=40)


def inputs_of(events: list[tuple[str, float]]) -> dict[str, Any]:
    return {"t": np.array([text for text, _ in events], object), "n": np.array([number for _, number in events])}


def holds(condition: Condition, event: tuple[str, float]) -> bool:
    value: Any = event[0] if condition.tensor == "t" else event[1]
    if value == "" or (isinstance(value, float) and math.isnan(value)):
        return False
    first: Any = condition.constants[0]
    if condition.operator in {"in", "not in"}:
        return (value in condition.constants) == (condition.operator == "in")
    meanings: dict[str, Any] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
    return bool(meanings[condition.operator](value, first))


@given(
    EVENTS,
    st.lists(st.lists(CONDITIONS, min_size=1, max_size=3), min_size=1, max_size=4),
    st.sampled_from([NO_MODEL, 9]),
)
def test_first_rule_that_holds_decides(
    events: list[tuple[str, float]], rules: list[list[Condition]], default: int
) -> None:
    expected = [
        next((at for at, rule in enumerate(rules) if all(holds(condition, event) for condition in rule)), default)
        for event in events
    ]
    choice = ByRules([(rule, at) for at, rule in enumerate(rules)], default)
    assert choice.chosen(inputs_of(events)).tolist() == expected


@given(EVENTS, st.dictionaries(st.sampled_from(["DE", "7", "FR"]), st.integers(0, 3)), st.sampled_from([NO_MODEL, 9]))
def test_value_of_the_field_decides(events: list[tuple[str, float]], models: dict[str, int], default: int) -> None:
    choice = ByValue("country", "t", models, default)
    assert choice.chosen(inputs_of(events)).tolist() == [models.get(text, default) for text, _ in events]


def test_message_names_the_value_without_a_model() -> None:
    choice = ByValue("country", "t", {"DE": 0}, NO_MODEL)
    inputs = inputs_of([("FR" * 100, 0.0), ("", 0.0)])
    assert choice.why_none(inputs, 0).startswith("no model answers events whose field `country` is 'FRFR")
    assert len(choice.why_none(inputs, 0)) < 130
    assert choice.why_none(inputs, 1) == "no model answers events whose field `country` is absent, null or empty"


@given(st.lists(st.integers(-1, 5), min_size=1, max_size=60))
def test_groups_hold_each_row_once_in_order(chosen: list[int]) -> None:
    groups = groups_of(np.array(chosen))
    assert [value for value, _ in groups] == sorted(set(chosen))
    assert {value: rows.tolist() for value, rows in groups} == {
        value: [row for row, each in enumerate(chosen) if each == value] for value in set(chosen)
    }
