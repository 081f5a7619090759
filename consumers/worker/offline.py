"""Runs events through a pipeline's mapping and model without Kafka, and tells what came of each."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.consumers.events import DecodedBatch, FetchedBatch, Rejection
from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.observability.metrics import FILTERED
from millstream.consumers.records import Records
from millstream.consumers.resilience.limited_retry import LimitedRetry
from millstream.consumers.worker.plan import Plan
from millstream.inference.combined.combination import Route
from millstream.inference.combined.member_inputs import UNFIT
from millstream.inference.combined.version import CombinedVersion
from millstream.inference.executors.interface import ANSWERED_BY, Inputs, rows_between
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from millstream.inference.ragged import Ragged
from millstream.inference.replaced import Replacements
from millstream.inference.signature import TensorInput
from millstream.pipeline.conditions import joined
from millstream.schemas.packed import Packed

Features = dict[str, Any]
"""Tensor -> what the event's fields gave: field -> value where each field is one element, else the list of elements."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of an event: either outputs or a rejection."""

    event_id: str | None  # None: the event has no ID field, or was rejected before its ID was known
    features: Features = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)  # name -> a value, or a list of values
    event: dict[str, Any] = field(default_factory=dict)  # the fields of `output.include`, as in the prediction
    model: ModelId | None = None  # whose outputs they are, if the pipeline has several models
    chosen_by: Sequence[str] = ()  # places of the section `models`, by one of which a route has chosen the model
    rejection: Rejection | None = None


def answers(
    plan: Plan,
    values: Sequence[bytes],
    retry: LimitedRetry,
    note: Callable[[Replacements], object] = lambda _replaced: None,
) -> Iterator[Answer]:
    """One answer per value, in order, each as soon as the model has run its batch.

    The events have no keys, no headers and the present time as their timestamp.

    Args:
        plan: decodes the events and runs the model.
        values: of the events.
        retry: waits while the schema registry, the feature store or the model's server is away.
        note: gets what was replaced in the events.

    Raises:
        OutageLasts: it is away for too long.
        ExecutorUnavailable, ModelConfigError: the model can't run.
    """
    if not values:
        return
    block = retry.call(lambda: decoded(plan, values))
    note(block.replaced)
    known: dict[int, Answer] = {row: Answer(None, rejection=why) for row, why in without_event(plan, block).items()}
    most = plan.executor.max_events
    starts = iter(range(0, len(block.good), most))
    for row in range(len(values)):
        if row not in known:
            start = next(starts)
            known |= _predicted(plan, block, start, min(start + most, len(block.good)), retry)
        yield known.pop(row)


def decoded(plan: Plan, values: Sequence[bytes]) -> DecodedBatch:
    """Decode the values as events that have no keys, no headers and the present time as their timestamp.

    Raises:
        SchemaUnavailable, FeatureStoreUnavailable: the schema registry or the feature store doesn't answer.
    """
    return plan.decoder.decode(_fetched(values, plan.pipeline.input.topics[0]))


def _fetched(values: Sequence[bytes], topic: str) -> FetchedBatch:
    count, now = len(values), time.time_ns() // 1_000_000
    packed = Packed.of(values)
    records = Records(
        partitions=((topic, 0),),
        places=np.zeros(count, np.int64),
        offsets=np.arange(count),
        timestamps=np.full(count, now),
        timestamp_types=np.ones(count, np.int64),
        keys=[None] * count,
        values=packed,
        headers={},
        sizes=packed.lengths,
    )
    return FetchedBatch(records, {}, time.monotonic(), now)


def without_event(plan: Plan, block: DecodedBatch) -> dict[int, Rejection]:
    """Why values of a block do not reach the model, by their row: they are rejected, or left out by `input.filter`."""
    why = Rejection(FILTERED, f"input.filter is {joined(plan.pipeline.input.filter)}")
    return {**block.rejected, **dict.fromkeys(block.left_out.tolist(), why)}


def _predicted(plan: Plan, block: DecodedBatch, start: int, stop: int, retry: LimitedRetry) -> dict[int, Answer]:
    """The answers of some of the block's events, by the row of their value."""
    tensors = rows_between(block.tensors, start, stop)
    isolation = BisectingExecutor(
        lambda part: retry.call(lambda: plan.executor.run(part)),
        max_events=plan.executor.max_events,
        allow_nan_outputs=plan.pipeline.model.allow_nan_outputs,
    )
    with redirect_stdout(sys.stderr):  # what a Python model prints is no answer
        outputs, ran, rejected = isolation.run(tensors)
    answered_by = outputs.pop(ANSWERED_BY, None)
    models = OpenedModel(plan.model.id, plan.executors).models
    place_of = {row: place for place, row in enumerate(ran.tolist())}
    combination = plan.model.combination if isinstance(plan.model, CombinedVersion) else None
    places = [combination.choice.places(at) for at in range(len(models))] if isinstance(combination, Route) else None
    told: dict[int, Answer] = {}
    stated = (
        plan.pipeline.input.event_id is not None
    )  # otherwise the IDs name places in a topic, which these events have not
    unfilled = _unfilled(plan, tensors, stop - start)
    for row in range(stop - start):
        features = {
            entry.tensor: _features(entry, tensors[entry.tensor], row)
            for entry in plan.model.signature.inputs
            if not entry.mask and entry.tensor not in unfilled[row]
        }
        found = {name: _value(array[[place_of[row]]]) for name, array in outputs.items()} if row in place_of else {}
        event = _included(plan, block, start + row) if row in place_of else {}
        number = int(answered_by[place_of[row]]) if answered_by is not None and row in place_of else None
        told[int(block.good[start + row])] = Answer(
            block.ids[start + row] if stated else None,
            features,
            found,
            event,
            None if number is None else models[number],
            places[number] if places is not None and number is not None else (),
            rejected.get(row),
        )
    return told


def _unfilled(plan: Plan, tensors: Inputs, events: int) -> list[set[str]]:
    """For each event, the tensors that hold nothing of it, because it lacks the fields of a model that others run on."""
    combination = plan.model.combination if isinstance(plan.model, CombinedVersion) else None
    if combination is None or UNFIT not in tensors:
        return [set()] * events
    inputs = combination.inputs
    return [inputs.unfilled(why) for why in tensors[UNFIT]]


def _included(plan: Plan, block: DecodedBatch, event: int) -> dict[str, Any]:
    if block.features is None:
        return {}
    row = np.array([event])
    return {name: block.features[name].take(row).to_list()[0] for name in plan.included}


def _features(entry: TensorInput, tensor: npt.NDArray[Any] | Ragged, row: int) -> Any:
    if isinstance(tensor, Ragged):
        return _listed(tensor.values[tensor.offsets[row] : tensor.offsets[row + 1]])
    elements = _listed(np.asarray(tensor[row], tensor.dtype).reshape(-1))
    return elements if entry.array else dict(zip(_names(entry.sources), elements, strict=True))


def _names(fields: Sequence[str]) -> Sequence[str]:
    """The elements' names: their fields, and the element's number behind a field that fills several."""
    count = Counter(fields)
    return [path if count[path] == 1 else f"{path} ({number})" for number, path in enumerate(fields, 1)]


def _value(output: npt.NDArray[Any]) -> Any:
    """One event's output, [1, ...]: a value, or a list of values."""
    values = _listed(output.reshape(-1))
    return values[0] if len(values) == 1 else values


def _listed(array: npt.NDArray[Any]) -> list[Any]:
    """The elements as Python objects; a float32 with the digits that it has."""
    return [float(str(each)) for each in array] if array.dtype == np.float32 else array.tolist()
