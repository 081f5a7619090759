"""Java's kafka-clients, with transactions and each compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.topics.local.kafka_jars import kafka_jars
from tests.broker.clients import read_all
from tests.broker.maven import CACHE, missing_for_maven
from tests.producers.orders import COUNT, check_orders, echo_service, partitions_by_key
from tests.producers.programs import run_java

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = pytest.mark.durable


def test_committed_orders_of_kafka_clients_are_predicted(kafka: Broker, tmp_path: Path) -> None:
    if (missing := missing_for_maven()) is not None:
        pytest.skip(missing)
    service = echo_service(tmp_path, kafka)
    run_java("Orders.java", kafka_jars(CACHE), kafka.bootstrap, service.inputs[0], str(COUNT))
    check_orders(service)
    # Predictions are partitioned as its records are.
    assert partitions_by_key(service.predictions()) == partitions_by_key(read_all(kafka.bootstrap, service.inputs[0]))
