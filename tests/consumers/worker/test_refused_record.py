"""A record that the broker refuses for good ends the worker, which says why, in place of trying again for ever."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.broker.clients import create_topic, wait_until
from tests.consumers.processes import Worker
from tests.consumers.python_service import python_service, send

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = pytest.mark.durable
LIMITS = {
    "compacted": ({"cleanup.policy": "compact"}, "If the topic's `cleanup.policy` is `compact`, events without a key"),
    "clock": ({"message.timestamp.before.max.ms": "0"}, "Compare the clocks of this machine and of the broker"),
}


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("role", ["output", "dead letters"])
def test_record_that_its_topic_refuses_ends_the_worker(
    kafka: Broker, tmp_path: Path, delivery: str, limit: str, role: str
) -> None:
    body = "return {'y': inputs['x'][:, 0]}" if role == "output" else "raise ValueError('no')"
    service = python_service(tmp_path, kafka, body, delivery=delivery, with_topics=False)
    settings, advice = LIMITS[limit]
    topics = {"input": service.inputs[0], "output": service.output, "dead letters": service.letters}
    for name, topic in topics.items():
        create_topic(kafka.bootstrap, topic, 1, settings if name == role else {})
    with Worker(service.file) as worker:
        sent = 0

        def refused() -> bool:
            # The broker takes a record within the millisecond in which it was written, so that some may be in time.
            nonlocal sent
            send(service, range(sent, sent + 3))
            sent += 3
            with suppress(TimeoutError):
                worker.wait(1)
            return not worker.running

        wait_until(refused, 60, "a record to be refused")
        assert worker.wait() == 1
        last = worker.log.splitlines()[-1]
        assert "the transaction is aborted" not in worker.log
    assert "could not be written: " in last
    assert topics[role] in last
    assert advice in last
    assert len(service.predictions()) + len(service.dead_letters()) < sent
