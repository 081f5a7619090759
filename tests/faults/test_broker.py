"""The broker dies or stands still under load: lag, and each event still has its one result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.broker.choice import Broker
from tests.broker.kafka_jars import missing_for_maven
from tests.faults.service import FreezableKafka, assert_exactly_once, under_load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.durable,
    pytest.mark.skipif(missing_for_maven() is not None, reason="stops a broker of its own, which needs Java and Maven"),
]


@pytest.fixture(scope="module")
def own() -> Iterator[FreezableKafka]:
    with FreezableKafka() as kafka:
        yield kafka


def test_broker_killed_and_started_anew(own: FreezableKafka, tmp_path: Path, full: bool) -> None:
    with under_load(tmp_path, Broker(own.bootstrap, durable=True, kind="maven"), seed=501) as (service, crew, stream):
        crew.start("w0", "w1")
        crew.wait_ready()
        for _ in range(4 if full else 1):
            stream.wait_for_more(2000)
            own.kill()
            own.start()
        stream.wait_for_more(2000)
        assert_exactly_once(service, crew.finish(stream, revive=True))


def test_broker_that_stands_still(own: FreezableKafka, tmp_path: Path, full: bool) -> None:
    """Ten seconds are the transaction's timeout: in full it stands still for longer, too."""
    with under_load(tmp_path, Broker(own.bootstrap, durable=True, kind="maven"), seed=502) as (service, crew, stream):
        crew.start("w0", "w1")
        crew.wait_ready()
        for seconds in (10, 13, 13) if full else (10,):
            stream.wait_for_more(2000)
            own.freeze()
            time.sleep(seconds)
            own.thaw()
        stream.wait_for_more(2000)
        assert_exactly_once(service, crew.finish(stream, revive=True))
