"""The plots of a part of a report."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.stats import beta

from millstream.consumers.comparison.verdict import DEVIATIONS
from millstream.consumers.report.chart import (
    FIRST,
    QUIET,
    SECOND,
    Band,
    Bars,
    Line,
    Plot,
    Steps,
    bars_svg,
    svg,
)
from millstream.consumers.report.part import NARROWEST_AT, agreement_over_time, difference_over_time, figure, largest
from millstream.inference.estimates import estimate
from millstream.inference.evaluation import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.consumers.report.chart import Layer
    from millstream.consumers.report.part import Part, Sequenced
    from millstream.inference.evaluation import Histogram, Scores
    from millstream.schemas.arrays import Floats, Ints

COLOURS: Final = (FIRST, SECOND)
BINS: Final = 40  # of a histogram
MOST_SEGMENTS: Final = 20  # the others are shown together
LEAST_IN_BIN: Final = 20  # events of a bin of the calibration; with fewer, its share says little
FIGURES: Final = {"classification": "auc", "multiclass": "accuracy", "regression": "mae"}
NAMES: Final = {"auc": "AUC", "accuracy": "accuracy", "mae": "mean absolute error", "log_loss": "log loss"}
_ALWAYS: Final = "The band holds at all times at once (95 %), if events are independent of each other."


def figure_of(part: Part) -> str:
    """The figure that the verdict is about, as the schema evaluation-v2 names it."""
    return FIGURES[part.task]


def plots(part: Part) -> Iterator[tuple[str, Sequence[str]]]:
    """Each plot as SVG, with the sentences below it."""
    for plot in (*_scores(part), *_quality(part), *_over_time(part), *_latency(part)):
        yield svg(plot), plot.notes
    yield from _segments(part)


def _sides(part: Part) -> list[tuple[str, str, Scores]]:
    """Name, colour and scores of each model."""
    scores = (part.whole.primary, part.whole.shadow)
    return [(side.name, colour, each) for side, colour, each in zip(part.sides, COLOURS, scores, strict=False)]


def _scores(part: Part) -> Iterator[Plot]:
    sides = _sides(part)
    edges = _edges([each.histogram for _, _, each in sides])
    if edges is None:
        return
    label = "largest probability" if part.task == "multiclass" else "score"
    layers = [Steps(name, colour, edges.tolist(), _shares(each.histogram, edges)) for name, colour, each in sides]
    yield Plot("Distribution of scores", label, "share of events", layers)
    if part.task == "classification" and part.whole.labelled:
        for name, colour, each in sides:
            yield Plot(
                f"Scores by outcome, {name}",
                label,
                "share of events of the outcome",
                [
                    Steps("label 1", colour, edges.tolist(), _shares(each.positive, edges)),
                    Steps("label 0", QUIET, edges.tolist(), _shares(each.negative, edges), dashed=True),
                ],
                notes=["The less the two overlap, the better the model tells the outcomes apart."],
            )


def _edges(histograms: Sequence[Histogram]) -> Floats | None:
    """The edges of `BINS` equal bins for all values but the most extreme thousandth; None: there are no values."""
    if not any(each.total for each in histograms):
        return None
    ends = [each.quantile(share) for each in histograms for share in (0.001, 0.999) if each.total]
    low, high = min(end for end in ends if end is not None), max(end for end in ends if end is not None)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, BINS + 1)


def _shares(histogram: Histogram, edges: Floats) -> list[float]:
    values = np.clip(value_of(histogram.bins), edges[0], edges[-1])
    counts, _ = np.histogram(values, edges, weights=histogram.counts)
    shares: list[float] = (counts / max(histogram.total, 1)).tolist()
    return shares


def _quality(part: Part) -> Iterator[Plot]:
    if part.task != "classification" or not part.whole.labelled:
        return
    sides = _sides(part)
    curves = [(name, colour, roc(each.positive, each.negative)) for name, colour, each in sides]
    layers: list[Layer] = [Line("", QUIET, (0, 1), (0, 1), dashed=True)]
    layers += [Line(name, colour, *curve) for name, colour, curve in curves if curve is not None]
    if len(layers) > 1:
        yield Plot("ROC", "false positive rate", "true positive rate", layers, (0, 1), (0, 1))
    calibrated = [layer for name, colour, each in sides for layer in _calibrated(name, colour, each.calibration)]
    if calibrated:
        yield Plot(
            "Calibration",
            "mean score of the bin",
            "share with label 1",
            [Line("", QUIET, (0, 1), (0, 1), dashed=True), *calibrated],
            (0, 1),
            (0, 1),
            notes=[
                f"Bins with at least {LEAST_IN_BIN} labels. On the dashed line, a score is the probability. Bands: 95 %, of each "
                f"bin alone (Clopper and Pearson)."
            ],
        )


def roc(positive: Histogram, negative: Histogram) -> tuple[list[float], list[float]] | None:
    """The false and the true positive rates at all thresholds, from the histograms' bins; None: one of them is empty."""
    if not positive.total or not negative.total:
        return None
    bins = np.union1d(positive.bins, negative.bins)[::-1]
    rates = [_cumulated(each, bins) / each.total for each in (negative, positive)]
    kept = np.unique(
        np.linspace(0, len(bins), min(len(bins) + 1, 400)).astype(np.int64)
    )  # points that an eye can tell apart
    false, true = (np.concatenate(([0.0], rate))[kept].tolist() for rate in rates)
    return false, true


