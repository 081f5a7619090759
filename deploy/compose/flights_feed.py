"""The producer of docker-compose.yml: the flights of 2013 as if they left now, and a while later whether each came late."""

import argparse
import json
import os
import time
from collections import deque
from pathlib import Path

import polars as pl

from millstream.consumers.demo.example import example_folder
from millstream.consumers.demo.flight_writer import FlightWriter
from millstream.consumers.demo.flights import ARRIVAL_SCHEMA, LATER_MONTHS, departures
from millstream.consumers.schema_store import open_store
from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.store import SchemaStore

TICK = 0.1  # seconds


def main() -> None:
    """Register the schemas, or write events and labels until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline", type=Path, help="folder of the pipeline file")
    parser.add_argument("--register", action="store_true", help="register the schemas of events and labels, and end")
    parser.add_argument("--rate", type=float, default=200, help="events a second (default: 200)")
    parser.add_argument("--flight-time", type=float, default=30, help="seconds from event to label (default: 30)")
    args = parser.parse_args()
    pipeline = load_pipeline(args.pipeline / "pipeline.yaml", os.environ)
    if args.register:
        register(pipeline, open_store(pipeline))
    else:
        feed(pipeline, open_store(pipeline), args.rate, args.flight_time)


def register(pipeline: Pipeline, store: SchemaStore) -> None:
    """As a producer's serializer does at its first record: workers expect the schemas to be there."""
    assert pipeline.labels is not None
    departure = (example_folder() / "schemas" / "1-flight-departure.avsc").read_text(encoding="utf-8")
    store.register(pipeline.input.schema_name, json.loads(departure))
    store.register(pipeline.labels.schema_name, ARRIVAL_SCHEMA)


def feed(pipeline: Pipeline, store: SchemaStore, rate: float, flight_time: float) -> None:
    """Write at this rate, for ever. Ids carry the start's time, so that no two runs write one twice."""
    writer = FlightWriter(pipeline, store)
    flights = departures(LATER_MONTHS)
    started, run = time.monotonic(), int(time.time())
    sent, airborne = 0, deque[tuple[float, str, bool]]()
    while True:
        now = time.monotonic()
        due = int((now - started) * rate)
        while sent < due:
            rounds, first = divmod(sent, len(flights))
            rows = leaving_now(flights[first : first + min(due - sent, 500)], f"{run}.{rounds}")
            writer.depart(rows)
            arrived = rows.filter(pl.col("late").is_not_null())
            airborne.extend((now + flight_time, *row) for row in arrived.select("id", "late").iter_rows())
            sent += len(rows)
        while airborne and airborne[0][0] <= now:
            _, flight, late = airborne.popleft()
            writer.arrive(flight, late)
        time.sleep(TICK)


def leaving_now(rows: pl.DataFrame, run: str) -> pl.DataFrame:
    """The same flights with ids of this run, at this moment."""
    moment = pl.lit(time.time_ns() // 1_000_000, pl.Int64)
    return rows.with_columns(pl.format("{}#{}", "id", pl.lit(run)).alias("id"), moment.alias("departed_at"))


if __name__ == "__main__":
    main()
