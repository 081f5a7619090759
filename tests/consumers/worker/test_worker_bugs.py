"""Bugs of Millstream's own that an event triggers: they cost that event, and no more."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send

if TYPE_CHECKING:
    from tests.broker.choice import Broker

PROGRAM = Path(__file__).with_name("buggy_stage.py")
OTHERS = {f"e{number}" for number in range(30) if number != 7}


@pytest.mark.durable
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_event_that_breaks_the_decoder_is_a_dead_letter_and_the_worker_goes_on(
    kafka: Broker, tmp_path: Path, delivery: str
) -> None:
    service = python_service(tmp_path, kafka, "return {'y': -inputs['x']}", delivery=delivery)
    send(service, range(30))
    with Worker(service.file, "--until-idle", program=[sys.executable, str(PROGRAM), "decode-raises"]) as worker:
        assert worker.wait() == 0, worker.log
    assert Counter(answered(service)) == Counter(OTHERS)
    (letter,) = service.dead_letters()
    assert (letter.reason, letter.offset) == ("internal_error", 7)
    assert "KeyError" in letter.error
    assert "buggy_stage.py" in letter.error
    assert service.committed() == service.input_ends()


@pytest.mark.durable
@pytest.mark.parametrize("bug", [pytest.param("decode-hangs", marks=pytest.mark.full), "batch-raises"])
def test_workers_that_an_event_ends_are_counted_until_it_is_found(kafka: Broker, tmp_path: Path, bug: str) -> None:
    """A stage that hangs is ended by the watchdog; one that raises where no net is ends the worker. Both leave their mark."""
    service = python_service(
        tmp_path,
        kafka,
        "return {'y': -inputs['x']}",
        limits={"crash_attempts": 1, "stall_after": "1s"},
        membership={"static": True},
    )
    send(service, range(30))
    ends = 0
    while True:
        with Worker(service.file, "--until-idle", program=[sys.executable, str(PROGRAM), bug]) as worker:
            code = worker.wait()
        if code == 0:
            break
        said = "decoding" if bug == "decode-hangs" else "KeyError: 'e7'"
        assert said in worker.log
        ends += 1
        assert ends <= 5, worker.log
    assert ends >= 3  # at least one in a batch, and two alone
    (letter,) = service.dead_letters()
    assert (letter.reason, letter.offset) == ("crashed", 7)
    assert set(answered(service)) == OTHERS
    assert service.committed() == service.input_ends()


def test_events_that_never_become_final_are_told_at_the_end(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, "return {'y': -inputs['x']}", batch={"max_events": 10, "max_wait": "1ms"})
    send(service, range(30))
    with Worker(service.file, program=[sys.executable, str(PROGRAM), "number-skipped"]) as worker:
        service.wait_written(30)
        assert worker.stop() == 1
        assert "a bug in Millstream: 20 events were read, and never became final" in worker.log
        assert "drained" not in worker.log
