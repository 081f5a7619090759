"""Encodes results as records of the evaluation topic: schema evaluation-v2, keyed by window and pair."""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import fastavro

from millstream.inference.estimates import estimate
from millstream.schemas.avro.types import parsed
from millstream.schemas.records import EVALUATION
from millstream.schemas.store import Schema
from millstream.schemas.wire import frame

if TYPE_CHECKING:
    from millstream.consumers.comparison.partials import Partial
    from millstream.inference.evaluation import Task
    from millstream.schemas.comparisons import Pair

_SCHEMA: Final = parsed(Schema(EVALUATION.reserved_id, EVALUATION.name, EVALUATION.definition))


def result_key(start: int, pair: Pair) -> bytes:
    """The record's key: `<window's start, ms>/<primary>:<version>/<shadow>:<version>/<shadow's name>`."""
    sides = "/".join(f"{side.model}:{side.version}" for side in pair)
    return f"{start}/{sides}/{pair.shadow.name}".encode()


def result(start: int, end: int, pair: Pair, whole: Partial, *, pipeline: str, task: Task) -> dict[str, Any]:
    """The record without `updated_at`. Times are ms since the epoch."""
    figures = asdict(estimate(whole.summary, task=task))
    for side, variant in zip(("primary", "shadow"), pair, strict=True):
        figures[side] |= {"model": variant.model, "version": variant.version, "variant": variant.name}
    return {
        "pipeline": pipeline,
        "window_start": start,
        "window_end": end,
        "final": whole.final,
        "events": whole.summary.events,
        "errors": whole.summary.errors,
        "labelled": whole.summary.labelled,
        "duplicates": whole.duplicates,
        "thinned": whole.thinned,
        "early_labels": whole.early_labels,
        "late_labels": whole.late_labels,
        "repeated_labels": whole.repeated_labels,
        **figures,
    }


def encode_result(record: dict[str, Any], schema_id: int) -> bytes:
    """The record in the wire format."""
    out = io.BytesIO()
    out.write(frame(schema_id))
    fastavro.schemaless_writer(out, _SCHEMA, record)
    return out.getvalue()
