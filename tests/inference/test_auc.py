import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.inference.auc import auc

CASES = st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=2, max_size=30).filter(
    lambda cases: len({late for late, _ in cases}) == 2
)


def by_pairs(cases: list[tuple[bool, int]]) -> float:
    true = [score for late, score in cases if late]
    false = [score for late, score in cases if not late]
    wins = sum((one > other) + (one == other) / 2 for one in true for other in false)
    return wins / (len(true) * len(false))


@given(CASES)
def test_auc_is_the_share_of_pairs_in_order_with_ties_half(cases: list[tuple[bool, int]]) -> None:
    labels, scores = pl.Series([late for late, _ in cases]), pl.Series([score for _, score in cases])
    assert auc(labels, scores) == pytest.approx(by_pairs(cases))


@given(CASES)
def test_turning_the_scores_round_turns_the_area_round(cases: list[tuple[bool, int]]) -> None:
    labels, scores = pl.Series([late for late, _ in cases]), pl.Series([score for _, score in cases])
    assert auc(labels, -scores) == pytest.approx(1 - auc(labels, scores))


@pytest.mark.parametrize(
    ("labels", "scores", "says"),
    [
        ([True, False], [0.5], "one score per label"),
        ([True, None], [0.5, 0.5], "null or NaN"),
        ([True, False], [0.5, None], "null or NaN"),
        ([True, False], [0.5, float("nan")], "null or NaN"),
        ([True, True], [0.5, 0.6], "2 true and 0 false"),
        ([False], [0.5], "0 true and 1 false"),
    ],
)
def test_undefined_area_is_refused(labels: list[bool | None], scores: list[float | None], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        auc(pl.Series(labels, dtype=pl.Boolean), pl.Series(scores, dtype=pl.Float64))


def test_many_cases_do_not_overflow() -> None:
    cases = 200_000  # their rank sum passes 32 bits
    labels = pl.Series(range(cases)) >= cases // 2
    assert auc(labels, pl.Series(range(cases))) == 1
