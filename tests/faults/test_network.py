"""The network between workers and the broker is cut, falls silent or slows down: lag, and each event has its one result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.broker.choice import Broker
from tests.broker.maven import missing_for_maven
from tests.faults.line import Line, ProxiedKafka
from tests.faults.service import assert_exactly_once, under_load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.durable,
    pytest.mark.skipif(
        missing_for_maven() is not None, reason="starts a broker of its own, which needs Java and Maven"
    ),
]


@pytest.fixture(scope="module")
def own() -> Iterator[ProxiedKafka]:
    with ProxiedKafka() as kafka:
        yield kafka


@pytest.fixture
def line(own: ProxiedKafka) -> Iterator[Line]:
    """The line that only the workers use; load and checker connect directly."""
    yield own.line
    own.line.mend()
    own.line.slow_down(0)


# The length of the outage, not a wait for something. A session lasts 6 s, a transaction 10 s.
@pytest.mark.parametrize(("fail", "seconds"), [(Line.cut, 5), (Line.cut, 13), (Line.silence, 8), (Line.silence, 13)])
def test_network_cut_or_silent(
    own: ProxiedKafka, line: Line, tmp_path: Path, fail: Callable[[Line], None], seconds: float
) -> None:
    """After a silence, data in transit arrives late, as after lost packets: after the session's or the transaction's timeout."""
    kafka = Broker(own.bootstrap, durable=True, kind="maven")
    with under_load(tmp_path, kafka, seed=1101, through=line.bootstrap) as (service, fleet, stream):
        fleet.start("w0", "w1")
        fleet.wait_ready()
        for _ in range(2):
            fleet.wait_committed(1000, revive=True)
            fail(line)
            time.sleep(seconds)
            assert (
                not fleet.stalled()
            )  # a worker whose client hangs since the first outage may have ended and reported it
            line.mend()
        fleet.wait_committed(1000, revive=True)
        assert_exactly_once(service, fleet.finish(stream, revive=True))


def test_slow_network(own: ProxiedKafka, line: Line, tmp_path: Path) -> None:
    """Each direction has a delay of 0.2 s, from the start, through a rebalance and a kill."""
    kafka = Broker(own.bootstrap, durable=True, kind="maven")
    line.slow_down(0.2)
    with under_load(tmp_path, kafka, seed=1103, through=line.bootstrap) as (service, fleet, stream):
        fleet.start("w0")
        fleet.wait_ready()
        fleet.wait_committed(1000, revive=True)
        fleet.start("w1")
        fleet.wait_written()
        fleet.kill("w1")
        fleet.start("w1")
        fleet.wait_written()
        assert_exactly_once(service, fleet.finish(stream, revive=True))
