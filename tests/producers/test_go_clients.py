"""Two clients of Go programs, with each compression: segmentio/kafka-go and twmb/franz-go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.broker.clients import read_all
from tests.producers.orders import COUNT, check_orders, echo_service, partitions_by_key
from tests.producers.programs import run_go

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = pytest.mark.durable


@pytest.mark.parametrize("client", [pytest.param("kafka-go", marks=pytest.mark.full), "franz-go"])
def test_orders_of_go_clients_are_predicted(kafka: Broker, tmp_path: Path, client: str) -> None:
    service = echo_service(tmp_path, kafka)
    run_go(client, kafka.bootstrap, service.inputs[0], str(COUNT))
    check_orders(service)
    # Predictions are partitioned as the orders are: kafka-go is told to do it as Java's clients do, franz-go does it anyway.
    assert partitions_by_key(service.predictions()) == partitions_by_key(read_all(kafka.bootstrap, service.inputs[0]))
