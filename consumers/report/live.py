"""The report of what is in the topics: predictions with their labels, and the comparisons of shadows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.consumers.comparison.conclusion import conclusion
from millstream.consumers.comparison.show import judged, read_results, time_text
from millstream.consumers.replay.answers import Answering
from millstream.consumers.replay.buckets import Buckets
from millstream.consumers.replay.conclusion import no_label
from millstream.consumers.replay.evaluated import LABELS, OTHER, PRIMARY, Windows, evaluate
from millstream.consumers.replay.filling import Filling
from millstream.consumers.replay.predictions import LabelRows, PredictedRows, PredictionDecoder
from millstream.consumers.replay.row_sink import hashes
from millstream.consumers.report.of_replay import SERVED
from millstream.consumers.report.part import Part, Side, figure
from millstream.consumers.report.plots import FIGURES, NAMES
from millstream.consumers.schema_store import open_store
from millstream.consumers.shadow.compared_classes import compared_classes_of
from millstream.consumers.shadow.compared_output import check_score
from millstream.consumers.source.range_reader import RangeReader
from millstream.schemas.comparisons import ComparisonDecoder, Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.consumers.comparison.show import Judged
    from millstream.consumers.records import Records
    from millstream.consumers.replay.answers import Rows
    from millstream.consumers.replay.evaluated import Evaluated
    from millstream.consumers.resilience.limited_retry import LimitedRetry
    from millstream.pipeline.comparison_sections import Shadow
    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.comparisons import Comparisons

GROUP: Final = "millstream-report"
"""A name that the client wants. Nobody joins this group, and nothing is committed for it."""
_MODEL: Final = "of the event's micro-batch in the model"


@dataclass(frozen=True, slots=True)
class Span:
    """The records that a report is about, by their timestamps: ms since the epoch."""

    start: int
    end: int


class LiveReport:
    """Reads topics for a report."""

    def __init__(
        self,
        pipeline: Pipeline,
        span: Span,
        retry: LimitedRetry,
        say: Callable[[str, int], object],
        segment: str | None,
    ) -> None:
        """Args:
        pipeline: whose topics are read.
        span: which records.
        retry: waits while the schema registry is away.
        say: gets what is read, and how many records so far.
        segment: the field of the event, which predictions include, by which segments are told apart.
        """
        self._pipeline = pipeline
        self._span = span
        self._retry = retry
        self._say = say
        self._segment = segment
        self._store = open_store(pipeline)
        self._classes = compared_classes_of(pipeline)

    def parts(self) -> list[Part]:
        """The predictions, and each shadow.

        Raises:
            PlanError: the labels can't be compared with the score of a class that nobody named.
            BrokerUnreachableError, TopicError: a topic can't be read.
        """
        pipeline = self._pipeline
        found: list[Part] = []
        if pipeline.shadows:
            rows = read_results(pipeline, self._store)
            for shadow, each in zip(pipeline.shadows, judged(pipeline, rows), strict=True):
                found.append(self._shadow(shadow, each))
        served = self._predictions()
        found += [] if served is None else [served]
        return found

    def lack(self, parts: Sequence[Part]) -> str:
        """Why these parts show nothing: a sentence; empty if they show something."""
        if any(part.whole.events or part.rows for part in parts):
            return ""
        return (
            f"{self._pipeline.output.topic} has no prediction of {self._pipeline.name} from "
            f"{time_text(self._span.start)} to {time_text(self._span.end)} (UTC). Give another time with --from and --to."
        )

    def _predictions(self) -> Part | None:
        """The predictions alone; None: there are none."""
        rows = _Predicted(PredictionDecoder(self._store, self._pipeline.name), self, self._segment)
        evaluated = self._evaluated(
            (self._pipeline.output.topic,), "predictions", {PRIMARY: rows.rows, OTHER: rows.again}, rows.times
        )
        if rows.predicted is None or not evaluated.answered:
            return None
        whole, named = evaluated.whole, tuple(rows.predicted.models)
        name = NAMES[FIGURES[self._pipeline.comparison.task]]
        found = figure(whole.primary, self._pipeline.comparison.task)
        ends = f" [{found.low:.4f}, {found.high:.4f}]" if math.isfinite(found.low) else ""
        quality = (
            f"{name} {found.value:.4f}{ends}, {whole.labelled:,} labels"
            if math.isfinite(found.value)
            else _why_no_figure(self._pipeline, name, evaluated)
        )
        together = " (all figures are of these versions together)" if len(named) > 1 else ""
        return Part(
            title="Predictions",
            verdict=f"{evaluated.answered:,} events were predicted by {', '.join(named)}{together}: {quality}",
            basis=list(self._basis(self._pipeline.output.topic, evaluated, rows.predicted.answering)),
            task=self._pipeline.comparison.task,
            sides=(Side(named[0] if len(named) == 1 else "predicted", SERVED),),
            whole=whole,
            windows=evaluated.windows,
            width=evaluated.width,
            segments=dict(
                zip(rows.predicted.segments, (evaluated.segments[at] for at in sorted(evaluated.segments)), strict=True)
            )
            if self._segment is not None
            else {},
            segment_field=self._segment,
        )

    def _shadow(self, shadow: Shadow, found: Judged) -> Part:
        pipeline = self._pipeline
        rows = _ComparedRows(
            ComparisonDecoder(self._store), self, Variant(*pipeline.shadow_model(shadow), name=shadow.name)
        )
        evaluated = self._evaluated(
            (pipeline.comparison.topic,), "comparisons", {PRIMARY: rows.primary, OTHER: rows.shadow}, rows.times
        )
        said = conclusion(pipeline, found.name, found.rows, found.verdict)
        basis = list(self._basis(pipeline.comparison.topic, evaluated, rows.answering))
        if rows.failed:
            basis.append(("failed", f"the shadow failed on {rows.failed:,} further events"))
        if found.rows:
            first, last = found.rows[0]["window_start"], found.rows[-1]["window_end"]
            basis.append(
                (
                    "verdict",
                    f"of the comparison job: {len(found.rows)} windows from {time_text(first)} to {time_text(last)}, "
                    f"{found.verdict.labels:,} labels, in {pipeline.comparison.evaluations}",
                )
            )
        return Part(
            title=f"Shadow: {found.name}",
            verdict=said[:1].upper() + said[1:],
            basis=basis,
            task=pipeline.comparison.task,
            sides=(Side("primary", _MODEL), Side(found.name, _MODEL)),
            whole=evaluated.whole,
            windows=evaluated.windows,
            width=evaluated.width,
            rows=found.rows,
        )

    def _evaluated(
        self, topics: tuple[str, ...], what: str, kinds: dict[str, Callable[[Records], Rows]], times: list[Any]
    ) -> Evaluated:
        pipeline, span = self._pipeline, self._span
        reader = RangeReader(pipeline.client_config(), GROUP)
        try:
            ranges = reader.ranges(topics, span.start, span.end)
            events = sum(end - start for start, end in ranges.values())
            with Buckets(events, Path(gettempdir())) as buckets:
                filling = Filling(reader, buckets, self._retry, self._say)
                filling.add(ranges, what, kinds)
                rows = None
                if (labels := pipeline.labels) is not None:
                    rows = LabelRows(pipeline, self._store, self._classes)
                    start, end = span.start - round(labels.early * 1000), span.end + round(labels.wait * 1000)
                    filling.add(reader.ranges((labels.topic,), max(start, 0), end), "labels", {LABELS: rows.rows})
                width = round(pipeline.comparison.window * 1000)
                sample = np.concatenate(times) if times else np.zeros(0, np.int64)
                found = evaluate(
                    pipeline.comparison, buckets, Windows.of(sample, width), segments=self._segment is not None
                )
                found.bad_labels = 0 if rows is None else rows.bad
                return found
        finally:
            reader.close()

    def _basis(self, topic: str, found: Evaluated, answering: Answering | None) -> Iterator[tuple[str, str]]:
        span = self._span
        yield "records", f"{topic}, {time_text(span.start)} to {time_text(span.end)} (UTC)"
        yield "events", f"{found.whole.events:,}"
        if self._pipeline.labels is not None:
            yield "labels", f"{found.whole.labelled:,} of these events, in {self._pipeline.labels.topic}"
        if answering is not None and answering.output is not None:
            yield "compared output", answering.output

    def answering(self, first: dict[str, Any], second: dict[str, Any]) -> Answering:
        """The compared output, by one event's outputs of both models. Raises PlanError: nobody named its class."""
        found = Answering.of(self._pipeline.comparison, self._classes, first, second)
        if (
            self._pipeline.labels is not None
        ):  # without labels, scores alone are shown, and no figure tells whether they are right
            check_score(self._pipeline, found.output)
        return found


