"""kafkajs, the client of Node programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.broker.clients import read_all
from tests.producers.orders import COUNT, KEYS, check_orders, echo_service, partitions_by_key
from tests.producers.programs import run_node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = pytest.mark.durable


def test_orders_of_kafkajs_are_predicted(kafka: Broker, tmp_path: Path) -> None:
    service = echo_service(tmp_path, kafka)
    run_node("orders.js", kafka.bootstrap, service.inputs[0], str(COUNT))
    check_orders(service)
    # Its default partitioner is that of Java's clients, and predictions are partitioned in the same way.
    partitions = partitions_by_key(read_all(kafka.bootstrap, service.inputs[0]))
    assert len(partitions) == KEYS
    assert all(len(places) == 1 for places in partitions.values())
    assert partitions_by_key(service.predictions()) == partitions
