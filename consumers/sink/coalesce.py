"""Joins consecutive results, so that the fixed cost of each numpy call is paid once for all of them. Pure."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

from millstream.consumers.events import BatchResult, Rejection, joined_parts
from millstream.inference.executors.interface import join_rows
from millstream.schemas.rollout_choices import RolloutChoice, RowChoices


def coalesce(answers: Sequence[BatchResult]) -> Iterator[BatchResult]:
    """The results in their order. Neighbours are joined if the same models answered, and their outputs have the same
    names, types and shapes."""
    for _, group in groupby(answers, _traits):
        alike = list(group)
        yield _joined(alike) if len(alike) > 1 else alike[0]


def _traits(answered: BatchResult) -> object:
    return (
        answered.models,
        answered.variants,
        tuple((name, one.dtype, one.shape[1:]) for name, one in answered.outputs.items()),
    )


def _joined(answers: Sequence[BatchResult]) -> BatchResult:
    first = answers[0]
    rejected: dict[int, Rejection] = {}
    rows: list[npt.NDArray[np.int64]] = []
    start = 0
    for answered in answers:
        if answered.rejected:
            rejected |= {start + event: why for event, why in answered.rejected.items()}
        rows.append(answered.rows + start)
        start += answered.batch.events
    return first._replace(
        batch=first.batch._replace(parts=joined_parts([answered.batch for answered in answers])),
        outputs=join_rows([answered.outputs for answered in answers]),
        rows=np.concatenate(rows),
        rejected=rejected,
        prediction_times=np.concatenate([answered.prediction_times for answered in answers]),
        answered_by=_answered_by(answers),
        choices=_choices(answers),
    )


def _answered_by(answers: Sequence[BatchResult]) -> npt.NDArray[np.int64] | None:
    if all(answered.answered_by is None for answered in answers):
        return None
    return np.concatenate(
        [
            np.zeros(len(answered.rows), np.int64) if answered.answered_by is None else answered.answered_by
            for answered in answers
        ]
    )


def _choices(answers: Sequence[BatchResult]) -> RowChoices | None:
    if answers[0].variants is None:  # all are alike in this
        return None
    choices: list[RolloutChoice | None] = []
    of_rows: list[npt.NDArray[np.int64]] = []
    for answered in answers:
        assert answered.choices is not None
        of_rows.append(answered.choices.of_rows + len(choices))
        choices += answered.choices.choices
    return RowChoices(choices, np.concatenate(of_rows))
