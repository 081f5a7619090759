import pytest

from consumers.plan import batches_ahead, collecting


@pytest.mark.parametrize(("max_wait", "asked"), [(0.0, None), (0.004, None), (0.005, "6"), (0.008, "10"), (0.5, "12")])
def test_broker_collects_while_a_batch_may_wait(max_wait: float, asked: str | None) -> None:
    assert collecting(max_wait).get("fetch.wait.max.ms") == asked
    assert ("fetch.min.bytes" in collecting(max_wait)) == (asked is not None)


@pytest.mark.parametrize(
    ("device", "lanes", "max_events", "ahead"),
    [("cpu", 1, 256, 0), ("cpu", 2, 256, 16), ("cuda", 1, 256, 16), ("tensorrt", 1, 10_000, 1)],
)
def test_device_has_batches_waiting_while_the_next_block_is_decoded(
    device: str, lanes: int, max_events: int, ahead: int
) -> None:
    assert batches_ahead(device, lanes, max_events) == ahead
