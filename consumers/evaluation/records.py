"""The records of the topic `rollout.evaluations`: schema rollout-evaluation-v1."""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import fastavro

from millstream.consumers.evaluation.figures import (
    CandidateVerdicts,
    Figure,
    SampleRatio,
    StepFigures,
    VariantFigures,
    WindowFigures,
)
from millstream.consumers.rollout.verdicts import Verdict
from millstream.schemas.avro.types import parsed
from millstream.schemas.datums import DatumsOf
from millstream.schemas.records import ROLLOUT_EVALUATION
from millstream.schemas.store import Schema
from millstream.schemas.wire import frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.schemas.store import SchemaStore

_SCHEMA: Final = parsed(Schema(ROLLOUT_EVALUATION.reserved_id, ROLLOUT_EVALUATION.name, ROLLOUT_EVALUATION.definition))
TOTAL: Final = "total"
"""In place of a window in a record's key."""


def key_of(rollout: str, epoch: int, place: int | None) -> bytes:
    """The key of a window's record; None for the record of the whole step.

    Args:
        rollout: its ID.
        epoch: of the step.
        place: of the window among those that are shown. A step has only so many of them, so newer windows replace older ones,
            and compaction keeps the topic small.
    """
    return f"{rollout}/{epoch}/{TOTAL if place is None else place}".encode()


def records_of(figures: StepFigures, schema_id: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values: one record since the step began, and one for each window."""
    shared = {
        name: getattr(figures, name)
        for name in ("pipeline", "rollout", "revision", "epoch", "since", "unmatured_share", "behind")
    } | {
        "computed_at": figures.now,
        "notes": list(figures.notes),
        "variants": [asdict(own) for own in figures.variants],
    }
    for place, window in ((None, figures.total), *enumerate(figures.windows)):
        own = {
            "window_start": window.start,
            "window_end": window.end,
            "figures": [asdict(figure) for figure in window.figures],
        }
        if window.start is None:
            own |= {name: [asdict(each) for each in getattr(figures, name)] for name in ("candidates", "ratios")}
        out = io.BytesIO()
        out.write(frame(schema_id))
        fastavro.schemaless_writer(out, _SCHEMA, shared | own)
        yield key_of(figures.rollout, figures.epoch, place), out.getvalue()


def figures_datums(store: SchemaStore) -> DatumsOf:
    """Reads the records, with the schemas that they were written with."""
    return DatumsOf(store, _SCHEMA, "no evaluation of a rollout: ")


def joined(total: dict[str, Any], windows: list[dict[str, Any]]) -> StepFigures:
    """The figures of a step from its records.

    Args:
        total: the record since the step began.
        windows: those of its windows, in any order.
    """
    return StepFigures(
        pipeline=total["pipeline"],
        rollout=total["rollout"],
        revision=total["revision"],
        epoch=total["epoch"],
        since=total["since"],
        now=total["computed_at"],
        unmatured_share=total["unmatured_share"],
        behind=total["behind"],
        notes=tuple(total["notes"]),
        variants=tuple(VariantFigures(**own) for own in total["variants"]),
        candidates=tuple(
            CandidateVerdicts(
                own["candidate"],
                own["labels"],
                tuple(own["invalid"]),
                tuple(Verdict(**each) for each in own["verdicts"]),
            )
            for own in total["candidates"]
        ),
        ratios=tuple(
            SampleRatio(own["candidate"], tuple(own["expected"]), tuple(own["found"])) for own in total["ratios"]
        ),
        total=_window(total),
        windows=tuple(sorted(map(_window, windows), key=lambda own: own.start or 0)),
    )


def _window(datum: dict[str, Any]) -> WindowFigures:
    return WindowFigures(datum["window_start"], datum["window_end"], tuple(Figure(**own) for own in datum["figures"]))
