"""Several batches in flight, and topics of different weight, on a real broker."""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send
from tests.consumers.service import value_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

# Batches take from 0 to 9 ms, by their first event: those in flight end in another order than they began.
UNEVEN = 'time.sleep(int(inputs["x"][0, 0]) * 7 % 10 / 1000)\nreturn {"y": -inputs["x"]}'


@pytest.mark.durable
@pytest.mark.parametrize(
    ("delivery", "ordering"),
    [
        ("at_least_once", "partition"),
        ("at_least_once", "none"),
        pytest.param("at_least_once", "key", marks=pytest.mark.full),
        ("exactly_once", "key"),
    ],
)
def test_several_batches_in_flight_answer_every_event(
    kafka: Broker, tmp_path: Path, delivery: str, ordering: str
) -> None:
    service = python_service(
        tmp_path,
        kafka,
        UNEVEN,
        delivery=delivery,
        ordering=ordering,
        model={"name": "number", "concurrent_batches": 2, "instances": 2},
        batch={"max_events": 8, "max_wait": "1ms"},
    )
    keys = [b"a", b"b", b"c"]
    for at, key in enumerate(keys):
        send(service, range(at, 1500, 3), key=key)
    with Worker(service.file) as worker:  # one that is told to end in the middle
        service.wait_written(200)
        assert worker.stop(signal.SIGTERM) == 0
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0
    assert Counter(answered(service)) == Counter(f"e{number}" for number in range(1500))
    assert service.committed() == service.input_ends()
    if ordering != "none":
        for key in keys:
            numbers = [
                int(json.loads(value_of(message))["event_id"][1:])
                for message in service.predictions()
                if message.key() == key
            ]
            assert numbers == sorted(numbers)


@pytest.mark.full
@pytest.mark.durable
def test_backlog_of_a_light_topic_does_not_hold_up_a_heavy_one(kafka: Broker, tmp_path: Path) -> None:
    body = """
    time.sleep(0.02)  # the model is what there is a backlog for
    (FOLDER / "ran").open("a").write("".join(f"{x:g} " for x in inputs["x"][:, 0]))
    return {"y": inputs["x"]}
    """
    service = python_service(
        tmp_path, kafka, body, inputs=2, batch={"max_events": 32}, limits={"in_flight_events": 4000}
    )
    bulk, urgent = service.inputs
    file = service.file.read_text()
    service.file.write_text(file.replace("input:\n", f"input:\n  weights: {{{bulk}: 1, {urgent}: 3}}\n", 1))
    send(service, range(8000), bulk)
    send(service, range(10_000, 16_000), urgent)
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait(120) == 0
    ran = [int(x) for x in (tmp_path / "ran").read_text().split()]
    assert sorted(set(ran) - {0}) == [*range(1, 8000), *range(10_000, 16_000)]  # 0: the model's warm-up
    # By weight 2,000 of the bulk are through when the last urgent one is; some more where the broker gave bulk first, or
    # the urgent ones had to be fetched. First come, first served would be 6,000.
    last = max(at for at, x in enumerate(ran) if x >= 10_000)
    assert sum(x < 10_000 for x in ran[:last]) < 4500
