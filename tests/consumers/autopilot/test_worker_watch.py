"""Whether workers run, by their consumer group."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer

from millstream.consumers.autopilot import worker_watch
from millstream.consumers.autopilot.worker_watch import ASK_EVERY, WorkerWatch
from tests.broker.clients import wait_until
from tests.consumers.autopilot.desk import FILE, pipeline_of
from tests.pipeline.pipeline_files import load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.conftest import MakeTopic


def test_broker_is_asked_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, empty, asked = 0.0, True, []

    def is_empty(_: object, group: str) -> bool:
        asked.append(group)
        return empty

    monkeypatch.setattr(worker_watch, "is_empty", is_empty)
    watch = WorkerWatch(pipeline_of(tmp_path), lambda: now)
    assert watch.absence().startswith("no worker runs: the consumer group flights has no member")
    empty, now = False, ASK_EVERY - 1
    assert watch.absence()
    now = ASK_EVERY
    assert watch.absence() == ""
    assert asked == ["flights", "flights"]


@pytest.mark.durable
def test_group_without_a_member_and_one_that_never_was_are_told(
    kafka: Broker, tmp_path: Path, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    name = f"flights-{topic[-8:]}"
    pipeline = load(tmp_path, FILE.replace("127.0.0.1:9092", kafka.bootstrap).replace("flights", name))
    # A broker that has just started may not know yet who coordinates the group.
    wait_until(lambda: WorkerWatch(pipeline).absence().startswith("no worker runs"), 30, "that nobody runs")
    consumer = Consumer({**pipeline.client_config(), "group.id": pipeline.group_id})
    with closing(consumer):
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), 30, "an assignment")
        assert WorkerWatch(pipeline).absence() == ""
    assert WorkerWatch(pipeline).absence().startswith("no worker runs")
