"""Changes of a database as Debezium describes them, in the JSON of Kafka Connect's converter."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from millstream.topics.local.fetch import missing_for
from tests.consumers.service import value_of
from tests.producers.orders import echo_service, work
from tests.producers.programs import CONNECT, connect_jars, run_java

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = pytest.mark.durable

ROWS = 50
FIRST_CHANGED_AT = 1_769_851_800_000
CONFIG = """\
inputs:
  - tensor: numbers
    fields: [{field: PREFIXafter.amount}, {field: PREFIXbefore.amount, missing: -1}, {field: PREFIXop, vocabulary: [c, u, r, d]}]
    dtype: float64
  - {tensor: customer, fields: [PREFIXafter.customer], dtype: string}
outputs: [{tensor: numbers}, {tensor: customer}]
"""


@pytest.mark.parametrize(
    "with_schemas",
    [pytest.param(True, marks=pytest.mark.full, id="schema and payload"), pytest.param(False, id="bare")],
)
def test_changes_of_rows_are_predicted_and_deletions_are_dead_letters(
    kafka: Broker, tmp_path: Path, *, with_schemas: bool
) -> None:
    if (missing := missing_for(CONNECT)) is not None:
        pytest.skip(missing)
    prefix = "payload." if with_schemas else ""
    section = {"format": "json", "event_id": f"{prefix}after.id", "event_time": f"{prefix}source.ts_ms"}
    service = echo_service(tmp_path, kafka, CONFIG.replace("PREFIX", prefix), input=section)
    run_java("Changes.java", connect_jars(), kafka.bootstrap, service.inputs[0], str(with_schemas).lower(), str(ROWS))
    work(service, 3 * ROWS + 1)

    expected = []
    for row in range(ROWS):
        at = FIRST_CHANGED_AT + 10 * row
        expected += [(str(row), at, [row + 0.5, -1, 0], "Zoë"), (str(row), at, [row + 0.75, row + 0.5, 1], "Zoë")]
    found = [json.loads(value_of(message)) for message in service.predictions()]
    rows = [(row["event_id"], row["event_time"], *row["outputs"].values()) for row in found]
    # Records of a row have one key, so its changes stay in order.
    assert sorted(rows, key=lambda row: int(row[0])) == expected

    letters = service.dead_letters()
    assert Counter(letter.error for letter in letters) == {
        f"field `{prefix}after.id`, the event id, is absent or null": ROWS,
        f"{prefix}after.amount: expected a number that fits into a double, found text 'BOI='": 1,
    }
