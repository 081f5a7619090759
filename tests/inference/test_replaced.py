"""The values that a model gets in place of the events' own are counted: those of `missing`, and those of `unknown`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from millstream.inference.casts import Cast
from millstream.inference.combined.member_inputs import combined_inputs
from millstream.inference.conversions import Conversion
from millstream.inference.features import to_tensors
from millstream.inference.replaced import Replaced, Replacements, Source, absent_in
from millstream.inference.signature import TensorInput
from millstream.inference.vocabulary import Vocabulary
from millstream.schemas.dtypes import ListOf
from tests.schemas.tables import table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.schemas.dtypes import Dtype

COLORS = Vocabulary(("other", "red", "7"), unknown=0)
NAN = Conversion(missing=math.nan)
MISSING, UNKNOWN = Source("f", "missing"), Source("f", "unknown")


def replaced(
    values: Sequence[Any], dtype: Dtype, conversion: Conversion, max_length: int | None = None
) -> Replacements:
    is_array = isinstance(dtype, ListOf)
    shape = (max_length,) if max_length else (2,) if is_array else (1,)
    entry = TensorInput("t", ("f",), is_array, "float32", shape, max_length, conversions=(conversion,), pads=is_array)
    return to_tensors(table_of({"f": dtype}, f=values), [entry], allow_nan=False).replaced


@pytest.mark.parametrize("conversion", [NAN, Conversion(Cast("number", "number"), 0)])
def test_events_without_a_value_are_counted_where_another_stands_in_its_place(conversion: Conversion) -> None:
    assert replaced([1.0, None, None], "float64", conversion) == Replacements(3, {MISSING: Replaced(2, 3)})
    assert replaced([1.0, 2.0], "float64", conversion) == Replacements(2)


def test_events_that_are_rejected_have_nothing_in_place_of_a_value() -> None:
    assert replaced([1.0, None], "float64", Conversion()) == Replacements(2)


@pytest.mark.parametrize("max_length", [None, 2])
def test_list_counts_as_absent_where_all_its_values_are(max_length: int | None) -> None:
    lists = [None, [None, None], [None, 1.0], [], [2.0]]
    found = replaced(lists, ListOf("float64"), NAN, max_length)
    assert found == Replacements(5, {MISSING: Replaced(2, 5, empty=1)})
    assert found.out_of(MISSING) == 4
    assert replaced([[1.0]], ListOf("float64"), NAN, max_length) == Replacements(1)


@pytest.mark.parametrize("max_length", [None, 2])
def test_empty_lists_do_not_show_whether_their_items_have_the_field(max_length: int | None) -> None:
    cases: list[list[Any]] = [[[], []], [[None], []], [[1.0]]]
    windows = [replaced(lists, ListOf("float64"), NAN, max_length) for lists in cases]
    assert [own.sources[MISSING].number for own in windows[:2]] == [0, 1]
    total = sum(windows, Replacements())
    assert (total.sources[MISSING].number, total.out_of(MISSING)) == (1, 2)


@pytest.mark.parametrize(
    ("values", "dtype", "examples"),
    [(["red", "Red", None, "7", "blau"], "string", ("Red", "blau")), ([7, 8, None, 7, 9], "int64", ("8", "9"))],
)
def test_values_that_a_vocabulary_lacks_are_counted_with_examples(
    values: list[Any], dtype: Dtype, examples: tuple[str, ...]
) -> None:
    found = replaced(values, dtype, Conversion(COLORS, 1))
    assert found.sources == {UNKNOWN: Replaced(2, 4, examples), MISSING: Replaced(1, 5)}
    assert (found.out_of(UNKNOWN), found.out_of(MISSING)) == (4, 5)


@pytest.mark.parametrize("max_length", [None, 2])
def test_items_that_a_vocabulary_lacks_are_counted(max_length: int | None) -> None:
    found = replaced([["red", "Red"], [None], ["Red"]], ListOf("string"), Conversion(COLORS, 1), max_length)
    assert found.sources[UNKNOWN] == Replaced(2, 3, ("Red",))


def test_value_of_the_index_of_other_values_is_an_entry() -> None:
    assert replaced(["other", "red"], "string", Conversion(COLORS)).sources == {UNKNOWN: Replaced(0, 2)}


def test_vocabulary_without_an_index_for_other_values_replaces_nothing() -> None:
    strict = Conversion(Vocabulary(COLORS.entries, None))
    assert replaced(["red", "Red"], "string", strict) == Replacements(2)


def test_replacements_of_several_blocks_add_up() -> None:
    blocks = [
        replaced(values, "string", Conversion(COLORS, 1)) for values in (["a", "b"], ["red"], ["b", "c", "d", None])
    ]
    total = sum(blocks, Replacements())
    assert total == Replacements(7, {UNKNOWN: Replaced(5, 6, ("a", "b", "c")), MISSING: Replaced(1, 4)})
    assert total.out_of(MISSING) == 7


def test_fields_of_several_models_are_counted_once() -> None:
    entries = [TensorInput("t", ("f",), False, dtype, (1,), conversions=(NAN,)) for dtype in ("float32", "float64")]
    union = combined_inputs([("a", entries[:1]), ("b", entries[1:])], [True, False])
    found = union.fill(table_of({"f": "float64"}, f=[None, 1.0]), allow_nan=False)
    assert len(found.tensors) > 2
    assert found.replaced == Replacements(2, {MISSING: Replaced(1, 2)})


def test_included_list_counts_as_absent_where_all_its_items_are_and_not_at_all_where_it_is_empty() -> None:
    source = Source("f", "include")

    def absent(values: Sequence[Any]) -> Replaced:
        return absent_in(table_of({"f": ListOf("float64")}, f=values), [source])[source]

    assert absent([None, [None, None], [None, 1.0], [], [2.0]]) == Replaced(2, 4)
    assert absent([[], []]) == Replaced(0, 0)
    assert absent([[1.0]]) == Replaced(0, 1)
    windows = [Replacements(3, {source: absent(values)}) for values in ([[None], [], []], [[1.0], [2.0], []])]
    assert sum(windows, Replacements()).out_of(source) == 3
