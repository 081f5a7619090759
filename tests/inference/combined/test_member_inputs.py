"""The union of the inputs of several models: equal ones are there once, and each model gets its own."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from millstream.inference.combined.member_inputs import UNFIT, CombinedInputs, combined_inputs
from millstream.inference.combined.routing import ByRules, Condition
from millstream.inference.conversions import Conversion
from millstream.inference.ragged import Ragged
from millstream.inference.replaced import Source
from millstream.inference.signature import TensorInput
from millstream.schemas.column import ListColumn, NumberColumn
from millstream.schemas.table import Table


def scalar(tensor: str, *fields: str, dtype: str = "float64") -> TensorInput:
    return TensorInput(tensor, fields, False, dtype, (len(fields),))


def tokens(tensor: str, field: str, most: int) -> TensorInput:
    return TensorInput(tensor, (field,), True, "int64", (most,), most)


def mask(most: int) -> TensorInput:
    return TensorInput("mask", (), True, "int64", (most,), most, mask=True)


def table(**columns: Any) -> Table:
    made: dict[str, Any] = {}
    for name, values in columns.items():
        if isinstance(values[0], list):
            lengths = np.array([len(each) for each in values])
            made[name] = ListColumn(NumberColumn(np.concatenate(values)), lengths)
        else:
            valid = np.array([value is not None for value in values])
            numbers = np.array([0.0 if value is None else value for value in values])
            made[name] = NumberColumn(numbers, None if valid.all() else valid)
    return Table(made)


def fill(inputs: CombinedInputs, **columns: Any) -> Any:
    return inputs.fill(table(**columns), allow_nan=False)


def test_equal_inputs_are_there_once_whatever_they_are_called() -> None:
    inputs = combined_inputs(
        [("a", [scalar("x", "p", "q")]), ("b", [scalar("features", "p", "q"), scalar("x", "r")])], [True, True]
    )
    assert [entry.tensor for entry in inputs.inputs] == ["x", "b.x"]
    assert inputs.names == ({"x": "x"}, {"features": "x", "x": "b.x"})
    found = fill(inputs, p=[1.0, 2.0], q=[3.0, 4.0], r=[5.0, 6.0])
    assert found.tensors["x"].tolist() == [[1, 3], [2, 4]]
    assert found.tensors["b.x"].tolist() == [[5], [6]]
    assert UNFIT not in found.tensors


def test_only_events_of_the_models_that_read_a_field_may_lack_it() -> None:
    number = Conversion(missing=math.nan)

    def reading(path: str) -> TensorInput:
        return TensorInput("x", (path,), False, "float64", (1,), conversions=(number,))

    routing = TensorInput("route", ("old",), False, "float64", (1,), conversions=(number,))
    choice = ByRules([([Condition("route", ">=", (-1e308,))], 0)], 1)
    models = [("a", [reading("old")]), ("b", [reading("new")])]
    columns: dict[str, Any] = {"old": [1.0, 2.0, None, None, None], "new": [None, None, 3.0, 4.0, None]}
    for given, found in ((choice, [(0, 2), (1, 3)]), (None, [(3, 5), (3, 5)])):
        inputs = combined_inputs(models, [False, False], [replace(routing, shape=())], given)
        replaced = inputs.fill(table(**columns), allow_nan=True).replaced
        sources = [Source(name, "missing") for name in ("old", "new")]
        assert [(replaced.sources[source].number, replaced.out_of(source)) for source in sources] == found


def test_event_needs_only_the_inputs_of_the_models_that_it_may_run_on() -> None:
    models = [("a", [scalar("x", "p"), scalar("all", "s")]), ("b", [scalar("x", "q"), scalar("every", "s")])]
    inputs = combined_inputs(models, [False, False])
    assert inputs.columns == (0, 1)
    found = fill(inputs, p=[1.0, None, None, 1.0], q=[None, 2.0, None, 2.0], s=[1.0, 1.0, 1.0, None])
    # All models need `s`, so the last event never runs.
    assert [(bad.row, bad.error) for bad in found.unfit] == [
        (3, "field `s` is absent or null, but tensor `all` needs a value")
    ]
    missing = "field `{}` is absent or null, but tensor `{}` needs a value"
    assert found.tensors[UNFIT].tolist() == [
        [None, missing.format("q", "b.x")],
        [missing.format("p", "x"), None],
        [missing.format("p", "x"), missing.format("q", "b.x")],
    ]


def test_event_needs_the_inputs_of_a_model_that_always_runs() -> None:
    inputs = combined_inputs([("a", [scalar("x", "p")]), ("b", [scalar("x", "q")])], [True, False])
    assert inputs.columns == (None, 0)
    found = fill(inputs, p=[1.0, None], q=[None, 1.0])
    assert [bad.row for bad in found.unfit] == [1]
    assert found.tensors[UNFIT].tolist() == [["field `q` is absent or null, but tensor `b.x` needs a value"]]


def test_models_with_the_same_inputs_share_a_column() -> None:
    models = [("a", [scalar("x", "p")]), ("b", [scalar("x", "q")]), ("c", [scalar("y", "p")])]
    inputs = combined_inputs(models, [False, False, False])
    assert inputs.columns == (0, 1, 0)
    assert fill(inputs, p=[None], q=[1.0]).tensors[UNFIT].shape == (1, 2)


def test_models_with_inputs_of_variable_length_have_lengths_of_their_own() -> None:
    models = [("a", [tokens("ids", "words", 3), mask(3)]), ("b", [tokens("ids", "letters", 5), mask(5)])]
    inputs = combined_inputs(models, [False, False])
    assert inputs.names == ({"ids": "ids"}, {"ids": "b.ids"})
    found = fill(inputs, words=[[1, 2], [1, 2, 3, 4]], letters=[[1, 2, 3, 4], [1]])
    assert not found.unfit
    ids = found.tensors["b.ids"]
    assert isinstance(ids, Ragged)
    assert ids.lengths.tolist() == [4, 1]
    first, second = found.tensors[UNFIT].tolist()
    assert first == [None, None]
    assert second == ["field `words` has 4 values, but tensor `ids` takes up to 3 values", None]


def test_equal_inputs_of_variable_length_are_there_once() -> None:
    models = [("small", [tokens("ids", "words", 3), mask(3)]), ("large", [tokens("ids", "words", 3), mask(3)])]
    inputs = combined_inputs(models, [True, False])
    assert [entry.tensor for entry in inputs.inputs] == ["ids", "mask"]
    assert inputs.names == ({"ids": "ids"}, {"ids": "ids"})


def test_routing_inputs_keep_their_names() -> None:
    inputs = combined_inputs([("a", [scalar("x", "p")])], [False], [scalar("x", "country")])
    assert [entry.tensor for entry in inputs.inputs] == ["x", "a.x"]
    assert inputs.names == ({"x": "a.x"},)
