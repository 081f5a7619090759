"""The workloads: their events, the model that runs them, and the number of events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import yaml

from benchmarks.load import (
    VECTOR,
    WIDE,
    Load,
    flights_events,
    json_events,
    kserve_requests,
    vector_events,
    write_vector_model,
)
from benchmarks.nested import NAME as ORDERS
from benchmarks.nested import SCHEMA_ID as ORDER_SCHEMA_ID
from benchmarks.nested import nested_avro_events, nested_json_events, write_nested_model
from benchmarks.text import MODEL as TEXT_MODEL
from benchmarks.text import SCHEMA_FILE as TEXT_SCHEMA
from benchmarks.text import text_events, text_folder
from millstream.consumers.demo.example import example_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEED = 13
ID_AT = 5  # position of an Avro prediction's ID: it follows the head of the wire format


@dataclass(frozen=True, slots=True)
class Workload:
    """Events and the model that runs them. The events' IDs are all different."""

    name: str
    about: str
    make: Callable[[int, int], Load]  # number of events, seed -> events
    folder: Path  # contains schemas/ and models/
    schema: str  # name of the file in schemas/
    model: str
    event_time: str  # name of the field
    events: int  # events of a throughput run
    rate: int  # events/s of the latency run
    seconds: int  # duration of the latency run, including its warm-up
    format: Literal["avro", "json", "kserve"] = "avro"
    max_events: int = 256  # most events of a micro-batch
    max_wait_ms: int = 5
    nested: bool = False  # only some peers read these events

    @property
    def model_folder(self) -> Path:
        """Version 1."""
        return self.folder / "models" / self.model / "1"

    def as_kserve(self) -> Workload:
        """The vector workload as KServe requests."""
        return replace(self, make=kserve_requests, format="kserve")

    def config(self) -> dict[str, Any]:
        """The model's config.yaml."""
        read: dict[str, Any] = yaml.safe_load((self.model_folder / "config.yaml").read_text())
        return read

    def id_of(self, value: bytes) -> str:
        """The event ID of an event or a prediction."""
        if self.format != "avro":
            found: dict[str, str] = msgspec.json.decode(value)
            return found.get("event_id") or found["id"]
        length = value[ID_AT] >> 1  # it fits one byte
        return value[ID_AT + 1 : ID_AT + 1 + length].decode()


NAMES = ("vector", "flights", "wide", "json", "nested", "nested-avro", "text")


def workload(name: str, made: Path) -> Workload:
    """The workload of this name; models are written to `made`. Raises LeftOutError."""
    match name:
        case "flights":
            return Workload(
                name, "real departures, 13 fields, strings encoded in the model", flights_events, example_folder(),
                "1-flight-departure.avsc", "flights-delay", "departed_at", 90_000, 1000, 6,
            )  # fmt: skip
        case "text":
            return Workload(
                name, "32 tokens, the sentence embedding all-MiniLM-L6-v2, 384 floats out", text_events, text_folder(),
                TEXT_SCHEMA, TEXT_MODEL, "event_time", 600, 10, 7, max_events=32,
            )  # fmt: skip
        case "wide":
            write_vector_model(made, SEED, WIDE)
            return Workload(
                name, "2 kB, 512 floats, a three-layer perceptron", lambda count, seed: vector_events(count, seed, WIDE),
                made, WIDE.schema_file, WIDE.name, "event_time", 100_000, 500, 6,
            )  # fmt: skip
        case "json":
            write_vector_model(made, SEED)
            return Workload(
                name, "JSON with 32 floats in and JSON out, a three-layer perceptron", json_events, made,
                VECTOR.schema_file, VECTOR.name, "event_time", 200_000, 1000, 6, format="json",
            )  # fmt: skip
        case "nested" | "nested-avro":
            form: Literal["json", "avro"] = "avro" if name == "nested-avro" else "json"
            write_nested_model(made, SEED, form)
            return Workload(
                name, f"orders in {form}, 60 fields of records in records, 20 of them used; vocabularies, times, nulls",
                nested_avro_events if form == "avro" else nested_json_events, made, f"{ORDER_SCHEMA_ID}-order.avsc", ORDERS,
                "created_at", 100_000, 1000, 6, format=form, nested=True,
            )  # fmt: skip
        case "vector":
            write_vector_model(made, SEED)
            return Workload(
                name, "158 bytes, 32 floats, a three-layer perceptron", vector_events, made, VECTOR.schema_file,
                VECTOR.name, "event_time", 600_000, 1000, 11,
            )  # fmt: skip
    raise ValueError(f"no workload {name!r}")
