"""Confluent's serializer for JSON Schema, with a schema registry: five bytes, then JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from millstream.schemas.wire import frame, schema_id_of
from tests.broker.clients import read_all
from tests.consumers.service import value_of
from tests.producers.orders import echo_service, outputs_by_id, work

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.registry.apicurio import Apicurio

pytestmark = pytest.mark.durable

COUNT = 50
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Payment",
    "type": "object",
    "properties": {
        "payment": {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "amount": {"type": "number"},
                "parts": {"type": "array", "items": {"type": "object", "properties": {"tax": {"type": "number"}}}},
            },
            "required": ["id"],
        }
    },
}
CONFIG = """\
inputs:
  - {tensor: numbers, fields: [payment.amount, "payment.parts[1].tax"], dtype: float64}
outputs: [{tensor: numbers}]
"""


def test_events_of_the_json_schema_serializer_are_predicted(kafka: Broker, registry: Apicurio, tmp_path: Path) -> None:
    service = echo_service(tmp_path, kafka, CONFIG, input={"format": "json", "event_id": "payment.id"})
    topic = service.inputs[0]
    serialize = JSONSerializer(json.dumps(SCHEMA), SchemaRegistryClient({"url": registry.url}))
    context = SerializationContext(topic, MessageField.VALUE)
    values = [serialize(payment(number), context) or b"" for number in range(COUNT)]
    schema_id = schema_id_of(values[0])
    unserialized = [json.dumps(payment(COUNT)).encode(), frame(schema_id) + json.dumps(payment(0, "much")).encode()]
    unfit = serialize({"payment": {"id": 0}}, context)  # its schema allows it
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number, value in enumerate([*values, *unserialized, unfit, values[0][:3]]):
        producer.produce(topic, value, str(number))
    assert producer.flush(30) == 0
    work(service, COUNT + 4)

    # The five bytes are the magic byte and the ID that the registry gave the schema.
    sent = [value_of(message) for message in read_all(kafka.bootstrap, topic)]
    assert sum(value[:5] == b"\x00" + schema_id.to_bytes(4, "big") for value in sent) == COUNT + 2
    # Plain JSON in the same topic is read, too.
    assert outputs_by_id(service) == {str(number): {"numbers": [number + 0.5, number]} for number in range(COUNT + 1)}
    assert {letter.error for letter in service.dead_letters()} == {
        "payment.amount: expected a number that fits into a double, found text 'much'",
        "field `payment.amount` is absent or null, but tensor `numbers` needs a value",
        # Only three of the five bytes:
        "expected UTF-8 text, found bytes of another encoding, such as UTF-16, or of another format than JSON",
    }


def payment(number: int, amount: Any = None) -> dict[str, Any]:
    parts = [{"tax": -1}, {"tax": number}]
    return {"payment": {"id": number, "amount": number + 0.5 if amount is None else amount, "parts": parts}}