def _why_no_figure(pipeline: Pipeline, name: str, found: Evaluated) -> str:
    """Why the labels make no figure of this name, which is the AUC, the accuracy or the mean absolute error."""
    if pipeline.labels is None:
        return "no labels"
    whole, scores = found.whole, found.whole.primary
    if not whole.labelled:
        return f"no {name}: {no_label(pipeline, f'{whole.events:,} events', found)}"
    if scored := scores.positive.total + scores.negative.total:
        which = "true" if scores.positive.total else "false"
        return f"no {name}: the labels of all {scored:,} events with a score are {which}. The AUC needs both"
    what = "a class" if pipeline.comparison.task == "multiclass" else "a score"
    return f"no {name}: {whole.labelled:,} events have a label, but none of them has {what}"


class _Predicted:
    """Rows of predictions, which are both sides of the join: so one model is summed up as two are."""

    def __init__(self, decoder: PredictionDecoder, report: LiveReport, segment: str | None) -> None:
        self._decoder = decoder
        self._report = report
        self._segment = segment
        self._last: Rows | None = None
        self.predicted: PredictedRows | None = None
        self.times: list[Any] = []

    def rows(self, records: Records) -> Rows:
        if self.predicted is None:
            first = next((each["outputs"] for _, each in self._decoder.decode(records.values)), None)
            answering = self._report.answering(first or {}, first or {})
            found = PredictedRows(self._decoder, answering, self._segment)
            self._last = found.rows(records)
            self.predicted = None if first is None else found
        else:
            self._last = self.predicted.rows(records)
        self.times.append(self._last["time"][::100])
        return self._last

    def again(self, _records: Records) -> Rows:
        assert self._last is not None
        return self._last


