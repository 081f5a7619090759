import pytest

from consumers.plan import collecting


@pytest.mark.parametrize(("max_wait", "asked"), [(0.0, None), (0.004, None), (0.005, "6"), (0.008, "10"), (0.5, "12")])
def test_broker_collects_while_a_batch_may_wait(max_wait: float, asked: str | None) -> None:
    assert collecting(max_wait).get("fetch.wait.max.ms") == asked
    assert ("fetch.min.bytes" in collecting(max_wait)) == (asked is not None)
