"""Predictions, comparisons and dead letters: what is written is read again as it was, and damaged ones are refused."""

from __future__ import annotations

import json
from io import BytesIO
from random import Random
from typing import Any

import fastavro
import numpy as np

from millstream.schemas.avro.types import parsed
from millstream.schemas.comparisons import ComparisonDecoder, ComparisonEncoder, PrimaryRows, Variant
from millstream.schemas.dead_letters import DeadLetter, DeadLetterError, decode_dead_letter
from millstream.schemas.predictions import JsonPredictionEncoder, PredictionEncoder
from millstream.schemas.records import COMPARISON, PREDICTION
from millstream.schemas.row_models import RowModels
from millstream.schemas.store import Schema
from millstream.schemas.wire import HEAD_BYTES
from tests.fuzz.case import Case, Counts, Wrong
from tests.fuzz.damage import EDGES, damaged
from tests.schemas.avro.avro_cases import Store
from tests.schemas.letters import encoded, headers_of

RECORDS = 30
_PREDICTION = parsed(Schema(1, PREDICTION.name, PREDICTION.definition))  # times as integers
_TEXTS = ["", "a", "\0", "ü", "😀" * 20, "%b%s%%", '"\\', "\u2028", "\ufeff", "e" * 200]
_BROKEN = ["\ud800", "x\udcff", "\udc00\ud800"]
_FLOATS = [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 1e-45, 3.4e38]
_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
_ORIGIN: dict[str, Any] = {"pipeline": "p%s", "variant": "ü"}
_MODELS = RowModels([("m%b", 2**31 - 1), ("\u2028", 0)])
_LONG = ["float32", "float64", "int64", "int8", "bool", "object"]
_STORE = Store(Schema(COMPARISON.reserved_id, COMPARISON.name, COMPARISON.definition))


class Encoders:
    """Hostile ids, texts, headers and numbers."""

    name = "encoders"
    share = 0.08
    in_c = True

    def make(self, rng: Random) -> Case:
        """See Target."""
        outputs = [
            {"name": name, "dtype": rng.choice(_LONG), "shape": rng.choice([[], [1], [2], [2, 2], [0]])}
            for name in rng.sample(["p", "%b", "ü", "", "n" * 100], rng.randrange(4))
        ]
        return Case({"outputs": outputs, "seed": rng.randrange(2**32)}, [_row(outputs, rng) for _ in range(RECORDS)])

    def check(self, case: Case) -> Counts:
        """See Target."""
        _check_predictions(case)
        refused = _check_comparisons(case, Random(case.about["seed"]))
        refused += _check_letters(case, Random(case.about["seed"]))
        return Counts(3 * len(case.values), refused)


def _row(outputs: list[dict[str, Any]], rng: Random) -> dict[str, Any]:
    return {
        "id": "i" * 2**20 if rng.random() < 0.0005 else rng.choice(_TEXTS),
        "times": [rng.choice(EDGES) for _ in range(3)],
        "outputs": [
            [_number(out["dtype"], rng) for _ in range(int(np.prod(out["shape"], dtype=int)))] for out in outputs
        ],
        "key": rng.choice([None, b"", b"\0\xff", rng.randbytes(20)]),
        "error": rng.choice([None, *_TEXTS, *_BROKEN, "ü" * 3000]),
        "headers": [(rng.choice(_TEXTS + _BROKEN), rng.choice([None, b"", b"\xff"])) for _ in range(rng.randrange(3))],
    }


def _number(dtype: str, rng: Random) -> Any:
    match dtype:
        case "object":
            return rng.choice(_TEXTS)
        case "bool":
            return rng.random() < 0.5
        case "int8":
            return rng.randrange(-128, 128)
        case "int64":
            return rng.choice(EDGES)
    return float(np.array(rng.choice(_FLOATS), dtype))


def _arrays(case: Case, rows: list[dict[str, Any]]) -> dict[str, Any]:
    arrays = {}
    for place, out in enumerate(case.about["outputs"]):
        array = np.empty((len(rows), *out["shape"]), out["dtype"])
        array.reshape(len(rows), -1)[:] = [row["outputs"][place] for row in rows] if array.size else 0
        arrays[out["name"]] = array
    return arrays


