"""Says whether a shadow is better than the primary, from the results of all windows. Pure.

The windows are independent samples. So the difference over all of them is the mean of their differences, weighted by how many
labels each one has; and its variance follows from the windows' own (stratified sampling). With 95 % confidence, the true
difference lies within 1.96 standard errors. If this interval doesn't contain 0, the verdict is clear. Otherwise, the width of the
interval says how many labels are missing: it shrinks with the square root of their number.

Windows with one label are taken together as one window (collapsed strata), because a single label has no error.

For the accuracy of classes, a window's difference and its error tell how many events only one model got right. These counts are
added up, and give the interval of Agresti and Min: half an event is added to each of the four counts (both right, only one, the
other one, none), so that the interval holds with few labels, too, and also if both models are nearly always right.

A. Agresti, Y. Min, "Simple improved confidence intervals for comparing matched proportions", Statistics in Medicine 24(5), 2005,
729-740.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Outcome = Literal["better", "not better", "not decided yet"]

LEAST_LABELS: Final = 30  # with fewer, the error of the difference is itself unknown
DEVIATIONS: Final = 1.96  # standard errors on each side: a confidence of 95 %
_SAME_BELOW: Final = 100  # a decision that needs so many times the present labels is not worth waiting for
_FIGURES: Final[Mapping[str, str]] = {"classification": "auc", "multiclass": "accuracy", "regression": "mae"}
_NAMES: Final = {"auc": "AUC", "accuracy": "accuracy", "mae": "mean absolute error", "log_loss": "log loss"}
_LOWER_IS_BETTER: Final = {"mae", "log_loss"}
_MAX_DIFFERENCE: Final = 1e100  # of one event; its square must be finite
_MAX_LABELS: Final = 1 << 48  # a window with more is no result of the job


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a shadow is better. The differences are shadow's minus primary's figure."""

    outcome: Outcome
    figure: str  # what was compared: auc, accuracy or mae
    labels: int  # of paired events, which the difference is computed from
    difference: float | None = None
    low: float | None = None  # the ends of the interval
    high: float | None = None
    more_labels: int | None = None  # how many more would decide, if the difference stays as it is; None: not known

    def words(self, shadow: str) -> str:
        """One line about the shadow of this name."""
        if self.difference is None or self.low is None or self.high is None:
            needed = f"at least {LEAST_LABELS} are needed{self._counted()}"
            return f"{shadow}: not decided yet: {self.labels:,} paired events so far, {needed}"
        figure = f"{self.figures()}, {self.labels:,} paired events"
        match self.outcome:
            case "better":
                return f"{shadow} is better: {figure}"
            case "not better" if self.low == self.high:
                return f"{shadow} is not better: both do equally well: {figure}"
            case "not better":
                return f"{shadow} is worse: {figure}"
        if self.more_labels is None or self.more_labels > _SAME_BELOW * self.labels:
            return f"{shadow}: not decided yet: the difference is too small for these labels: {figure}"
        needed = f"about {self.more_labels:,} more compared events with a label are needed"
        return f"{shadow}: not decided yet: {needed}: {figure}"

    def figures(self) -> str:
        """The difference with its interval, such as `AUC +0.013 [0.004, 0.022]`; empty if it is not known."""
        if self.difference is None or self.low is None or self.high is None:
            return ""
        digits = _digits(self.high - self.low)
        interval = f"[{self.low:.{digits}f}, {self.high:.{digits}f}]"
        return f"{_NAMES[self.figure]} {self.difference:+.{digits}f} {interval}"

    def _counted(self) -> str:
        return (
            "; windows in which fewer than 2 labels are true or fewer than 2 are false don't count"
            if self.figure == "auc"
            else ""
        )


def verdict(rows: Sequence[dict[str, Any]], task: str, figure: str | None = None) -> Verdict:
    """The verdict on one shadow.

    Args:
        rows: the results of the shadow's windows (schema evaluation-v2).
        task: `comparison.task` of the pipeline file.
        figure: what to compare instead of the task's own figure: log_loss.
    """
    figure = _FIGURES[task] if figure is None else figure
    if figure == "accuracy":
        return _of_accuracy(rows)
    windows = [_window(row, figure) for row in rows]
    if figure != "auc":
        windows.append(_of_single_labels(rows, figure))
    counted = [window for window in windows if window is not None]
    labels = sum(window.labels for window in counted)
    if labels < LEAST_LABELS:
        return _too_few(figure, labels)
    whole = sum(window.weight for window in counted)
    difference = sum(window.weight * window.difference for window in counted) / whole
    error = math.sqrt(sum((window.weight * window.error) ** 2 for window in counted)) / whole
    return _decided(figure, labels, difference, difference, error)


