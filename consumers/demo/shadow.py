"""`millstream demo --shadow`: version 1 is the primary, version 2 its shadow. The comparison job evaluates both with labels."""

import json
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import polars as pl
from rich.console import Console

from millstream.consumers.comparison.names import own_topics
from millstream.consumers.comparison.show import read_results
from millstream.consumers.demo.flight_writer import FlightWriter
from millstream.consumers.demo.flights import ARRIVAL_SCHEMA, LATER_MONTHS, departures
from millstream.consumers.demo.scene import Scene, scene
from millstream.consumers.demo.waiting import wait_until
from millstream.consumers.schema_store import open_store
from millstream.consumers.supervision.child import CommandProcess
from millstream.inference.auc import auc
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.comparisons import ComparisonDecoder, compared_output
from millstream.schemas.store import SchemaStore
from millstream.topics.records import RecordReader

WINDOW_HOURS = 720  # length of a window; windows start at whole multiples of it
SECTIONS: Mapping[str, Any] = {
    "shadows": [{"version": 2}],
    "labels": {
        "topic": "flights-arrivals",
        "schema": "flight-arrival",
        "event_id": "id",
        "value": "late",
        "wait": "48h",
    },
    "comparison": {"window": f"{WINDOW_HOURS}h", "update_every": "2s"},
}
CHUNK_EVENTS = 200  # events written at once
STEP_TIMEOUT = 120.0  # seconds for each step that the demo waits for
TOLERANCE = 0.01  # largest difference between the job's AUC and the exact one


def run_shadow(bootstrap: str, events: int, rate: float, console: Console, stop: threading.Event) -> bool:
    """Run the demo; returns whether the job evaluated each compared event, and its AUCs match an exact computation.

    Raises:
        DemoDataError: the flights can't be read.
        WorkerError: a process ended, or a step took too long.
        BrokerUnreachableError, TopicError: from the broker.
    """
    flights = departures(LATER_MONTHS)[:events]
    with ExitStack() as stack:
        placed = stack.enter_context(scene([1], bootstrap, sections=SECTIONS))
        pipeline = placed.pipelines[1]
        schemas = pipeline.schemas.directory
        assert schemas is not None  # the example's
        (schemas / "2-flight-arrival.avsc").write_text(json.dumps(ARRIVAL_SCHEMA), encoding="utf-8")
        store = open_store(pipeline)
        worker = stack.enter_context(CommandProcess("work", pipeline.path))
        placed.created.extend(own_topics(pipeline))
        job = stack.enter_context(CommandProcess("compare", pipeline.path))
        wait_until(
            lambda: worker.metrics().get("millstream_ready", 0) == 1, STEP_TIMEOUT, "the worker to be ready", stop
        )
        console.print(f"Writing {len(flights):,} departures, and each one's outcome when it has arrived ...")
        _feed(FlightWriter(pipeline, store), flights, rate, stop)

        def compared() -> bool:
            found = worker.metrics()
            done = found.get("millstream_comparisons_total", 0) + found.get("millstream_shadow_skipped_events_total", 0)
            return done >= len(flights) - 0.5

        wait_until(compared, STEP_TIMEOUT, "the shadow's results", stop)
        status = worker.stop()
        console.print("Waiting for the comparison job ...")
        return _judge(placed, store, flights, job, console, stop) and status == 0


def _feed(writer: FlightWriter, flights: pl.DataFrame, rate: float, stop: threading.Event) -> None:
    """Write events in order. Write a flight's label once the events have reached the time of its arrival."""
    arrivals = flights.filter(pl.col("late").is_not_null()).sort("arrived_at").select("id", "late", "arrived_at").rows()
    written, started = 0, time.monotonic()
    for start in range(0, len(flights), CHUNK_EVENTS):
        rows = flights[start : start + CHUNK_EVENTS]
        writer.depart(rows)
        moment = rows["departed_at"][-1] if start + CHUNK_EVENTS < len(flights) else None
        while written < len(arrivals) and (moment is None or arrivals[written][2] <= moment):
            flight, late, _ = arrivals[written]
            writer.arrive(flight, late)
            written += 1
        if stop.wait(max(started + (start + CHUNK_EVENTS) / rate - time.monotonic(), 0.0) if rate else 0.0):
            raise KeyboardInterrupt
    writer.flush()


def _judge(
    placed: Scene,
    store: SchemaStore,
    flights: pl.DataFrame,
    job: CommandProcess,
    console: Console,
    stop: threading.Event,
) -> bool:
    """Wait for the job's results, and compare them with the exact ones."""
    pipeline = placed.pipelines[1]
    exact = _exact(pipeline, store, flights)
    expected = {window: (len(rows), rows["late"].count()) for window, rows in exact.items()}
    found: dict[int, dict[str, Any]] = {}

    def complete() -> bool:
        job.metrics()  # raises if the job has ended
        found.update((row["window_start"], row) for row in read_results(pipeline, store))
        return {window: (row["events"], row["labelled"]) for window, row in found.items()} == expected

    wait_until(complete, STEP_TIMEOUT, f"the comparison job to report {expected}", stop)
    good = True
    for window, rows in sorted(exact.items()):
        known = rows.filter(pl.col("late").is_not_null())
        row = found[window]
        days = f"{_day(row['window_start'])} to {_day(row['window_end'])}"
        console.print(
            f"\nDepartures from {days}: {row['events']:,} of {len(flights):,} events compared, {row['labelled']:,} with their "
            f"outcome; agreement {row['agreement']:.1%}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        for side, version in (("primary", 1), ("shadow", 2)):
            true, job_says = auc(known["late"], known[side]), row[side]["auc"]
            good &= job_says is not None and abs(job_says - true) <= TOLERANCE
            console.print(
                f"  {side:8} version {version}: AUC {job_says:.3f} by the comparison job, {true:.3f} by the exact computation",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
    console.print(
        f"\nThe demo's topics and group on {placed.bootstrap} are deleted now.", highlight=False, soft_wrap=True
    )
    return good


def _day(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d}"


def _exact(pipeline: Pipeline, store: SchemaStore, flights: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """The scores and outcomes of all compared events, by the start of their window (ms since the epoch)."""
    values: list[bytes | None] = []
    with RecordReader(pipeline.client_config(), [pipeline.comparison.topic], from_beginning=True) as reader:
        while records := reader.read(1000, 3.0):
            values += [record.value for record in records]
    compared, _ = ComparisonDecoder(store).decode(values)
    named = pipeline.comparison.output
    scores = [_scores(named, *both) for both in zip(compared.primary, compared.shadow, strict=True)]
    width = WINDOW_HOURS * 3_600_000
    frame = pl.DataFrame(
        {
            "id": compared.ids,
            "window": compared.event_times // width * width,
            "primary": [primary for primary, _ in scores],
            "shadow": [shadow for _, shadow in scores],
        }
    ).join(flights.select("id", "late"), on="id", how="left")
    return {int(window): rows for (window,), rows in frame.partition_by("window", as_dict=True).items()}


def _scores(named: str | None, primary: Mapping[str, Any], shadow: Mapping[str, Any] | None) -> tuple[float, float]:
    """Both models' scores for an event: the output that the job compares, a number in this demo."""
    shadow = shadow or {}  # the demo's shadow fails on no event
    name = compared_output(named, primary, shadow) or ""
    return float(primary[name]), float(shadow[name])
