"""CloudEvents in structured mode, as CloudEvents' package for JavaScript makes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.consumers.service import value_of
from tests.producers.orders import echo_service, work
from tests.producers.programs import run_node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = pytest.mark.durable

COUNT = 50
FIRST_AT = 1_769_851_800_000
INPUT = {"format": "json", "event_id": "id", "event_time": "time", "event_time_format": "iso8601"}
CONFIG = """\
inputs:
  - {tensor: amount, fields: [data.amount], dtype: float64}
  - {tensor: texts, fields: [data.currency, type], dtype: string}
outputs: [{tensor: amount}, {tensor: texts}]
"""


def test_cloud_events_in_structured_mode_are_predicted(kafka: Broker, tmp_path: Path) -> None:
    service = echo_service(tmp_path, kafka, CONFIG, input=INPUT)
    run_node("cloud_events.js", kafka.bootstrap, service.inputs[0], str(COUNT))
    work(service, COUNT + 3)

    found = {}
    for message in service.predictions():
        row = json.loads(value_of(message))
        found[row["event_id"]] = (row["event_time"], row["outputs"], message.key())
    assert found == {
        f"p-{number}": (
            FIRST_AT + 1500 * number,
            {"amount": number + 0.5, "texts": ["€", "shop.payment.made"]},
            f"c-{number % 7}".encode(),
        )
        for number in range(COUNT)
    }
    # In binary mode, the event's ID is in a header, and its data is the whole value.
    assert {letter.error for letter in service.dead_letters()} == {
        "data.amount: expected a number that fits into a double, found text '12.50'",
        "data: expected an object, found text 'paid'",
        "field `id`, the event id, is absent or null",
    }