def _of_accuracy(rows: Sequence[dict[str, Any]]) -> Verdict:
    windows = [_discordant(row) for row in rows]
    labels, shadow, primary = (sum(window[at] for window in windows) for at in range(3))
    if labels < LEAST_LABELS:
        return _too_few("accuracy", round(labels))
    # Agresti and Min: half an event more in each of the four counts.
    events, net = labels + 2, shadow - primary
    error = math.sqrt(max(0.0, shadow + primary + 1 - net**2 / events)) / events
    return _decided("accuracy", round(labels), net / labels, net / events, error)


def _discordant(row: dict[str, Any]) -> tuple[float, float, float]:
    """The window's labels, and the events that only the shadow, and only the primary, got right. They follow from the error.

    The standard error of a mean of n values is sqrt((mean of squares - mean**2) / (n - 1)); the values are -1, 0 and 1.
    """
    labels, difference, error = row["paired"], row["accuracy_difference"], row["accuracy_difference_error"]
    if not labels or not 0 < labels <= _MAX_LABELS or difference is None or not abs(difference) <= 1:
        return 0, 0, 0
    error = 0.0 if error is None else error
    if not 0 <= error <= 1:
        return 0, 0, 0
    either = min(max(error**2 * (labels - 1) + difference**2, abs(difference)), 1.0)
    return labels, labels * (either + difference) / 2, labels * (either - difference) / 2


def _too_few(figure: str, labels: int) -> Verdict:
    return Verdict("not decided yet", figure, labels, more_labels=LEAST_LABELS - labels)


def _decided(figure: str, labels: int, difference: float, middle: float, error: float) -> Verdict:
    """The verdict of a difference; `middle`: of its interval."""
    low, high = middle - DEVIATIONS * error, middle + DEVIATIONS * error
    outcome = _outcome(low, high, figure)
    more = _more_labels(labels, middle, error) if outcome == "not decided yet" else None
    return Verdict(outcome, figure, labels, difference, low, high, more)


@dataclass(frozen=True, slots=True)
class _Window:
    labels: int
    weight: float
    difference: float
    error: float


def _window(row: dict[str, Any], figure: str) -> _Window | None:
    """The window's part of the difference; None if its error is not known."""
    difference, error = row[f"{figure}_difference"], row[f"{figure}_difference_error"]
    labels, positives = row["paired"], row["positives"]
    if difference is None or error is None or not math.isfinite(difference) or not math.isfinite(error) or not labels:
        return None
    if figure != "auc":
        return _Window(labels, labels, difference, error)
    # The AUC comes from pairs of a positive and a negative event. With few of either, a window tells little.
    weight = (positives or 0) * (labels - (positives or 0)) / labels
    return _Window(labels, weight, difference, error) if weight > 0 else None


def _of_single_labels(rows: Sequence[dict[str, Any]], figure: str) -> _Window | None:
    """The windows with one label, taken as one window: no window's error follows from a single label."""
    values = [row[f"{figure}_difference"] for row in rows if row["paired"] == 1]
    known = [value for value in values if value is not None and abs(value) <= _MAX_DIFFERENCE]
    if len(known) < 2:
        return None
    return _Window(len(known), len(known), fmean(known), stdev(known) / math.sqrt(len(known)))


def _outcome(low: float, high: float, figure: str) -> Outcome:
    if figure in _LOWER_IS_BETTER:
        low, high = -high, -low
    if low > 0:
        return "better"
    return "not better" if high < 0 or low == high else "not decided yet"


def _more_labels(labels: int, difference: float, error: float) -> int | None:
    """How many more labels would end the interval at 0, to two significant digits."""
    if difference == 0:
        return None
    needed = labels * (DEVIATIONS * error / difference) ** 2 - labels
    if not needed < 1e12:
        return None
    exact = max(1, math.ceil(needed))
    step = int("1" + "0" * max(0, len(str(exact)) - 2))
    return math.ceil(exact / step) * step


def _digits(width: float) -> int:
    """So many digits after the point show the interval's width with two digits."""
    if not 0 < width < math.inf:
        return 3
    return min(9, max(0, 1 - math.floor(math.log10(width))))
