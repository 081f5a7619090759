"""Measures how well scores rank the true outcomes. Pure."""

import numpy as np
import numpy.typing as npt


def auc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Area under the ROC curve: how often a true case has a higher score than a false one. A tie counts half.

    Args:
        labels: the true outcomes, boolean, without a missing one.
        scores: one number per label, without NaN or a missing one. A higher score means more likely.

    Raises:
        ValueError: the lengths differ, a value is missing, or all labels are the same (then the area is not defined).

    Source: the rank-sum statistic of Hanley & McNeil, "The meaning and use of the area under a receiver operating
    characteristic (ROC) curve", Radiology 143 (1982).
    """
    truths, numbers = np.asarray(labels), np.asarray(scores, np.float64)
    if len(truths) != len(numbers):
        raise ValueError(f"auc needs one score per label, found {len(truths)} labels and {len(numbers)} scores.")
    if truths.dtype != np.bool_ or np.isnan(numbers).any():
        raise ValueError("auc needs a value in every row, found a null or NaN. Drop the rows whose outcome is unknown.")
    positives = int(truths.sum())
    negatives = len(truths) - positives
    if not positives or not negatives:
        raise ValueError(f"auc needs true and false labels, found {positives} true and {negatives} false ones.")
    _, ranks, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    middle = counts.cumsum() - (counts - 1) / 2  # the mean rank, from 1, of equal scores
    above = float(middle[ranks][truths].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)
