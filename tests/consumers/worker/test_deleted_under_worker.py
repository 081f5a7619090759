"""Events that retention deletes under a running worker, before it has read them."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.clients import wait_until
from tests.consumers.processes import Worker
from tests.consumers.python_service import answered, python_service, send

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker


@pytest.mark.durable
def test_worker_says_which_events_were_deleted_before_it_read_them(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x'][:, 0]}")
    with Worker(service.file) as worker:
        worker.wait_ready()
        send(service, range(3))
        service.wait_written(3)
        worker.send(signal.SIGSTOP)
        send(service, [3])  # answers the request that the stopped worker may have sent before
        send(service, range(4, 20))
        (topic,) = service.inputs
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_records([TopicPartition(topic, 0, 15)])[TopicPartition(topic, 0)].result()
        worker.send(signal.SIGCONT)
        wait_until(lambda: "e19" in answered(service), 60, "the events that are left")
        assert worker.stop() == 0
        [first] = re.findall(rf"{topic}/0: the broker does not have offset ([34]), at which to read on", worker.log)
    assert sorted(answered(service)) == sorted(f"e{number}" for number in (*range(int(first)), *range(15, 20)))
