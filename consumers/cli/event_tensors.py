"""The events of a file as a model's inputs: those that the model answers. Without a file, blank events."""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Any

import numpy as np

from millstream.consumers.cli.event_file import is_csv, place
from millstream.consumers.cli.given_events import given_events
from millstream.consumers.errors import WorkerError
from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.worker.offline import decoded, without_event
from millstream.consumers.worker.plan import Plan
from millstream.inference.executors.interface import Inputs, ModelExecutor, Tensors, join_rows, rows_between, rows_of
from millstream.inference.signature import blank

Row = Mapping[str, Any]
TOGETHER = 64  # events that are run in one call: few, so that a measurement sees how memory grows with larger batches


@dataclass(frozen=True, slots=True)
class EventTensors:
    """Events as a model takes them."""

    tensors: Inputs
    outputs: Tensors  # what the model answers
    rows: Sequence[Row | None]  # the events as objects; None: not known as one
    source: str  # what they are, for people
    rejected: int = 0  # other events of the file, which get no prediction
    first_rejection: str = ""  # where the first of these is, and why

    def __len__(self) -> int:
        return rows_of(self.tensors)


def blank_events(plan: Plan, count: int) -> EventTensors:
    """Events of zeros and empty texts. Inputs of variable length have their greatest length."""
    tensors = blank(plan.model.signature.inputs, count)
    return EventTensors(tensors, {}, [None] * count, "blank: zeros, empty texts and the greatest lengths")


def events_of_file(
    plan: Plan, args: argparse.Namespace, most: int, beside: str | None = None, seconds: float = inf
) -> EventTensors:
    """The first events of the file, without those that a worker would reject.

    Args:
        plan: decodes the events and runs the model.
        args: with the file and its format.
        most: events to read.
        beside: see `given_events`.
        seconds: see `answered`.

    Raises:
        WorkerError: the file can't be read, or none of its events gets a prediction.
    """
    name = place(args.file)
    values: list[bytes] = []
    rows: list[Row | None] = []
    places: list[str] = []
    refused: list[str] = []
    for given in islice(given_events(plan.pipeline, args.file, csv=is_csv(args), beside=beside), most):
        if isinstance(given.value, bytes):
            values.append(given.value)
            rows.append(given.row)
            places.append(given.where)
        else:
            refused.append(f"{given.where}: {given.value}")
    block = decoded(plan, values)
    refused += [f"{places[row]}: {why.error}" for row, why in sorted(without_event(plan, block).items())]
    good = block.good.tolist()
    tensors, outputs, kept, faults = answered(plan, plan.executor, block.tensors, seconds) if good else ({}, {}, [], {})
    refused += [f"{places[good[row]]}: {why}" for row, why in faults.items()]
    if not values and not refused:
        raise WorkerError(f"{name}: expected events, found none. Put some of your events there.")
    if not kept:
        why = f" The first reason: {refused[0]}" if refused else ""
        raise WorkerError(f"{name}: expected events that get a prediction, found {len(refused):,} others.{why}")
    return EventTensors(
        tensors,
        outputs,
        [rows[good[row]] for row in kept],
        f"{len(kept):,} of {name}",
        len(refused),
        refused[0] if refused else "",
    )


def answered(
    plan: Plan, executor: ModelExecutor, tensors: Inputs, seconds: float = inf
) -> tuple[Inputs, Tensors, list[int], dict[int, str]]:
    """Run events through a model.

    Args:
        plan: says whether outputs may be NaN.
        executor: of the model.
        tensors: its inputs; at least one event.
        seconds: after this time, no further events are run. Some are run in any case.

    Returns:
        the inputs and the outputs of the events that it answers, their rows, and row -> why not for the others.
    """
    together, allow_nan = min(executor.max_events, TOGETHER), plan.pipeline.model.allow_nan_outputs
    isolation = BisectingExecutor(executor.run, max_events=together, allow_nan_outputs=allow_nan)
    outputs: list[Tensors] = []
    rows: list[int] = []
    faults: dict[int, str] = {}
    start, end = 0, time.monotonic() + seconds
    while start < rows_of(tensors) and (not outputs or time.monotonic() < end):
        some, ran, rejected = isolation.run(rows_between(tensors, start, start + together))
        outputs += [some] if len(ran) else []
        rows += (ran + start).tolist()
        faults |= {start + row: why.error for row, why in rejected.items()}
        start += together
    if not outputs:
        return {}, {}, [], faults
    if len(rows) < rows_of(tensors):
        tensors = {name: tensor[np.array(rows)] for name, tensor in tensors.items()}
    return tensors, join_rows(outputs), rows, faults
