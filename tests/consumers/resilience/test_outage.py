"""What the log says of outages that follow each other."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.resilience import outage as outage_module
from millstream.consumers.resilience.outage import LOG_INTERVAL, WORTH_A_LINE, Outages
from tests.consumers.clock import Clock

if TYPE_CHECKING:
    import pytest


class Log:
    """Outages that each last some seconds, and what the log says of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self.clock = Clock(monkeypatch, outage_module)
        self._caplog = caplog
        self._outages = Outages(Health(60), Metrics("p"))

    def outage(self, seconds: float) -> list[str]:
        """An outage; returns the lines about it."""
        self._caplog.clear()
        outage = self._outages.begin("features")
        outage.note(OSError("no store"), 0.1, None)
        self.clock.now += seconds
        outage.note(OSError("no store"), 0.1, None)
        outage.end(works=True)
        return [message.partition(",")[0].partition(";")[0] for message in self._caplog.messages]


def test_each_outage_that_takes_a_while_has_a_line_at_its_begin_and_at_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(monkeypatch, caplog)
    assert log.outage(1.0) == ["no store", "features: works again"]
    assert log.outage(WORTH_A_LINE) == ["no store", "features: works again"]
    assert log.outage(WORTH_A_LINE) == ["no store", "features: works again"]


def test_short_outages_that_come_often_fill_no_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log(monkeypatch, caplog)
    assert log.outage(1.0) == ["no store", "features: works again"]
    assert [log.outage(WORTH_A_LINE / 2) for _ in range(5)] == [[]] * 5
    log.clock.now += LOG_INTERVAL
    assert log.outage(1.0) == ["no store", "features: works again"]
