"""Measures how well scores rank the true outcomes."""

import polars as pl


def auc(labels: pl.Series, scores: pl.Series) -> float:
    """Area under the ROC curve: how often a true case has a higher score than a false one. A tie counts half.

    Args:
        labels: the true outcomes, boolean, without nulls.
        scores: one number per label, without nulls or NaN. A higher score means more likely.

    Raises:
        ValueError: the lengths differ, a value is missing, or all labels are the same (then the area is not defined).

    Source: the rank-sum statistic of Hanley & McNeil, "The meaning and use of the area under a receiver operating
    characteristic (ROC) curve", Radiology 143 (1982).
    """
    if len(labels) != len(scores):
        raise ValueError(f"auc needs one score per label, found {len(labels)} labels and {len(scores)} scores.")
    truths = labels.cast(pl.Boolean)
    if truths.null_count() or scores.cast(pl.Float64).fill_nan(None).null_count():
        raise ValueError("auc needs a value in every row, found a null or NaN. Drop the rows whose outcome is unknown.")
    positives = int(truths.sum())
    negatives = len(truths) - positives
    if not positives or not negatives:
        raise ValueError(f"auc needs true and false labels, found {positives} true and {negatives} false ones.")
    rank_sum = float(scores.rank("average").filter(truths).sum())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)