class _ComparedRows:
    """Rows of both models of comparisons with one shadow."""

    def __init__(self, decoder: ComparisonDecoder, report: LiveReport, shadow: Variant) -> None:
        self._decoder = decoder
        self._report = report
        self._shadow = shadow
        self._sides: tuple[Rows, Rows] | None = None
        self.answering: Answering | None = None
        self.failed = 0
        self.times: list[Any] = []

    def primary(self, records: Records) -> Rows:
        found, _ = self._decoder.decode(records.values)
        known = {pair for pair in found.pairs if pair.shadow == self._shadow}
        mine, _ = found.of_pairs(known)
        good = [row for row, outputs in enumerate(mine.shadow) if outputs is not None]
        self.failed += len(mine.shadow) - len(good)
        self._sides = self._rows(mine, good)
        self.times.append(self._sides[0]["time"][::100])
        return self._sides[0]

    def shadow(self, _records: Records) -> Rows:
        assert self._sides is not None
        return self._sides[1]

    def _rows(self, found: Comparisons, good: list[int]) -> tuple[Rows, Rows]:
        outputs = [[side[row] or {} for row in good] for side in (found.primary, found.shadow)]
        if self.answering is None and good:
            self.answering = self._report.answering(outputs[0][0], outputs[1][0])
        answering = self.answering or self._report.answering({}, {})
        sides = []
        for of_side, latency in zip(outputs, (found.primary_ms, found.shadow_ms), strict=True):
            rows = np.zeros(len(good), answering.row_type)
            rows["id"] = hashes([found.ids[row] for row in good])
            rows["time"], rows["ms"] = found.event_times[good], latency[good]
            answering.fill_from(rows, of_side)
            sides.append(rows)
        return sides[0], sides[1]
