"""`millstream models diff`: compares the signatures of two versions, and their outputs on the same events."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from millstream.consumers.cli.event_file import is_csv
from millstream.consumers.cli.given_events import Given, given_events
from millstream.consumers.errors import WorkerError
from millstream.consumers.models.loadable import refuse_unloadable
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.models.versions import signature_lines
from millstream.consumers.resilience.limited_retry import LimitedRetry
from millstream.consumers.serving.misfit import REQUESTING, misfit
from millstream.consumers.worker.offline import Answer, answers
from millstream.consumers.worker.plan import Plan, make_plan
from millstream.inference.optimizing.differences import number_differences
from millstream.inference.repository import ModelVersion
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.printable import printable
from millstream.schemas.wording import counted

SAME, DIFFERENT = 0, 1
CHANGE_OVER = "running workers can change over: the inputs and the names of the outputs are the same"
RESTART = (
    "running workers keep the version that they have until they are restarted (`millstream docs "
    "reload#what-must-stay-the-same`)"
)
SERVER_TIMEOUT = 60.0  # seconds that a model's server or the schema registry may be away


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between two versions."""

    kind: str  # input, output, executor, mapping, events or values
    what: str  # the tensor or the output
    old: str
    new: str
    breaks: bool = False  # whether a worker could not change from one to the other while it runs

    def __str__(self) -> str:
        return f"{self.kind:<8}  {self.what}: {self.old} -> {self.new}"


class Compared(NamedTuple):
    """The outputs of two versions on the same events."""

    differences: list[Difference]
    events: int  # that both versions predict; only their outputs are compared
    left_out: str  # how many of the other events there are, and an example; empty: there are none


def compare_versions(pipeline: Pipeline, args: argparse.Namespace) -> int:
    """Print the differences. Returns 1 if a running worker could not change over from one version to the other.

    Raises:
        ModelConfigError: a version can't be loaded, so that no worker changes over to it.
    """
    models = PipelineModels(pipeline)
    loaded = [models.wanted(version) for version in (args.old, args.new)]
    old, new = loaded
    if old.version == new.version:
        raise WorkerError(f"{args.old} and {args.new} are both version {old.version}. Name two versions.")
    # With a file of events, both versions run.
    opened = {each.version: args.file is not None or refuse_unloadable(pipeline, each) for each in loaded}
    found, same = list(signature_differences(old, new)), "the inputs, outputs and batch sizes"
    if not any(each.breaks for each in found) and (why := misfit(old, new)) is not None:
        found.append(Difference("mapping", "a running worker", "changes over", f"does not: {why}", breaks=True))
    if args.file is not None:
        plans = [make_plan(models.pinned(each.version)) for each in loaded]
        compared = compared_outputs(plans[0], plans[1], _given(pipeline, args))
        found += compared.differences
        same += f", and the outputs of {counted(compared.events, 'event')}"
        if compared.left_out:
            print(printable(compared.left_out), file=sys.stderr)
    if args.json:
        for each in found:
            print(json.dumps({field: getattr(each, field) for field in Difference.__slots__}))
    else:
        unopened = ", ".join(str(each.version) for each in loaded if not opened[each.version])
        print(f"model     {old.name}: version {old.version} -> version {new.version}")
        print("\n".join(map(str, found)) if found else f"same      {same}")
        if unopened:
            print(f"files     not loaded, so they may be damaged (version {unopened}): see `millstream models warm`")
        if args.file is None:
            print("outputs   not compared: with `--events FILE`, both versions run")
        print(f"workers   {RESTART if any(each.breaks for each in found) else CHANGE_OVER}")
    return DIFFERENT if any(each.breaks for each in found) else SAME


def signature_differences(old: ModelVersion, new: ModelVersion) -> Iterator[Difference]:
    """The differences between two versions' executors, inputs, outputs and batch sizes."""
    if old.executor != new.executor:
        other_kind = (old.executor in REQUESTING) != (new.executor in REQUESTING)
        yield Difference("executor", "executor", old.executor, new.executor, breaks=other_kind)
    before, after = signature_lines(old), signature_lines(new)
    for kind in ("input", "output"):
        lines = [{line.partition(":")[0]: line for line in each[f"{kind}s"]} for each in (before, after)]
        for name in dict.fromkeys([*lines[0], *lines[1]]):
            first, second = lines[0].get(name, "(not there)"), lines[1].get(name, "(not there)")
            if first != second:
                yield Difference(kind, name, first, second, breaks=True)
    if old.batch_sizes != new.batch_sizes:
        yield Difference("batches", "batch_sizes", str(list(old.batch_sizes)), str(list(new.batch_sizes)))