def _cumulated(histogram: Histogram, bins: Ints) -> Floats:
    """The events in each bin and those before it; `bins`: descending."""
    counts = np.zeros(len(bins))
    counts[len(bins) - 1 - np.searchsorted(bins[::-1], histogram.bins)] = histogram.counts
    return counts.cumsum()


def _calibrated(name: str, colour: str, sums: Floats) -> Iterator[Layer]:
    """The share of label 1 in bins of the score; `sums`: [events, scores, labels; bins]."""
    events, scores, labels = sums
    full = np.flatnonzero(events >= LEAST_IN_BIN)
    if not len(full) or not ((sums[1] >= 0) & (sums[1] <= events)).all():
        return  # the scores are no probabilities
    means, shares = scores[full] / events[full], labels[full] / events[full]
    lows = np.where(labels[full] > 0, beta.ppf(0.025, labels[full], events[full] - labels[full] + 1), 0.0)
    rest = events[full] - labels[full]
    highs = np.where(rest > 0, beta.ppf(0.975, labels[full] + 1, np.maximum(rest, 1e-9)), 1.0)
    yield Band(colour, means.tolist(), lows.tolist(), highs.tolist())
    yield Line(name, colour, means.tolist(), shares.tolist(), points=True)


def _over_time(part: Part) -> Iterator[Plot]:
    if len(part.windows) > 1:
        yield from _of_windows(part)
    if part.paired and part.whole.answered:
        yield _sequence(
            "Agreement, of all events so far", "share of events", agreement_over_time(part), y_range=None, zero=False
        )
    if part.paired and part.whole.losses[1].any():
        losses = (("log_loss", "log loss"), ("wrong", "share of wrong answers"))
        for loss, name in losses if part.task != "regression" else (("absolute", "mean absolute error"),):
            found = difference_over_time(part, loss)
            if any(map(math.isfinite, found.middles)):
                note = f"Below 0, {part.sides[1].name} is better. It is narrowest at {NARROWEST_AT:,} labels."
                yield _sequence(f"Difference of {name}, of all labels so far", "difference", found, notes=[note])
    if part.rows:
        yield from _of_the_job(part)


def _of_windows(part: Part) -> Iterator[Plot]:
    """The figure of each window, and the agreement in it."""
    times = [start + part.width / 2 for start in part.windows]
    found = [estimate(summary, task=part.task) for summary in part.windows.values()]
    pairs = [(each.primary, each.shadow) for each in found]
    yield from _figures_of_windows(part, times)
    means = [
        Line(side.name, COLOURS[place], times, [_value(pair[place].mean_score) for pair in pairs], points=True)
        for place, side in enumerate(part.sides)
    ]
    if any(math.isfinite(y) for layer in means for y in layer.ys):
        yield Plot("Mean score of each window", "event time (UTC)", "mean score", means, times=True)
    if part.paired:
        agreed = [_value(each.agreement) for each in found]
        yield Plot(
            "Agreement in each window",
            "event time (UTC)",
            "share of events",
            [Line("", FIRST, times, agreed, points=True)],
            times=True,
        )