def _right(case: Case, row: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a row as a reader has them."""
    return {
        out["name"]: own[0] if out["shape"] in ([], [1]) else own
        for out, own in zip(case.about["outputs"], row["outputs"], strict=True)
    }


def _check_predictions(case: Case) -> None:
    rows = case.values
    event, ingest, prediction = np.array([row["times"] for row in rows], np.int64).T.copy()
    ids, arrays = [row["id"] for row in rows], _arrays(case, rows)
    models = _MODELS._replace(answered_by=np.arange(len(rows)) % 2)
    avro = PredictionEncoder(1, **_ORIGIN).encode(ids, event, ingest, prediction, arrays, models=models)
    texts = JsonPredictionEncoder(**_ORIGIN).encode(ids, event, ingest, prediction, arrays, models=models)
    for place, (row, value, text) in enumerate(zip(rows, avro, texts, strict=True)):
        model, version = _MODELS.models[place % 2]
        body = BytesIO(value[HEAD_BYTES:])
        found: Any = fastavro.schemaless_reader(body, _PREDICTION, None)
        right = {"event_id": row["id"], **_ORIGIN, "model": model, "version": version, "outputs": _right(case, row)}
        _same("a prediction", {name: found[name] for name in right}, right)
        if body.read():
            raise Wrong("a prediction has bytes behind its end")
        said = json.loads(text)
        _same("a JSON prediction", {name: said[name] for name in right}, _as_json(right))
        _same("its times", [said[name] for name in ("event_time", "ingest_time", "prediction_time")], row["times"])


def _check_comparisons(case: Case, rng: Random) -> int:
    rows = case.values
    failed = {place: row["error"] for place, row in enumerate(rows) if row["error"] is not None}
    good = [row for row in rows if row["error"] is None]
    values = ComparisonEncoder(COMPARISON.reserved_id, "p", shadow=Variant("s", 2)).encode(
        [row["id"] for row in rows],
        [row["key"] for row in rows],
        np.array([row["times"][0] for row in rows], np.int64),
        PrimaryRows(RowModels([("m", 1)]), _arrays(case, rows), 1.5),
        _arrays(case, good) if good else None,
        0.5,
        failed,
    )
    decoder = ComparisonDecoder(_STORE)
    found, bad = decoder.decode(values)
    if bad:
        raise Wrong(f"a comparison can't be read: {bad}")
    _same("ids", found.ids, [row["id"] for row in rows])
    _same("primary outputs", found.primary, [_right(case, row) for row in rows])
    _same("shadow outputs", found.shadow, [None if row["error"] is not None else _right(case, row) for row in rows])
    broken: list[bytes | None] = [damaged(value, values, rng) for value in values]
    found, bad = decoder.decode([*broken, None])
    if sorted([*found.rows.tolist(), *bad]) != list(range(len(values) + 1)):
        raise Wrong(f"of {len(values) + 1} comparisons rows {found.rows.tolist()} are good and {list(bad)} bad")
    return len(bad)


def _check_letters(case: Case, rng: Random) -> int:
    refused = 0
    values = []
    for row in case.values:
        letter = DeadLetter(
            *(
                "undecodable",
                row["error"] or "",
                "p",
                "in",
                3,
                max(row["times"][0], -1),
                row["times"][1],
                row["times"][2],
            ),
            *(row["key"], row["id"].encode()),
            headers=tuple((name, value) for name, value in row["headers"]),
        )
        values.append(encoded(letter))
        right = letter._replace(
            error=_shown(letter.error), headers=tuple((_shown(name), value) for name, value in letter.headers)
        )
        _same("a dead letter", decode_dead_letter(values[-1]), right)
        for name, header in headers_of(letter):
            if len(header) > 1024 or header.decode() is None:
                raise Wrong(f"the header {name} has {len(header)} bytes")
    for value in values:
        try:
            decode_dead_letter(damaged(value, values, rng))
        except DeadLetterError:
            refused += 1
    return refused


def _shown(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _as_json(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _as_json(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_as_json(item) for item in node]
    return _NOT_FINITE.get(str(node), node) if isinstance(node, float) else node


def _same(what: str, found: Any, right: Any) -> None:
    if repr(found) != repr(right):  # tells -0.0 from 0.0, and takes NaN for equal
        raise Wrong(f"{what} is {found!r:.300}, right is {right!r:.300}")
