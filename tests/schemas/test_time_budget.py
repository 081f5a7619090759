from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.time_budget import TimeBudget


def test_burst_is_spent_and_grows_again_by_its_share() -> None:
    budget = TimeBudget(0.1, 1.0)
    assert budget.allows(100.0)
    budget.spend(101.0, 1.0)
    assert not budget.allows(101.0)
    budget.spend(101.0, 0.5)
    assert not budget.allows(106.0)
    assert budget.allows(106.1)


def test_each_time_costs_something_however_short() -> None:
    budget = TimeBudget(0.1, 1.0, least=0.25)
    for _ in range(4):
        assert budget.allows(5.0)
        budget.spend(5.0, 0.0)
    assert not budget.allows(5.0)


def test_quiet_time_saves_up_no_more_than_the_burst() -> None:
    budget = TimeBudget(0.1, 1.0)
    assert budget.allows(0.0)
    assert budget.allows(1e6)
    budget.spend(1e6, 1.0)
    assert not budget.allows(1e6)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 5)), max_size=60))
def test_no_more_than_the_share_and_the_burst_is_spent(steps: list[tuple[float, float]]) -> None:
    budget, now, spent, longest = TimeBudget(0.1, 2.0), 0.0, 0.0, 0.0
    for pause, takes in steps:
        now += pause
        if budget.allows(now):
            now += takes
            budget.spend(now, takes)
            spent, longest = spent + takes, max(longest, takes)
    assert spent <= 2.0 + 0.1 * now + longest + 1e-6
