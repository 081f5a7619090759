"""The report of a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.consumers.comparison.show import time_text
from millstream.consumers.comparison.verdict import verdict
from millstream.consumers.replay.conclusion import name_of, routing_lines, sentence, whole_row
from millstream.consumers.report.part import Part, Side

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.consumers.replay.run import Compared
    from millstream.pipeline.pipeline import Pipeline

SERVED = "from reading the event to the result, in the workers"
REPLAYED = "of the micro-batch in the model, during the replay"


def replay_part(pipeline: Pipeline, compared: Compared) -> Part:
    """What the page shows of a replay."""
    row = whole_row(pipeline, compared)
    said = sentence(pipeline, compared, verdict([row], pipeline.comparison.task), row)
    found = compared.evaluated
    return Part(
        title=f"{compared.about.model} {name_of(compared)}, replayed",
        verdict=said[:1].upper() + said[1:],
        basis=list(_basis(pipeline, compared)),
        task=pipeline.comparison.task,
        sides=(Side("predicted", SERVED), Side("replayed", REPLAYED)),
        whole=found.whole,
        windows=found.windows,
        width=found.width,
        segments={compared.segments[place]: summary for place, summary in found.segments.items()},
        segment_field=compared.segment_field,
    )


def _basis(pipeline: Pipeline, compared: Compared) -> Iterator[tuple[str, str]]:
    about, found, progress = compared.about, compared.evaluated, compared.progress
    yield "events", f"{', '.join(pipeline.input.topics)}, {time_text(about.start)} to {time_text(about.end)} (UTC)"
    yield "replayed", f"{progress.answered:,} events answered by {about.model} {name_of(compared)}"
    if progress.rejected:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(progress.rejected.items()))
        yield "without an answer", f"{progress.rejected.total():,}: {reasons}"
    by = ", ".join(compared.predicted_by) or "none"
    yield "predicted", f"{found.answered - found.missing:,} of these events, in {pipeline.output.topic}, by {by}"
    if pipeline.labels is not None:
        yield "labels", f"{found.whole.labelled:,} of these events, in {pipeline.labels.topic}"
    if compared.routing is not None:
        yield "routing", " ".join(f"{line}." for line in routing_lines(compared.routing))
    if about.compared is not None:
        yield "compared output", about.compared
