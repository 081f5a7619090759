"""Summarises how two multi-class models do on the same events, as a `Summary` of the size that two binary models have.

Each labelled event asks one question of a model: is it this class, the true one? So in the sums, the event is a positive one,
and the answer is right or wrong: `confusion` counts false negatives and true positives. Its log loss is that of the true
class's probability, which is the multi-class log loss (cross-entropy). The score, of which there are histograms, is the largest
probability: how confident the model is. As it is no score of the true class, all scores count as unlabelled.

All sums are exact, except for the rounding of a probability to 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from millstream.inference.class_answers import NO_CLASS
from millstream.inference.evaluation import LOSSES, Columns, Scores, Summary, summarise
from millstream.schemas.arrays import Floats, Ints

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_PROBABILITY = float(np.finfo(np.float32).tiny)  # keeps the log loss of a certain and wrong prediction finite


@dataclass(frozen=True, slots=True)
class Answers:
    """One model's predictions: one entry per event."""

    classes: npt.NDArray[np.int32]  # indices, OTHER_CLASS or NO_CLASS
    probabilities: npt.NDArray[np.float32]  # [events, classes], NaN: not known; [events, 0]: none are kept


def summarise_classes(columns: Columns, primary: Answers, shadow: Answers) -> Summary:
    """Summarise these events. A label is the index of a class."""
    without_labels = replace(columns, labels=np.full(len(columns.labels), np.nan))
    summary = summarise(without_labels, threshold=0.5)
    known = ~np.isnan(columns.labels) & ~columns.failed & (primary.classes != NO_CLASS) & (shadow.classes != NO_CLASS)
    labels = columns.labels[known].astype(np.int64)
    losses = [_losses(answers.classes[known], answers.probabilities[known], labels) for answers in (primary, shadow)]
    differences = losses[1] - losses[0]
    return replace(
        summary,
        labelled=int((~np.isnan(columns.labels)).sum()),
        primary=_with_sums(summary.primary, losses[0]),
        shadow=_with_sums(summary.shadow, losses[1]),
        losses=np.array([differences.sum(axis=1), (differences**2).sum(axis=1)]),
    )


def _losses(classes: npt.NDArray[np.int32], probabilities: npt.NDArray[np.float32], labels: Ints) -> Floats:
    """One row for each of LOSSES, one column for each event. The log loss is NaN if the probabilities are not known."""
    losses = np.zeros((len(LOSSES), len(labels)))
    losses[LOSSES.index("wrong")] = classes != labels
    true = probabilities[np.arange(len(labels)), labels].astype(np.float64) if probabilities.shape[1] else np.nan
    losses[LOSSES.index("log_loss")] = -np.log(np.maximum(true, MIN_PROBABILITY))
    return losses


def _with_sums(scores: Scores, losses: Floats) -> Scores:
    wrong = int(losses[LOSSES.index("wrong")].sum())
    confusion: Sequence[int] = (0, 0, wrong, losses.shape[1] - wrong)
    return replace(
        scores, log_loss=float(losses[LOSSES.index("log_loss")].sum()), confusion=np.array(confusion, np.int64)
    )
