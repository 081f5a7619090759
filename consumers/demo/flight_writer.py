"""Writes flights to a pipeline's topics: departures as events, and whether they arrived late as labels."""

from itertools import repeat

import polars as pl

from millstream.consumers.demo.flights import encode_events
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.rows import encode_row
from millstream.schemas.store import SchemaStore
from millstream.topics.records import RecordWriter


class FlightWriter:
    """For a pipeline with labels of `ARRIVAL_SCHEMA`."""

    def __init__(self, pipeline: Pipeline, store: SchemaStore) -> None:
        assert pipeline.labels is not None
        assert pipeline.labels.schema_name is not None
        assert pipeline.input.schema_name is not None
        self._event = store.by_name(pipeline.input.schema_name)
        self._label = store.by_name(pipeline.labels.schema_name)
        self._events = RecordWriter(pipeline.client_config(), pipeline.input.topics[0])
        self._labels = RecordWriter(pipeline.client_config(), pipeline.labels.topic)

    def depart(self, flights: pl.DataFrame, *, keyed: bool = True) -> None:
        """Write events: rows of `flights.departures`. `keyed`: by the aircraft; otherwise they have no key."""
        keys = flights["tail_number"] if keyed else repeat(None, len(flights))
        for value, tail in zip(encode_events(flights, self._event.id), keys, strict=True):
            self._events.write(value, tail.encode() if tail else None)

    def arrive(self, flight: str, late: bool) -> None:
        """Write the label of the flight with this ID."""
        value = encode_row(self._label.definition, self._label.id, {"id": flight, "late": late})
        self._labels.write(value, flight.encode())

    def flush(self) -> None:
        """Wait until Kafka has acknowledged all records."""
        self._events.flush()
        self._labels.flush()
