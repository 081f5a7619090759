"""A partition that stands still at a batch is named for as long as it does."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.consumers.observability.metrics import BLOCKED, Metrics
from millstream.consumers.source import unreadable
from millstream.consumers.source.unreadable import UnreadableBatches
from tests.consumers.clock import Clock
from tests.consumers.measured import measured

if TYPE_CHECKING:
    import pytest

A, B = ("in", 0), ("in", 1)


def waited(metrics: Metrics, partition: int, offset: int) -> float | None:
    return measured(metrics, BLOCKED, what="batch", topic="in", partition=str(partition), offset=str(offset))


def test_gauge_says_for_how_long_each_stands_still_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, metrics = Clock(monkeypatch, unreadable), Metrics("p")
    batches = UnreadableBatches(metrics)
    batches.note(A, 5, "damaged")
    assert waited(metrics, 0, 5) == 0
    clock.now += 12.5
    batches.note(A, 5, "damaged")
    batches.note(B, 7, "damaged")
    assert (waited(metrics, 0, 5), waited(metrics, 1, 7)) == (12.5, 0)
    clock.now += 1
    batches.note(A, 6, "damaged")
    assert (waited(metrics, 0, 5), waited(metrics, 0, 6)) == (None, 0), "it came further"
    batches.passed([A])
    assert (waited(metrics, 0, 6), waited(metrics, 1, 7)) == (None, 0)
    batches.passed([A, B])
    assert waited(metrics, 1, 7) is None


def test_log_names_it_once_a_minute(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(monkeypatch, unreadable)
    batches = UnreadableBatches(Metrics("p"))
    with caplog.at_level(logging.ERROR):
        for _ in range(121):
            batches.note(A, 5, "damaged")
            clock.now += 1
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["in/0 stands still at offset 5"] * 3
