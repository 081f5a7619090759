"""Events that take the whole process down, and pipelines that are to stop at a bad event."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from millstream.consumers.errors import NEEDS_CHANGE
from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send

if TYPE_CHECKING:
    from tests.broker.choice import Broker
    from tests.consumers.service import Service

STATIC = {"static": True}  # the successor of a crashed worker has its partitions at once
ABORT = """
if (inputs["x"] == 7).any():
    os.abort()
return {"y": -inputs["x"]}
"""


@pytest.mark.durable
@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.full), "exactly_once"])
def test_event_that_crashes_workers_is_refused_and_the_others_answered(
    kafka: Broker, tmp_path: Path, delivery: str
) -> None:
    service = python_service(
        tmp_path,
        kafka,
        ABORT,
        delivery=delivery,
        batch={"max_events": 8},
        limits={"crash_attempts": 1},
        membership=STATIC,
    )
    send(service, range(30))
    crashes = 0
    while True:
        with Worker(service.file, "--until-idle") as worker:
            code = worker.wait()
        if code == 0:
            break
        crashes += 1
        assert 'model.py", line 9 in predict' in worker.log
        # One in a batch, or two where the first batch was small and got through, one among few, and two alone.
        assert crashes <= 5, worker.log
    assert crashes >= 4
    assert "workers crashed or hung running the event at offset 7" in worker.log
    (letter,) = service.dead_letters()
    assert (letter.reason, letter.offset) == ("crashed", 7)
    assert "crashed, or hung beyond a time limit" in letter.error
    expected = Counter(f"e{number}" for number in range(30) if number != 7)
    found = Counter(answered(service))
    assert found.keys() == expected.keys()
    if delivery == "exactly_once":
        assert found == expected
    assert service.committed() == service.input_ends()


@pytest.mark.durable
def test_workers_that_end_in_peace_do_not_count_as_crashes(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, 'return {"y": -inputs["x"]}', limits={"crash_attempts": 1})
    send(service, [1])
    for _ in range(3):
        with Worker(service.file, "--until-idle", "--log-level", "debug") as worker:
            assert worker.wait() == 0
    send(service, [2])
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
        assert "one by one" not in worker.log
    assert Counter(answered(service)) == {"e1": 1, "e2": 1}


@pytest.mark.durable
@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.full), "exactly_once"])
def test_worker_that_is_stopped_before_its_first_commit_leaves_no_mark(
    kafka: Broker, tmp_path: Path, delivery: str
) -> None:
    body = 'while (inputs["x"] == 7).any():\n    time.sleep(1)\nreturn {"y": -inputs["x"]}'
    service = python_service(tmp_path, kafka, body, delivery=delivery, limits={"drain_timeout": "1s"})
    send(service, [7])
    with Worker(service.file) as worker:
        worker.wait_for(lambda: _first_offset(service) == (0, "millstream starts=1 running=0 alone=0"), 60, "at work")
        assert worker.stop() == 1
    assert "raise `limits.drain_timeout`" in worker.log
    assert _first_offset(service) == (0, "")


def _first_offset(service: Service) -> tuple[int, str]:
    """What the group has committed of the first partition, and the metadata beside it."""
    consumer = Consumer({"bootstrap.servers": service.bootstrap, "group.id": service.group})
    try:
        (position,) = consumer.committed([TopicPartition(service.inputs[0], 0)], timeout=10)
        return position.offset, position.metadata or ""
    finally:
        consumer.close()


@pytest.mark.durable
@pytest.mark.parametrize("delivery", [pytest.param("at_least_once", marks=pytest.mark.full), "exactly_once"])
def test_pipeline_stops_at_a_bad_event_where_it_is_told_to(kafka: Broker, tmp_path: Path, delivery: str) -> None:
    """All before it has one prediction, however often the worker is started again."""
    body = 'if (inputs["x"] == 7).any():\n    raise ValueError("seven")\nreturn {"y": -inputs["x"]}'
    service = python_service(
        tmp_path, kafka, body, delivery=delivery, on_error={"stop": ["model_rejected"]}, batch={"max_events": 4}
    )
    send(service, range(10))
    for _ in range(3):
        with Worker(service.file, "--until-idle") as worker:
            assert worker.wait() == NEEDS_CHANGE
        assert "the event at offset 7 of" in worker.log
        assert "seven" in worker.log
        assert "`on_error.stop` names model_rejected" in worker.log
        assert "Traceback" not in worker.log
    assert service.dead_letters() == []
    assert list(service.committed().values()) == [7]
    assert Counter(answered(service)) == Counter(f"e{number}" for number in range(7))


@pytest.mark.full
@pytest.mark.durable
def test_batch_that_never_ends_ends_the_worker_and_its_event_is_refused(kafka: Broker, tmp_path: Path) -> None:
    body = 'while (inputs["x"] == 2).any():\n    time.sleep(1)\nreturn {"y": -inputs["x"]}'
    limits = {"batch_timeout": "2s", "crash_attempts": 1}
    service = python_service(tmp_path, kafka, body, batch={"max_events": 4}, limits=limits, membership=STATIC)
    send(service, range(6))
    codes: list[int] = []
    while not codes or (codes[-1] and len(codes) < 7):
        with Worker(service.file, "--until-idle") as worker:
            codes.append(worker.wait())
            if len(codes) == 1:
                assert "a micro-batch in the model, the first event at offset 0 of" in worker.log
    assert codes in ([1] * 4 + [0], [1] * 5 + [0])  # as in the test above
    (letter,) = service.dead_letters()
    assert (letter.reason, letter.offset) == ("crashed", 2)
    assert "hung beyond a time limit" in letter.error
    assert set(answered(service)) == {"e0", "e1", "e3", "e4", "e5"}


@pytest.mark.durable
def test_worker_whose_client_hangs_ends_and_its_successor_goes_on(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, 'return {"y": -inputs["x"]}', limits={"stall_after": "1s"})
    hang = tmp_path / "hang"
    program = (sys.executable, "-P", str(Path(__file__).with_name("hanging_worker.py")), str(hang))
    with Worker(service.file, program=program, env={"PYTHONPATH": str(Path(__file__).parents[3])}) as worker:
        worker.wait_ready()
        hang.touch()
        assert worker.wait() == 1
    assert "the worker's loop has not come back for 2 s" in worker.log
    send(service, range(3))
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
    assert set(answered(service)) == {"e0", "e1", "e2"}


@pytest.mark.durable
def test_events_too_old_are_refused_or_skipped_without_costing_the_model(kafka: Broker, tmp_path: Path) -> None:
    body = '(FOLDER / "ran").open("a").write("".join(f"{x:g} " for x in inputs["x"][:, 0]))\nreturn {"y": inputs["x"]}'
    service = python_service(
        tmp_path,
        kafka,
        body,
        input={"format": "json", "schema": "number-event", "event_id": "id", "deadline_header": "until"},
        batch={"max_events": 4},
    )
    now = time.time_ns() // 1_000_000
    send(service, [1, 2], headers=[("until", str(now - 5).encode())])
    send(service, [3], headers=[("until", str(now + 3_600_000).encode())])
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
    assert answered(service) == ["e3"]
    refused = sorted((letter.reason, letter.offset) for letter in service.dead_letters())
    assert refused == [("expired", 0), ("expired", 1)]
    assert {"1", "2"}.isdisjoint((tmp_path / "ran").read_text().split())
