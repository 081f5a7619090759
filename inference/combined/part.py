"""Runs a part of a micro-batch on one model, and finds the events that it rejects."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import EventRejection, EventsRejected, ModelRejected, NanOutput
from millstream.inference.executors.interface import Inputs, Tensors, join_rows, rows_between, rows_of
from millstream.inference.executors.output_forms import are_alike, mixes_numbers, usual_parts
from millstream.inference.repository import ModelVersion
from millstream.schemas.arrays import Ints

Outputs = dict[str, npt.NDArray[Any]]
Run = Callable[[Inputs], Outputs]


class Part(NamedTuple):
    """The answers of one model to some events of a micro-batch."""

    outputs: Outputs  # name -> [len(rows), ...]; empty if there are no rows
    rows: Ints  # the rows of the micro-batch that have outputs, ascending
    rejected: Mapping[int, EventRejection]  # row of the micro-batch -> why it has none


def run_part(run: Run, inputs: Inputs, rows: Ints, model: ModelVersion) -> Part:
    """Run some events. If the model rejects them, they are halved until the bad ones are alone.

    Only the events of this model run again, so a bad event doesn't make the other models run twice.

    Args:
        run: runs the model.
        inputs: of these events.
        rows: their rows in the micro-batch, ascending; at least one.
        model: for messages.

    Raises:
        OutOfMemory, ExecutorUnavailable, ModelConfigError, Exception: see `Executor.run`.
    """
    try:
        return Part(run(inputs), rows, {})
    except ModelRejected as error:
        if len(rows) == 1:
            return Part({}, rows[:0], {int(rows[0]): rejection_of(error, model)})
    parts: list[Tensors] = []
    places: list[Ints] = []  # in `rows`, of each part
    rejected: dict[int, EventRejection] = {}
    middle, end = len(rows) // 2, rows_of(inputs)
    waiting = [(middle, end), (0, middle)]
    while waiting:
        start, stop = waiting.pop()
        try:
            parts.append(run(rows_between(inputs, start, stop)))
            places.append(np.arange(start, stop))
        except ModelRejected as error:
            if stop - start == 1:
                rejected[int(rows[start])] = rejection_of(error, model)
                continue
            middle = (start + stop) // 2
            waiting += [(middle, stop), (start, middle)]
    if not parts:
        return Part({}, rows[:0], rejected)
    if not are_alike(parts):
        parts, places, others = _run_together(run, inputs, parts, places)
        rejected |= {int(rows[place]): rejection_of(error, model) for place, error in others.items()}
    return Part(join_rows(parts), rows[np.concatenate(places)], rejected) if parts else Part({}, rows[:0], rejected)


def _run_together(
    run: Run, inputs: Inputs, parts: list[Tensors], places: list[Ints]
) -> tuple[list[Tensors], list[Ints], dict[int, ModelRejected]]:
    """Run the good events once more, so that their outputs have one form. If the model rejects them, take out unusual ones."""
    good = np.concatenate(places)
    with suppress(ModelRejected):
        return [run({name: array[good] for name, array in inputs.items()})], [good], {}
    rejected: dict[int, ModelRejected] = {}
    if mixes_numbers(parts, places):  # in a part, an integer may be a float because another event's output is one
        parts, places = [], []
        for place in good.tolist():
            try:
                parts.append(run(rows_between(inputs, place, place + 1)))
                places.append(np.array([place]))
            except ModelRejected as error:
                rejected[place] = error
        if not parts:
            return [], [], rejected
    parts, places, others = usual_parts(parts, places)
    return parts, places, rejected | {place: ModelRejected(why) for place, why in others.items()}


def rejection_of(error: ModelRejected, model: ModelVersion) -> EventRejection:
    """Why an event has no prediction, if it runs alone and raises this error."""
    if isinstance(error, EventsRejected):
        return next(iter(error.rejected.values()))
    return EventRejection(
        "nan_output" if isinstance(error, NanOutput) else "model_rejected", f"model {model.id}: {error}"
    )
