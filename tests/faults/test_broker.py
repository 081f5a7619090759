"""The broker dies, stands still or has no room left under load: lag, and each event still has its one result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.broker.choice import Broker
from tests.broker.clients import wait_until
from tests.broker.maven import MavenKafka, missing_for_maven
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