def _figures_of_windows(part: Part, times: list[float]) -> Iterator[Plot]:
    name = NAMES[figure_of(part)]
    layers: list[Layer] = []
    for place, side in enumerate(part.sides):
        each = [figure((summary.primary, summary.shadow)[place], part.task) for summary in part.windows.values()]
        layers.append(Band(COLOURS[place], times, [one.low for one in each], [one.high for one in each]))
        layers.append(Line(side.name, COLOURS[place], times, [one.value for one in each], points=True))
    if any(math.isfinite(y) for layer in layers if isinstance(layer, Line) for y in layer.ys):
        notes = [] if part.task == "regression" else ["Bands: 95 %, of each window alone."]
        yield Plot(
            f"{name[:1].upper()}{name[1:]} of each window", "event time (UTC)", name, layers, times=True, notes=notes
        )


def _sequence(
    title: str,
    y: str,
    found: Sequenced,
    *,
    y_range: tuple[float, float] | None = None,
    zero: bool = True,
    notes: Sequence[str] = (),
) -> Plot:
    layers: list[Layer] = [
        Band(FIRST, found.times, found.lows, found.highs),
        Line("", FIRST, found.times, found.middles, points=True),
    ]
    if zero:
        layers.append(Line("", QUIET, (found.times[0], found.times[-1]), (0, 0), dashed=True))
    return Plot(title, "event time (UTC)", y, layers, None, y_range, times=True, notes=[*notes, _ALWAYS])


def _of_the_job(part: Part) -> Iterator[Plot]:
    """The difference in each window of the comparison job."""
    figure = figure_of(part)
    rows = [row for row in part.rows if row[f"{figure}_difference"] is not None]
    if not rows:
        return
    times = [(row["window_start"] + row["window_end"]) / 2 for row in rows]
    middles = [row[f"{figure}_difference"] for row in rows]
    radii = [DEVIATIONS * _value(row[f"{figure}_difference_error"]) for row in rows]
    lows, highs = ([middle + sign * radius for middle, radius in zip(middles, radii, strict=True)] for sign in (-1, 1))
    yield Plot(
        f"Difference of {NAMES[figure]} in each window of the comparison job",
        "event time (UTC)",
        "difference",
        [
            Band(FIRST, times, lows, highs),
            Line("", FIRST, times, middles, points=True),
            Line("", QUIET, (times[0], times[-1]), (0, 0), dashed=True),
        ],
        times=True,
        notes=["The band is 95 %, of each window alone."],
    )


def _latency(part: Part) -> Iterator[Plot]:
    sides = [
        (side, colour, each.latency)
        for side, (_, colour, each) in zip(part.sides, _sides(part), strict=True)
        if side.latency and each.latency.total
    ]
    if not sides:
        return
    shares = np.concatenate([np.linspace(0.01, 0.99, 99), [0.995, 0.999]])
    layers = []
    for side, colour, latency in sides:
        quantiles = [latency.quantile(share) for share in shares]
        logs = [math.log10(max(_value(each), 1e-3)) for each in quantiles]
        layers.append(Line(side.name, colour, logs, shares.tolist()))
    yield Plot(
        "Latency",
        "milliseconds",
        "share of events below",
        layers,
        None,
        (0, 1),
        logs=True,
        notes=[f"{side.name}: {side.latency}." for side, _, _ in sides],
    )


def _segments(part: Part) -> Iterator[tuple[str, Sequence[str]]]:
    if len(part.segments) < 2:
        return
    name, chosen = NAMES[figure_of(part)], largest(part.segments, MOST_SEGMENTS)
    names = [f"{segment} ({summary.events:,})" for segment, summary in chosen.items()]
    alone = "Intervals: 95 %, of each segment alone"
    if not part.paired:
        each = [figure(summary.primary, part.task) for summary in chosen.values()]
        bars = Bars(names, FIRST, *([getattr(one, end) for one in each] for end in ("value", "low", "high")))
        yield bars_svg(f"{name} by {part.segment_field}", name, bars), [f"{alone}."]
        return
    found = [estimate(summary, task=part.task) for summary in chosen.values()]
    middles = [_value(getattr(each, f"{figure_of(part)}_difference")) for each in found]
    radii = [DEVIATIONS * _value(getattr(each, f"{figure_of(part)}_difference_error")) for each in found]
    ends = [[middle + sign * radius for middle, radius in zip(middles, radii, strict=True)] for sign in (-1, 1)]
    note = f"{alone}: of 20 segments without a difference, one is expected to leave out 0."
    title = f"Difference of {name} by {part.segment_field}"
    yield bars_svg(title, "difference", Bars(names, FIRST, middles, *ends), 0.0), [note]


def _value(number: float | None) -> float:
    return math.nan if number is None else number
