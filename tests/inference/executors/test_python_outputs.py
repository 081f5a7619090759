"""What a Python model returns changes no value, and makes none of one that is masked or missing."""

from typing import Any

import numpy as np
import pytest

from millstream.inference.executors.python_outputs import OutputError, as_array

LARGE = 2**53 + 1
"""No float holds it."""
MASKED = np.ma.array([5.0, 2.0], mask=[True, False])


@pytest.mark.parametrize(
    "output",
    [
        MASKED,
        [MASKED],
        [MASKED, np.ma.array([1.0, 2.0])],
        [MASKED, [1.0, 2.0]],
        [[MASKED]],
        (MASKED,),
        [np.ma.array(5.0, mask=True), np.ma.array(1.0)],
        [1.0, np.ma.masked],
    ],
)
def test_masked_values_are_refused_wherever_they_stand(output: Any) -> None:
    with pytest.raises(OutputError, match="holds a masked value"):
        as_array(output, len(output))


@pytest.mark.parametrize("output", [np.ma.array([0.1, 0.2], np.float32), [np.ma.array([0.1, 0.2], np.float32)]])
def test_masked_array_without_a_masked_value_is_as_any_array(output: Any) -> None:
    assert as_array(output, len(output)).dtype == np.float32


@pytest.mark.parametrize("output", [np.array(["approved", "no"]), [np.array(["approved"]), np.array(["no"])]])
def test_texts_of_an_array_have_one_type_whatever_their_length(output: Any) -> None:
    found = as_array(output, 2)
    assert found.reshape(-1).tolist() == ["approved", "no"]
    assert found.dtype == object


def test_half_of_a_character_in_an_array_of_texts_is_refused() -> None:
    with pytest.raises(OutputError, match="half of a character"):
        as_array(np.array(["a", "\ud800"]), 2)


class TestPandas:
    @pytest.fixture
    def pd(self) -> Any:
        return pytest.importorskip("pandas")

    @pytest.mark.parametrize(
        "written",
        [
            "pd.Series([1, None], dtype='Int64')",
            "pd.array([1, None], dtype='Int64')",
            "pd.Series(['a', None], dtype='string')",
            "pd.Categorical([1, None])",
            "pd.DataFrame({'a': pd.array([1, None], dtype='Int64')})",
            "pd.DataFrame({'a': pd.array([1, None], dtype='Int64'), 'b': [0.5, 0.5]})",
            "[pd.Series([1, None], dtype='Int64')] * 2",
        ],
    )
    def test_missing_values_are_refused(self, pd: Any, written: str) -> None:
        with pytest.raises(OutputError, match="holds a missing value"):
            as_array(eval(written, {"pd": pd}), 2)

    def test_nan_of_floats_is_a_value(self, pd: Any) -> None:
        assert np.isnan(as_array(pd.Series([0.5, np.nan]), 2)).tolist() == [False, True]

    def test_integers_of_a_frame_beside_floats_are_as_those_of_lists(self, pd: Any) -> None:
        assert as_array(pd.DataFrame({"a": [1, 2], "b": [0.5, 0.5]}), 2).tolist() == [[1.0, 0.5], [2.0, 0.5]]
        with pytest.raises(OutputError, match="float beside int"):
            as_array(pd.DataFrame({"a": [LARGE, 2], "b": [0.5, 0.5]}), 2)

    @pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
    def test_frame_of_one_type_keeps_it(self, pd: Any, dtype: str) -> None:
        found = as_array(pd.DataFrame([[1, 0], [LARGE, 1]], columns=["a", "a"]).astype(dtype), 2)
        assert found.dtype == dtype
        assert found.tolist() == np.array([[1, 0], [LARGE, 1]]).astype(dtype).tolist()

    def test_texts_come_out_whole(self, pd: Any) -> None:
        assert as_array(pd.DataFrame({"a": ["x\0", "y"], "b": ["z", "é"]}), 2).tolist() == [["x\0", "z"], ["y", "é"]]


class TestPolars:
    @pytest.fixture
    def pl(self) -> Any:
        return pytest.importorskip("polars")

    @pytest.mark.parametrize(
        "written",
        [
            "pl.Series([1, None])",
            "pl.Series([2**53 + 1, None])",
            "pl.Series(['a', None])",
            "pl.Series([[1, None], [1, 2]], dtype=pl.Array(pl.Int64, 2))",
            "pl.DataFrame({'a': [1, None], 'b': [0.5, 0.5]})",
            "[pl.Series([1, None])] * 2",
        ],
    )
    def test_nulls_are_refused(self, pl: Any, written: str) -> None:
        with pytest.raises(OutputError, match="holds NoneType"):
            as_array(eval(written, {"pl": pl}), 2)

    def test_integers_of_a_frame_beside_floats_are_as_those_of_lists(self, pl: Any) -> None:
        assert as_array(pl.DataFrame({"a": [1, 2], "b": [0.5, 0.5]}), 2).tolist() == [[1.0, 0.5], [2.0, 0.5]]
        with pytest.raises(OutputError, match="float beside int"):
            as_array(pl.DataFrame({"a": [LARGE, 2], "b": [0.5, 0.5]}), 2)

    def test_large_integers_stay(self, pl: Any) -> None:
        assert as_array(pl.Series([LARGE, 2]), 2).tolist() == [LARGE, 2]
        assert as_array(pl.Series([[LARGE, 1], [2, 3]]), 2).tolist() == [[LARGE, 1], [2, 3]]
        assert as_array(pl.DataFrame({"a": [LARGE, 2], "b": [3, 4]}), 2).tolist() == [[LARGE, 3], [2, 4]]

    def test_column_keeps_its_type(self, pl: Any) -> None:
        assert as_array(pl.Series([0.1, 0.2], dtype=pl.Float32), 2).dtype == np.float32
        assert as_array(pl.Series(["a\0", "é"]), 2).tolist() == ["a\0", "é"]
