"""Blocks: event IDs, times, deadlines, costs and tensors of each event, whatever its fields and its record hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from millstream.consumers.decode.decoder import MAX_COST, BlockDecoder, EventFields
from millstream.consumers.events import NEVER, DecodedBatch, FetchedBatch
from millstream.consumers.records import Records
from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.store import Schema
from millstream.schemas.wire import frame
from tests.consumers.in_memory import EPOCHS, MemoryRecord
from tests.fuzz.avro_bodies import Body
from tests.fuzz.case import Case, Counts, Wrong
from tests.fuzz.damage import EDGES, SPECIAL, damaged
from tests.fuzz.signatures import inputs_with_fields, signature_of
from tests.schemas.avro.avro_cases import WRITER_ID, Store, record
from tests.schemas.tables import dicts_of

RECORDS = 40
_LARGEST = 2**63 - 1
_PER_MILLISECOND = {"milliseconds": 1, "microseconds": 1000, "nanoseconds": 1_000_000}
_DEADLINES = [
    b"0",
    b"1700000000000",
    b"9" * 19,
    b"9" * 20,
    b"9" * 5000,
    b"0" * 5000 + b"7",
    b"-1",
    b"1e3",
    "٣".encode(),
    b" 1",
]
_IDS = ["string", "long", "int", "double", "boolean", ["null", "string"], ["null", "long"]]
_COSTS = ["long", "double", "float", "string", ["null", "double"], {"type": "array", "items": "int"}]


class Blocks:
    """Avro events for generated signatures, with headers."""

    name = "blocks"
    share = 0.1
    in_c = False

    def make(self, rng: Random) -> Case:
        """See Target."""
        inputs, fields = inputs_with_fields(rng)
        own: dict[str, Any] = {
            "id": rng.choice(_IDS),
            "at": rng.choice(["long", ["null", "long"]]),
            "cost": rng.choice(_COSTS),
        }
        there = {name: rng.random() < 0.7 for name in own}
        schema = record(*[(name, own[name]) for name in own if there[name]], *fields)
        settings = {
            "event_id": "id" if there["id"] else None,
            "event_time": "at" if there["at"] else None,
            "time_format": rng.choice(list(_PER_MILLISECOND)),
            "max_age": rng.choice([None, 1, 60_000, 2**62, _LARGEST]),
            "deadline_header": rng.choice([None, "deadline"]),
            "cost": "cost" if there["cost"] else None,
        }
        about = {"schema": schema, "inputs": inputs, "allow_nan": rng.random() < 0.6, "settings": settings}
        return Case(about, [_record(schema, rng) for _ in range(RECORDS)])

    def check(self, case: Case) -> Counts:
        """See Target."""
        about = case.about
        schema, fields = Schema(WRITER_ID, "event", about["schema"]), EventFields(**about["settings"])
        signature = signature_of(about["inputs"])
        wanted = [*signature.fields, *(name for name in (fields.event_id, fields.event_time, fields.cost) if name)]
        events = AvroDecoder(Store(schema), schema, wanted)
        decoder = BlockDecoder(events, fields, signature, allow_nan=about["allow_nan"])
        block = decoder.decode(_polled(case.values))
        varying = {entry.tensor for entry in signature.inputs if entry.max_length}
        fates = _fates(block, len(case.values), varying)
        for row, value in enumerate(case.values):
            if (alone := _fates(decoder.decode(_polled([value])), 1, varying)[0]) != fates[row]:
                raise Wrong(f"record {row} is {fates[row]} among its neighbours, and {alone} alone")
        _check_events(block, case.values, events, fields)
        if not about["allow_nan"] and not all(map(_is_finite, block.tensors.values())):
            raise Wrong("a tensor holds NaN or an infinity, which the model does not take")
        return Counts(len(block.good), len(case.values) - len(block.good))


def _record(schema: Any, rng: Random) -> dict[str, Any]:
    body = Body(rng, frame(WRITER_ID))
    body.add(schema)
    value: bytes | None = bytes(body.out)
    if rng.random() < 0.1:
        value = rng.choice([None, b"", damaged(bytes(body.out), [], rng, body.spans)])
    headers: list[tuple[str, bytes | None]] = [
        (rng.choice(["deadline", "deadline", "Deadline", "\ufffd", ""]), rng.choice([None, *_DEADLINES, *SPECIAL]))
        for _ in range(rng.choice([0, 1, 1, 2]))
    ]
    stamp = rng.choice([-1, 0, 1_700_000_000_000, rng.choice(EDGES)])
    return {"value": value, "headers": headers, "timestamp": stamp}


def _polled(values: Sequence[dict[str, Any]]) -> FetchedBatch:
    records = [
        MemoryRecord(7, value["value"], stamp=(1, value["timestamp"]), heads=list(map(tuple, value["headers"])))
        for value in values
    ]
    return FetchedBatch(Records.of(records), EPOCHS, 0.0, 0)


def _fates(block: DecodedBatch, count: int, varying: set[str]) -> list[tuple[Any, ...]]:
    """Of each record: what the event is, why there is none, or that it is a tombstone."""
    refused = block.rejected
    good = dict(zip(block.good.tolist(), range(len(block.good)), strict=True))
    there = [row for row in range(count) if block.values[row] is not None]
    if sorted([*refused, *good]) != there:
        raise Wrong(f"of records {there}, {list(good)} are events and {list(refused)} are refused")
    ids, costs = list(block.ids), _costs(block)
    fates: list[tuple[Any, ...]] = []
    for row in range(count):
        if row in good:
            event = good[row]
            times = int(block.event_times[event]), None if block.deadlines is None else int(block.deadlines[event])
            fates.append(
                ("event", ids[event], *times, costs[event] if costs else None, _tensors(block, event, varying))
            )
        else:
            fates.append(("refused", refused[row].reason) if row in refused else ("tombstone",))
    return fates


def _tensors(block: DecodedBatch, event: int, varying: set[str]) -> str:
    """An event's own numbers, without what is behind them."""
    lengths: Any = block.tensors.get(" lengths")  # beside inputs of varying length that are padded
    parts = []
    for name, tensor in block.tensors.items():
        row: Any = tensor[event : event + 1]
        own = row.tolist()[0] if isinstance(row, np.ndarray) else row.items.tolist()
        parts.append(f"{name} {own[: int(lengths[event])] if lengths is not None and name in varying else own}")
    return "; ".join(parts)


