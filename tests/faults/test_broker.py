"""The broker dies, stands still or has no room left under load: lag, and each event still has its one result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from benchmarks.load import vector_events
from tests.broker.choice import Broker
from tests.broker.clients import wait_until
from tests.broker.maven import MavenKafka, missing_for_maven
from tests.consumers.feeder import Feeder
from tests.consumers.processes import Worker
from tests.consumers.service import id_of, vector_service
from tests.faults.disk import SmallDisk
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
    with under_load(tmp_path, Broker(own.bootstrap, durable=True, kind="maven"), seed=501) as (service, fleet, stream):
        fleet.start("w0", "w1")
        fleet.wait_ready()
        for _ in range(4 if full else 1):
            stream.wait_for_more(2000)
            own.kill()
            own.start()
        stream.wait_for_more(2000)
        assert_exactly_once(service, fleet.finish(stream, revive=True))


def test_broker_that_stands_still(own: FreezableKafka, tmp_path: Path, full: bool) -> None:
    """The transaction's timeout is ten seconds. In the full suite, the broker also stands still for longer."""
    with under_load(tmp_path, Broker(own.bootstrap, durable=True, kind="maven"), seed=502) as (service, fleet, stream):
        fleet.start("w0", "w1")
        fleet.wait_ready()
        for seconds in (10, 13, 13) if full else (10,):
            stream.wait_for_more(2000)
            own.freeze()
            time.sleep(seconds)
            own.thaw()
        stream.wait_for_more(2000)
        assert_exactly_once(service, fleet.finish(stream, revive=True))


def test_worker_says_that_the_broker_stands_still_and_that_it_answers_again(
    own: FreezableKafka, tmp_path: Path
) -> None:
    """No connection is closed, so no client reports anything. Answers that come too late must not end the worker."""
    service = vector_service(tmp_path, Broker(own.bootstrap, durable=True, kind="maven"), delivery="at_least_once")
    load = vector_events(200_000, seed=504)
    with Worker(service.file) as worker, Feeder(own.bootstrap, service.inputs[0], load, rate=500) as feeder:
        worker.wait_ready()
        service.wait_written(500)
        for times in (1, 2):
            own.freeze()
            worker.wait_for(lambda: "does not answer" in worker.get("/ready")[1], 60, "not ready")
            assert worker.get("/ready")[0] == 503
            time.sleep(10)  # the length of the silence
            own.thaw()
            worker.wait_for(lambda n=times: worker.log.count("answers again, after") == n, 60, "told that it is back")  # type: ignore[misc]
            worker.wait_for(lambda: worker.get("/ready")[0] == 200, 60, "ready again")
            feeder.wait_for_more(500)
        sent = feeder.stop()
        service.wait_committed(120)
        assert worker.log.count("does not answer; waiting, nothing is lost") == 2
        assert "SESSTMOUT" not in worker.log
        assert worker.stop() == 0
    assert set(map(id_of, service.predictions())) == {f"event-{number:010d}" for number in range(sent)}


class OnDisk(MavenKafka):
    """A broker that stores its data on its own disk."""

    def __init__(self, disk: SmallDisk) -> None:
        super().__init__()
        self._disk = disk

    def _settings(self) -> dict[str, object]:
        return super()._settings() | {"log.dirs": self._disk.folder / "data"}


def test_broker_whose_disk_is_full(tmp_path: Path) -> None:
    """The broker ends by itself. Once there is room and it is restarted, the work continues."""
    with SmallDisk(tmp_path / "disk") as disk, OnDisk(disk) as own:
        kafka = Broker(own.bootstrap, durable=True, kind="maven")
        with under_load(tmp_path, kafka, seed=503) as (service, fleet, stream):
            fleet.start("w0", "w1")
            fleet.wait_committed(2000)
            disk.fill()
            wait_until(lambda: not own.running, 120, "the broker to end on a full disk")
            assert all(fleet[instance_id].get("/live")[0] == 200 for instance_id in ("w0", "w1"))
            disk.make_room()
            own.start()
            fleet.wait_committed(2000, revive=True)
            assert_exactly_once(service, fleet.finish(stream, revive=True))
