"""Nested orders that clients in other languages write, the pipeline that reads them, and what must come out of it.

Each client makes the orders by itself, with its own language's JSON. So texts, numbers and times differ in their form.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.consumers.processes import Worker
from tests.consumers.service import Section, value_of, write_service

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confluent_kafka import Message

    from millstream.schemas.dead_letters import DeadLetter
    from tests.broker.choice import Broker
    from tests.consumers.service import Service

COUNT = 200
KEYS = 7
NAME = "Zoë <&> 鈴木 🛒"
FIRST_PLACED_AT = 1_769_851_800_000  # 2026-01-31T09:30:00Z; each further order is 1.5 s later
RECORD_TIMESTAMP = 1_700_000_000_000  # of the first order's record, and its time: it has no other
BAD_KEY = b"c-0"
BAD = {
    "order.customer.age: expected a number that fits into a double, found text 'old'": "undecodable",
    "order.items: expected an array, found an object": "undecodable",
    "field `order.items[0].price` is absent or null, but tensor `numbers` needs a value": "unfit",
}
"""The error of each bad order, and its reason. A fourth one is cut off, so it isn't JSON."""

_INPUT: Section = {
    "format": "json",
    "event_id": "order.id",
    "event_time": "order.placed_at",
    "event_time_format": "iso8601",
}
_CONFIG = """\
inputs:
  - tensor: numbers
    fields:
      - {field: order.customer.age, missing: -1}
      - order.rate
      - order.items[0].price
      - order.items[-1].quantity
      - {field: order.is_new, type: boolean}
    dtype: float64
  - {tensor: prices, field: "order.items[].price", dtype: float64, shape: [3], pad: 0}
  - {tensor: name, fields: [order.customer.name], dtype: string}
outputs: [{tensor: numbers}, {tensor: prices}, {tensor: name}]
"""
_ECHO = (
    "class Model:\n    def __init__(self, folder, device): pass\n    def predict(self, inputs): return dict(inputs)\n"
)


def echo_service(folder: Path, kafka: Broker, config: str = _CONFIG, **sections: Any) -> Service:
    """A pipeline over JSON without a schema. The model of this `config` returns its inputs; by default they are orders'."""
    version = folder / "models" / "echo" / "1"
    version.mkdir(parents=True)
    (version / "config.yaml").write_text(config, encoding="utf-8")
    (version / "model.py").write_text(_ECHO, encoding="utf-8")
    defaults: dict[str, Any] = {"input": _INPUT, "model": {"name": "echo"}, "output": {"format": "json"}}
    return write_service(folder, kafka, **defaults | sections)


def work(service: Service, results: int) -> None:
    """Run a worker until there are so many results. Stopping, it finishes what it has read, so that more would be there."""
    with Worker(service.file) as worker:
        worker.wait_ready()
        service.wait_written(results)
        assert worker.stop() == 0


def outputs_by_id(service: Service) -> dict[str, Any]:
    """The outputs of each prediction by its event's ID; none is there twice."""
    rows = [json.loads(value_of(message)) for message in service.predictions()]
    found = {row["event_id"]: row["outputs"] for row in rows}
    assert len(found) == len(rows)
    return found


def check_orders(service: Service) -> None:
    """All orders are predicted, with what their client sent. The bad ones between them are dead letters, whole."""
    work(service, COUNT + len(BAD) + 1)
    assert outputs_by_id(service) == {f"o-{number}": _outputs(number) for number in range(COUNT)}
    for message in service.predictions():
        _check_envelope(message)
    _check_dead_letters(service.dead_letters())


def partitions_by_key(messages: list[Message]) -> dict[bytes, set[int]]:
    """The partitions in which the records of each key are."""
    found: dict[bytes, set[int]] = {}
    for message in messages:
        key, partition = message.key(), message.partition()
        assert isinstance(key, bytes)
        assert partition is not None
        found.setdefault(key, set()).add(partition)
    return found


def _outputs(number: int) -> Mapping[str, Any]:
    """An order, as the model's inputs must have it."""
    items = number % 3 + 1
    prices = [number + 0.25 * item for item in range(items)]
    age = 20 + number if number % 3 == 2 else -1
    return {
        "numbers": [age, number * 1e-7, prices[0], items, number % 2 == 0],
        "prices": prices + [0] * (3 - items),
        "name": NAME,
    }


def _check_envelope(message: Message) -> None:
    row = json.loads(value_of(message))
    number = int(row["event_id"].removeprefix("o-"))
    assert row["event_time"] == (FIRST_PLACED_AT + 1500 * number if number else RECORD_TIMESTAMP)
    assert message.key() == f"c-{number % KEYS}".encode()
    assert message.headers() == [("traceparent", f"00-{number:032x}-00000000000000ff-01".encode())]


def _check_dead_letters(letters: list[DeadLetter]) -> None:
    cut_off = [letter for letter in letters if letter.value == b'{"order": {']
    assert [letter.reason for letter in cut_off] == ["undecodable"]
    others = [letter for letter in letters if letter.value != b'{"order": {']
    assert {letter.error: letter.reason for letter in others} == BAD
    assert len(others) == len(BAD)
    for letter in letters:
        assert letter.key == BAD_KEY
        assert letter.headers == (("traceparent", b"bad"),)
        assert letter.timestamp == RECORD_TIMESTAMP
    for letter in others:
        assert json.loads(letter.value or b"")["order"]["id"] == "bad"