def compared_outputs(old: Plan, new: Plan, given: Sequence[Given]) -> Compared:
    """Compare two versions' outputs on the same events.

    Raises:
        WorkerError: there is no event that a version predicts.
        Exception: as `answers`.
    """
    retry = LimitedRetry(SERVER_TIMEOUT, lambda text: print(printable(text), file=sys.stderr, flush=True))
    values = [each.value for each in given if isinstance(each.value, bytes)]
    pairs = list(zip(answers(old, values, retry), answers(new, values, retry), strict=True))
    both = [pair for pair in pairs if pair[0].rejection is None and pair[1].rejection is None]
    predicted = [sum(each.rejection is None for each in side) for side in zip(*pairs, strict=True)] if pairs else [0, 0]
    example = next(_left_out(given, pairs), "")
    if not any(predicted):
        raise WorkerError(
            f"no version predicts any of the {counted(len(given), 'event')}, so there are no outputs to compare. The first is "
            f"{example}. Give events that the pipeline predicts; `millstream predict` shows each event."
        )
    found = []
    if predicted[0] != predicted[1]:
        before, after = (f"{count:,} of {len(given):,} predicted" for count in predicted)
        found.append(Difference("events", "events", before, after))
    names = dict.fromkeys(name for pair in both for name in pair[0].outputs if name in pair[1].outputs)
    classes = {
        output.name for plan in (old, new) for output in plan.model.signature.outputs if output.classes or output.top
    }
    of_outputs = (_of_output(name, both, is_class=name in classes) for name in names)
    found += [difference for difference in of_outputs if difference is not None]
    left = len(given) - len(both)
    return Compared(found, len(both), f"{counted(left, 'event')} left out, such as {example}" if left else "")


def _left_out(given: Sequence[Given], pairs: Sequence[tuple[Answer, Answer]]) -> Iterator[str]:
    """The events that a version doesn't predict: where each is, and why. `pairs`: of those that can be read, in order."""
    answered = iter(pairs)
    for each in given:
        if isinstance(each.value, bytes):
            rejections = [answer.rejection for answer in next(answered) if answer.rejection is not None]
            yield from (f"{each.where} ({why.reason}): {why.error}" for why in rejections[:1])
        else:
            yield f"{each.where}: {each.value}"


def _of_output(name: str, pairs: Sequence[tuple[Answer, Answer]], *, is_class: bool) -> Difference | None:
    """How the values of one output differ; None: they don't. `is_class`: it tells a class, whose index is no amount."""
    sides = [[answer.outputs[name] for answer in side] for side in zip(*pairs, strict=True)]
    same = sum(one == other for one, other in zip(*sides, strict=True))
    if same == len(pairs):
        return None
    first = next(place for place in range(len(pairs)) if sides[0][place] != sides[1][place])
    arrays = [None if is_class else _numbers(side) for side in sides]
    differing = f"{len(pairs) - same:,} of {len(pairs):,} events"
    share = f"the class differs in {differing}" if is_class else f"{differing} differ"
    if arrays[0] is not None and arrays[1] is not None and arrays[0].shape == arrays[1].shape:
        [number] = number_differences({name: arrays[0]}, {name: arrays[1]})
        share += f"; by {number.mean:.3g} on average, {number.max:.3g} at most"
    before, after = (f"{side[first]!s:.60}" for side in sides)
    return Difference("values", name, before, f"{after} in the first event that differs ({share})")


def _numbers(values: Sequence[Any]) -> "np.ndarray[Any, np.dtype[np.float64]] | None":
    """The values as numbers; None: some are none, or they differ in length."""
    try:
        array = np.array(values)
    except ValueError:
        return None
    return array.astype(np.float64) if array.dtype.kind in "iuf" else None


def _given(pipeline: Pipeline, args: argparse.Namespace) -> list[Given]:
    """The events of the file. Raises WorkerError: the file has none."""
    given = list(islice(given_events(pipeline, args.file, csv=is_csv(args)), args.limit))
    if not given:
        raise WorkerError(f"{args.file}: expected events, found none.")
    return given
