"""Reads all predictions of the rollout demo, as any consumer would."""

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import fastavro

from millstream.consumers.demo.rollout.account import Answer, Choice
from millstream.consumers.demo.rollout.models import OUTPUT
from millstream.consumers.demo.scene import Scene
from millstream.schemas.records import ROLLOUT_PREDICTION
from millstream.schemas.wire import HEAD_BYTES
from millstream.topics.records import RecordReader

MAX_READ_RECORDS = 5000  # records of one read
LAST_READ_TIMEOUT = 2.0  # seconds without a record, after which none is left


def read_answers(placed: Scene, topic: str, number_of: Callable[[str], int | None]) -> Iterator[Answer]:
    """All predictions on the topic. `number_of`: event ID -> number of the event. Raises as `RecordReader`."""
    schema: Any = fastavro.parse_schema(ROLLOUT_PREDICTION.definition)
    with RecordReader(placed.reading_client, [topic], from_beginning=True) as reader:
        while records := reader.read(MAX_READ_RECORDS, LAST_READ_TIMEOUT):
            for record in records:
                datum = fastavro.schemaless_reader(BytesIO((record.value or b"")[HEAD_BYTES:]), schema, None)
                yield _answer(datum, number_of)


def _answer(datum: Any, number_of: Callable[[str], int | None]) -> Answer:
    choice = datum["rollout"]
    return Answer(
        number_of(datum["event_id"]),
        datum["event_id"],
        datum["version"],
        datum["variant"],
        datum["outputs"][OUTPUT],
        None if choice is None else Choice(*(choice[name] for name in Choice.__slots__)),
    )