def _is_finite(tensor: Any) -> bool:
    items = getattr(tensor, "values", tensor)  # of inputs of varying length
    return items.dtype.kind != "f" or bool(np.isfinite(items).all())


def _costs(block: DecodedBatch) -> list[int]:
    return [] if block.costs is None else np.diff(block.costs, prepend=0).tolist()


def _check_events(
    block: DecodedBatch, values: Sequence[dict[str, Any]], decoder: AvroDecoder, fields: EventFields
) -> None:
    """Times, deadlines and costs are what Python's integers, which have no end, say they are."""
    costs = _costs(block)
    for event, row in enumerate(block.good.tolist()):
        value, found = values[row], dicts_of(decoder.decode([values[row]["value"]]).table)[0]
        time = value["timestamp"]
        if fields.event_time is not None and found[fields.event_time] is not None:
            time = found[fields.event_time] // _PER_MILLISECOND[fields.time_format]
        if time != block.event_times[event]:
            raise Wrong(f"the event's time is {block.event_times[event]}, right is {time}")
        if fields.cost is not None and costs[event] != (right := _cost(found[fields.cost])):
            raise Wrong(f"the event's cost is {costs[event]}, right is {right}")
        right = _deadline(time, value["headers"], fields)
        if (NEVER if block.deadlines is None else block.deadlines[event]) != right:
            raise Wrong(
                f"the event's deadline is {None if block.deadlines is None else block.deadlines[event]}, right is {right}"
            )


def _cost(value: Any) -> int:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return 0
    number = len(value) if isinstance(value, str | list) else value
    return math.ceil(min(max(number, 0), MAX_COST))


def _deadline(time: int, headers: Sequence[tuple[str, bytes | None]], fields: EventFields) -> int:
    by_age = _LARGEST if fields.max_age is None else min(time + fields.max_age, _LARGEST)
    for name, value in headers:
        if name == fields.deadline_header and value is not None and value.isdigit() and len(value) <= 19:
            return min(by_age, int(value))
    return by_age
