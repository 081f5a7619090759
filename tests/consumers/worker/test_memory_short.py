"""A worker that can't get the memory to go on says so in one message, and loses nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send

if TYPE_CHECKING:
    from tests.broker.choice import Broker

PROGRAM = Path(__file__).with_name("buggy_stage.py")


@pytest.mark.durable
@pytest.mark.parametrize(
    ("short", "doing"),
    [
        ("read-short", "read records (Unable to allocate 1.00 EiB"),
        (
            "decode-short",
            "decoded events or ran the model (Unable to allocate 1,152,921,504,606,846,976 bytes",
        ),
    ],
)
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_worker_without_memory_ends_with_one_message_and_the_next_one_goes_on(
    kafka: Broker, tmp_path: Path, short: str, doing: str, delivery: str
) -> None:
    service = python_service(tmp_path, kafka, "return {'y': -inputs['x']}", delivery=delivery)
    send(service, range(30))
    with Worker(service.file, "--until-idle", program=[sys.executable, str(PROGRAM), short]) as worker:
        assert worker.wait() == 1, worker.log
        *_, totals, early, message = worker.log.splitlines()
    assert "Traceback" not in worker.log
    assert " 0 predicted" in totals
    assert early.endswith("the worker ended early, by an error: the totals count what was final until then")
    assert message.startswith(f"memory ran short while the worker {doing}")
    assert "the events since the last commit are read again" in message
    assert "lower `batch.max_events` and `limits.in_flight_bytes`" in message
    assert service.dead_letters() == []
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
        assert "ended early" not in worker.log
    assert sorted(answered(service)) == sorted(f"e{number}" for number in range(30))
