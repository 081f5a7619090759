"""Partitions that end below the group's offsets."""

from __future__ import annotations

import pytest

from millstream.consumers.errors import OffsetsPastEnd
from millstream.consumers.observability.health import Health
from millstream.consumers.source import past_end as module
from millstream.consumers.source.past_end import PATIENCE, PastEnd, refuse_past_end
from tests.consumers.clock import Clock

A, B = ("in", 0), ("in", 1)


def test_partition_that_stays_too_short_ends_the_worker_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, module)
    past = PastEnd("g", Health(60.0))
    past.note({A: (7, 2)})
    clock.now += PATIENCE
    with pytest.raises(OffsetsPastEnd, match=r"at offset 7 of in/0, but the partition ends at 2.*--to earliest"):
        past.note({A: (7, 2)})


def test_partition_that_is_too_short_for_a_moment_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, module)
    past = PastEnd("g", Health(60.0))
    past.note({A: (7, 2)})
    clock.now += PATIENCE / 2
    past.note({B: (7, 2)})
    clock.now += PATIENCE / 2
    past.note({A: (7, 2)})


def test_worker_is_not_ready_while_a_partition_is_too_short() -> None:
    health = Health(60.0)
    health.ready = True
    past = PastEnd("g", health)
    past.note({A: (7, 2)})
    assert health.readiness() == (False, "not ready: group g is at an offset past the end of in/0")
    assert not health.stops_reading
    past.note({})
    assert health.readiness() == (True, "ready")


def test_partitions_are_told_together_and_the_advice_is_limited_to_them() -> None:
    with pytest.raises(OffsetsPastEnd) as told:
        refuse_past_end("g", {("in", 2): (9, 0), B: (8, 3), ("more", 4): (5, 1)})
    assert "at offset 8 of in/1, but the partition ends at 3. The same holds for in/2, more/4." in str(told.value)
    assert "millstream offsets PIPELINE --partition in/1-2 --partition more/4 --to earliest" in str(told.value)
