"""A model that misbehaves on command, under load: away, out of memory, NaN, hanging, taking the process down."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.observability import metrics as m
from tests.broker.clients import wait_until
from tests.consumers.python_service import python_service
from tests.faults.load import DEADLY, NOT_A_NUMBER, Stream, numbers
from tests.faults.service import Fleet, assert_exactly_once, committed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

pytestmark = pytest.mark.durable
RATE = 500  # events a second
MODEL = f"""
x = inputs["x"][:, 0]
while (FOLDER / "hangs").exists():
    time.sleep(0.05)
if (FOLDER / "away").exists():
    raise ConnectionError("the feature store is away")
if len(x) > 16:
    raise MemoryError("no more than 16 events")
if (x == {DEADLY}).any():
    os.abort()
return {{"y": np.where(x == {NOT_A_NUMBER}, np.nan, -x)}}
"""


@contextmanager
def under_load(
    folder: Path, kafka: Broker, seed: int, *, deadly: int | None = None, rate: int = RATE, **sections: Any
) -> Iterator[tuple[Service, Fleet, Stream]]:
    """A service with this model; event `deadly` ends its process."""
    service = python_service(
        folder, kafka, MODEL, **{"delivery": "exactly_once", "output": {}, "batch": {"max_events": 64}, **sections}
    )
    events = numbers(seed, deadly)
    with Stream(service.bootstrap, service.inputs[0], events, rate) as stream, Fleet(service) as fleet:
        yield service, fleet, stream


@pytest.mark.full
def test_executor_away_and_back(kafka: Broker, tmp_path: Path) -> None:
    """The lag grows, but no event is rejected, even if workers are killed meanwhile."""
    away = tmp_path / "away"
    with under_load(tmp_path, kafka, seed=1501) as (service, fleet, stream):
        fleet.start("w0", "w1")
        fleet.wait_ready()
        fleet.wait_committed(1000)
        away.touch()
        for name in ("w0", "w1"):
            fleet[name].wait_for(lambda name=name: fleet[name].get("/ready")[0] == 503, 60, "not ready")  # type: ignore[misc]
        settled = _settled(service)
        stream.wait_for_more(1000)
        assert all(fleet[instance_id].get("/live")[0] == 200 for instance_id in ("w0", "w1"))
        fleet["w0"].wait_for(
            lambda: fleet["w0"].metrics()[f"{m.RETRIES.name}{{what=executor}}"] >= 3, 60, "asking again"
        )
        fleet.kill("w1")
        assert committed(service) == settled
        away.unlink()
        fleet.start("w1")
        fleet.wait_committed(2000)
        assert_exactly_once(service, fleet.finish(stream))
    # The model also runs out of memory with more than 16 events. That must not reject any event.
    assert {letter.reason for letter in service.dead_letters()} == {"nan_output"}


def test_executor_that_hangs_keeps_the_worker_in_the_group(kafka: Broker, tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    with under_load(tmp_path, kafka, seed=1502) as (service, fleet, stream):
        fleet.start("w0", "w1")
        fleet.wait_ready()
        fleet.wait_committed(1000)
        before = {instance_id: fleet[instance_id].metrics()[m.REBALANCES.name] for instance_id in ("w0", "w1")}
        hangs.touch()
        time.sleep(120)  # longer than a session or a transaction may last, and than most models ever take
        for instance_id in ("w0", "w1"):
            assert fleet[instance_id].get("/live")[0] == 200
            assert fleet[instance_id].metrics()[m.ASSIGNED.name] == 2
            assert fleet[instance_id].metrics()[m.REBALANCES.name] == before[instance_id]
        hangs.unlink()
        fleet.wait_committed(2000)
        assert_exactly_once(service, fleet.finish(stream))
    assert {letter.reason for letter in service.dead_letters()} == {"nan_output"}


def test_event_that_takes_the_process_down(kafka: Broker, tmp_path: Path) -> None:
    """After some attempts, only this event is rejected, and the worker continues."""
    deadly = 60
    # After a crash, twice as many events as a batch has run one by one. The event is among them, whatever was committed before.
    sections: Any = {"limits": {"crash_attempts": 1}, "membership": {"static": True}}
    with under_load(tmp_path, kafka, seed=1503, deadly=deadly, rate=50, **sections) as (service, fleet, stream):
        fleet.start("w0")
        crashes = 0

        def refused() -> bool:
            nonlocal crashes
            crashes += len(fleet.revive(crashed=-signal.SIGABRT))
            return any(letter.reason == "crashed" for letter in service.dead_letters())

        wait_until(refused, 240, "the event to be refused")
        sent = fleet.finish(stream)
    assert_exactly_once(service, sent)
    (event,) = [event for event in sent if event.id == f"event-{deadly:010d}"]
    (letter,) = [letter for letter in service.dead_letters() if letter.reason != "nan_output"]
    assert (letter.reason, letter.partition, letter.offset) == ("crashed", event.partition, event.offset)
    assert 3 <= crashes <= 8  # one in a batch, two alone, and more if workers made progress in between


def _settled(service: Service) -> int:
    """How many offsets are committed, once the number no longer changes."""
    found = committed(service)
    while True:
        time.sleep(2)
        before, found = found, committed(service)
        if found is not None and found == before:
            return found
