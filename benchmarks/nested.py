"""Nested orders: 60 fields in records of records, of which a fraud model uses 20, with two vocabularies, two times and nulls."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta
from io import BytesIO
from random import Random
from typing import TYPE_CHECKING, Any

import fastavro
import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.load import FIRST_EVENT_TIME, TIME_TYPE, Load, keys_of
from benchmarks.peers.nested import COUNTRIES, METHODS, NUMBERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA_ID = 4
NAME = "orders"
HIDDEN = 64
EMBEDDED = 4  # numbers for each entry of a vocabulary
Make = dict[str, "Callable[[Random], Any] | Make"]


def _number(top: float, digits: int = 2) -> Callable[[Random], float]:
    return lambda random: round(random.random() * top, digits)


def _whole(low: int, high: int) -> Callable[[Random], int]:
    return lambda random: random.randrange(low, high)


def _text(*texts: str) -> Callable[[Random], str]:
    return lambda random: random.choice(texts)


def _hex(length: int) -> Callable[[Random], str]:
    return lambda random: f"{random.getrandbits(4 * length):0{length}x}"


def _or_null(make: Callable[[Random], Any]) -> Callable[[Random], Any]:
    return lambda random: None if random.random() < 0.1 else make(random)


NULLABLE = {"age", "returns_90d", "score", "discount", "coupon", "distance_km"}
_ITEM: Make = {
    "sku": _hex(8),
    "price": _number(200),
    "quantity": _whole(1, 5),
    "category": _text("books", "toys", "garden"),
}
_EVENT: Make = {
    "type": _text("order.created"),
    "tenant": _text("eu-1", "eu-2", "us-1"),
    "customer": {
        "id": _hex(12),
        "age": _or_null(_whole(18, 90)),
        "country": _text(*COUNTRIES[1:], "ZZ"),  # "ZZ" is in no vocabulary
        "segment": _text("new", "gold", "silver"),
        "registered_at": lambda random: FIRST_EVENT_TIME - random.randrange(10**11),
        "email_domain": _text("example.com", "example.org"),
        "stats": {
            "orders_30d": _whole(0, 30),
            "spend_30d": _number(3000),
            "returns_90d": _or_null(_whole(0, 9)),
            "avg_basket": _number(300),
            "last_login_days": _whole(0, 400),
            "tickets": _whole(0, 4),
        },
        "address": {
            "city": _text("Lyon", "Porto", "Graz"),
            "zip": _hex(5),
            "lat": _number(90, 5),
            "lon": _number(90, 5),
        },
    },
    "payment": {
        "method": _text(*METHODS[1:], "barter"),
        "amount": _number(900),
        "currency": _text("EUR", "USD"),
        "card": {
            "bin": _hex(6),
            "brand": _text("visa", "amex"),
            "exp_month": _whole(1, 13),
            "exp_year": _whole(2025, 2032),
            "country": _text(*COUNTRIES[1:]),
        },
        "risk": {"score": _or_null(_number(1, 4)), "attempts": _whole(1, 5), "velocity": _number(9)},
    },
    "basket": {
        "count": _whole(1, 9),
        "total": _number(900),
        "discount": _or_null(_number(50)),
        "currency": _text("EUR", "USD"),
        "coupon": _or_null(_hex(6)),
        "items": _ITEM,  # one or two of them
    },
    "shipping": {
        "method": _text("parcel", "locker"),
        "distance_km": _or_null(_number(1500, 1)),
        "days": _whole(1, 9),
        "express": lambda random: random.random() < 0.2,
        "carrier": _text("north", "south"),
        "address": {"city": _text("Lyon", "Porto", "Graz"), "zip": _hex(5), "country": _text(*COUNTRIES[1:])},
    },
    "device": {
        "os": _text("android", "ios", "linux"),
        "os_version": _text("14.1", "17.5"),
        "browser": _text("firefox", "webkit"),
        "ip": lambda random: f"10.{random.randrange(256)}.{random.randrange(256)}.7",
        "screen": {"width": _whole(320, 4000), "height": _whole(480, 2400), "density": _whole(1, 4)},
    },
    "meta": {
        "source": _text("web", "app"),
        "version": _text("2.4.1"),
        "trace_id": _hex(32),
        "partition_key": _hex(8),
        "received_at": _whole(FIRST_EVENT_TIME, FIRST_EVENT_TIME + 10**6),
    },
}


def _made(parts: Make, random: Random) -> dict[str, Any]:
    event: dict[str, Any] = {}
    for name, part in parts.items():
        if name == "items":
            event[name] = [_made(_ITEM, random) for _ in range(random.randrange(1, 3))]
        else:
            event[name] = _made(part, random) if isinstance(part, dict) else part(random)
    return event


def orders(count: int, seed: int) -> list[dict[str, Any]]:
    """Seeded events, one per millisecond."""
    random = Random(seed)
    first = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=FIRST_EVENT_TIME)
    return [
        {"id": f"event-{number:010d}", "created_at": first + timedelta(milliseconds=number), **_made(_EVENT, random)}
        for number in range(count)
    ]


def nested_json_events(count: int, seed: int) -> Load:
    """The orders as JSON, about 1.2 kB each. Half of the null fields are left out."""
    encode, random = msgspec.json.Encoder().encode, Random(seed)
    values = []
    for order in orders(count, seed):
        order["created_at"] = order["created_at"].isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values.append(encode(_without_nulls(order) if random.random() < 0.5 else order))
    return Load(keys_of(count), values)


def _without_nulls(part: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _without_nulls(value) if isinstance(value, dict) else value
        for name, value in part.items()
        if value is not None
    }


def nested_avro_events(count: int, seed: int) -> Load:
    """The same orders as Avro; their time is a timestamp in milliseconds."""
    schema = fastavro.parse_schema(_schema())
    head = struct.pack(">bI", 0, SCHEMA_ID)
    values = []
    for order in orders(count, seed):
        body = BytesIO()
        body.write(head)
        fastavro.schemaless_writer(body, schema, order)
        values.append(body.getvalue())
    return Load(keys_of(count), values)


def _schema() -> dict[str, Any]:
    fields: Make = {"id": _text("")} | {"created_at": _text("")} | _EVENT
    schema = _record("Order", fields)
    schema["namespace"] = "millstream.benchmarks"
    schema["fields"][1]["type"] = TIME_TYPE
    return schema


def _record(name: str, parts: Make) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(name, field, part) for field, part in parts.items()]}


def _field(parent: str, name: str, part: Any) -> dict[str, Any]:
    if isinstance(part, dict):
        record = _record(f"{parent}_{name}", part)
        return {"name": name, "type": {"type": "array", "items": record} if name == "items" else record}
    value = next(value for seed in range(100) if (value := part(Random(seed))) is not None)
    of_value = {bool: "boolean", int: "long", float: "double", str: "string"}[type(value)]
    return (
        {"name": name, "type": ["null", of_value], "default": None}
        if name in NULLABLE
        else {"name": name, "type": of_value}
    )


def write_nested_model(folder: Path, seed: int, form: str) -> None:
    """Write version 1 of the model; for Avro the schema, too."""
    model = folder / "models" / NAME / "1"
    model.mkdir(parents=True, exist_ok=True)
    onnx.save(_model(seed), str(model / "model.onnx"))
    (model / "config.yaml").write_text(json.dumps(_config(form)))  # JSON is YAML
    (folder / "schemas").mkdir(exist_ok=True)
    (folder / "schemas" / f"{SCHEMA_ID}-order.avsc").write_text(json.dumps(_schema(), indent=2))


def _config(form: str) -> dict[str, Any]:
    """The mapping that the hand-written peers do in code."""
    of_json = form == "json"
    numbers: list[Any] = [path if missing is None else {"field": path, "missing": missing} for path, missing in NUMBERS]
    numbers.append({"field": "created_at", **({"time": "iso8601"} if of_json else {}), "as": "hour"})
    numbers.append({"field": "customer.registered_at", "time": "milliseconds", "as": "age"})
    categories = [
        {"field": "customer.country", "vocabulary": list(COUNTRIES), "unknown": 0},
        {"field": "payment.method", "vocabulary": list(METHODS), "unknown": 0},
    ]
    return {
        "description": "Fraud of orders, with random weights, for benchmarks.",
        "inputs": [
            {"tensor": "numbers", "fields": numbers, "dtype": "float32"},
            {"tensor": "categories", "fields": categories, "dtype": "int64"},
        ],
        "outputs": [{"tensor": "score"}],
    }


def _model(seed: int) -> onnx.ModelProto:
    """numbers float32 [batch, 17], categories int64 [batch, 2] -> score float32 [batch, 1]."""
    rng = np.random.default_rng(seed)
    width, inner = len(NUMBERS) + 2, len(NUMBERS) + 2 + 2 * EMBEDDED
    scale = np.array([*[1e-2] * len(NUMBERS), 0.1, 1e-9], np.float32)  # an age is up to 1e8 seconds

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32), name)

    nodes = [
        helper.make_node("Mul", ["numbers", "scale"], ["scaled"]),
        helper.make_node("Split", ["categories", "ones"], ["country", "method"], axis=1),
        helper.make_node("Squeeze", ["country", "axis"], ["country_at"]),
        helper.make_node("Squeeze", ["method", "axis"], ["method_at"]),
        helper.make_node("Gather", ["countries", "country_at"], ["country_is"]),
        helper.make_node("Gather", ["methods", "method_at"], ["method_is"]),
        helper.make_node("Concat", ["scaled", "country_is", "method_is"], ["x"], axis=1),
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h1"]),
        helper.make_node("Relu", ["h1"], ["a1"]),
        helper.make_node("Gemm", ["a1", "w2", "b2"], ["h2"]),
        helper.make_node("Sigmoid", ["h2"], ["score"]),
    ]
    constants = [
        numpy_helper.from_array(scale, "scale"),
        numpy_helper.from_array(np.array([1, 1], np.int64), "ones"),
        numpy_helper.from_array(np.array([1], np.int64), "axis"),
        weights("countries", len(COUNTRIES), EMBEDDED),
        weights("methods", len(METHODS), EMBEDDED),
        weights("w1", inner, HIDDEN),
        weights("b1", HIDDEN),
        weights("w2", HIDDEN, 1),
        weights("b2", 1),
    ]
    graph = helper.make_graph(
        nodes,
        NAME,
        [
            helper.make_tensor_value_info("numbers", TensorProto.FLOAT, ["batch", width]),
            helper.make_tensor_value_info("categories", TensorProto.INT64, ["batch", 2]),
        ],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 1])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model
