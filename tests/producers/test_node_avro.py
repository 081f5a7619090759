"""Nested Avro of Node programs: kafkajs's package for schema registries, whose encoder is avsc."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.consumers.service import value_of
from tests.producers.orders import FIRST_PLACED_AT, echo_service, work
from tests.producers.programs import run_node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.registry.apicurio import Apicurio

pytestmark = pytest.mark.durable

COUNT = 100
INPUT = {"format": "avro", "schema": "shop.Order", "event_id": "id", "event_time": "placed_at"}
CONFIG = """\
inputs:
  - {tensor: numbers, fields: [{field: customer.age, missing: -1}, "items[-1].price"], dtype: float64}
  - {tensor: texts, fields: ['customer.attributes["shop.tier"]', status, "items[0].sku"], dtype: string}
outputs: [{tensor: numbers}, {tensor: texts}]
"""


def test_nested_avro_of_a_node_program_is_predicted(kafka: Broker, registry: Apicurio, tmp_path: Path) -> None:
    service = echo_service(tmp_path, kafka, CONFIG, input=INPUT, schemas={"registry": {"url": registry.url}})
    run_node("avro_orders.js", kafka.bootstrap, service.inputs[0], registry.url, str(COUNT))
    work(service, COUNT + 3)

    found = {}
    for message in service.predictions():
        row = json.loads(value_of(message))
        found[row["event_id"]] = (row["event_time"], row["outputs"]["numbers"], row["outputs"]["texts"])
    assert found == {
        f"o-{number}": (
            FIRST_PLACED_AT + 1500 * number,
            [20 + number if number % 2 else -1, number + 0.25 * (number % 3)],
            [f"tier-{number % 3}", "PAID" if number % 2 else "NEW", "s-0"],
        )
        for number in range(COUNT)
    }
    assert {letter.error for letter in service.dead_letters()} == {
        "field `items[-1].price` is absent or null, but tensor `numbers` needs a value",
        'field `customer.attributes["shop.tier"]` is absent or null, but tensor `texts` needs a value',
        "field 'customer.age': the record ends before the field does",
    }
