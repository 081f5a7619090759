"""`millstream models diff`: compares the signatures of two versions, and their outputs on the same events."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from millstream.consumers.cli.event_file import is_csv
from millstream.consumers.cli.given_events import given_events
from millstream.consumers.errors import WorkerError
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


def compare_versions(pipeline: Pipeline, args: argparse.Namespace) -> int:
    """Print the differences. Returns 1 if a running worker could not change over from one version to the other."""
    models = PipelineModels(pipeline)
    loaded = [models.wanted(version) for version in (args.old, args.new)]
    old, new = loaded
    if old.version == new.version:
        raise WorkerError(f"{args.old} and {args.new} are both version {old.version}. Name two versions.")
    found = list(signature_differences(old, new))
    if not any(each.breaks for each in found) and (why := misfit(old, new)) is not None:
        found.append(Difference("mapping", "a running worker", "changes over", f"does not: {why}", breaks=True))
    if args.file is not None:
        plans = [make_plan(models.pinned(each.version)) for each in loaded]
        found += output_differences(plans[0], plans[1], _values(pipeline, args))
    if args.json:
        for each in found:
            print(json.dumps({field: getattr(each, field) for field in Difference.__slots__}))
    else:
        print(f"model     {old.name}: version {old.version} -> version {new.version}")
        print("\n".join(map(str, found)) if found else "same      no difference found")
        print(f"workers   {RESTART if any(each.breaks for each in found) else CHANGE_OVER}")
        if args.file is None:
            print("files     not loaded: with `--events FILE`, both versions run, and their outputs are compared")
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


def output_differences(old: Plan, new: Plan, values: Sequence[bytes]) -> list[Difference]:
    """The differences between two versions' outputs on the same events. Raises as `answers` does."""
    retry = LimitedRetry(SERVER_TIMEOUT, lambda text: print(printable(text), file=sys.stderr, flush=True))
    pairs = list(zip(answers(old, values, retry), answers(new, values, retry), strict=True))
    both = [pair for pair in pairs if pair[0].rejection is None and pair[1].rejection is None]
    lost = [sum(each.rejection is not None for each in side) for side in zip(*pairs, strict=True)] if pairs else [0, 0]
    found = []
    if lost[0] != lost[1]:
        before, after = (f"{len(pairs) - count:,} of {len(pairs):,} predicted" for count in lost)
        found.append(Difference("events", "events", before, after))
    names = dict.fromkeys(name for pair in both for name in pair[0].outputs if name in pair[1].outputs)
    return found + [difference for name in names if (difference := _of_output(name, both)) is not None]


def _of_output(name: str, pairs: Sequence[tuple[Answer, Answer]]) -> Difference | None:
    """How the values of one output differ; None: they don't."""
    sides = [[answer.outputs[name] for answer in side] for side in zip(*pairs, strict=True)]
    same = sum(one == other for one, other in zip(*sides, strict=True))
    if same == len(pairs):
        return None
    first = next(place for place in range(len(pairs)) if sides[0][place] != sides[1][place])
    arrays = [_numbers(side) for side in sides]
    share = f"{len(pairs) - same:,} of {len(pairs):,} events differ"
    if arrays[0] is not None and arrays[1] is not None and arrays[0].shape == arrays[1].shape:
        [number] = number_differences({name: arrays[0]}, {name: arrays[1]})
        share += f"; by {number.mean:.3g} on average, {number.max:.3g} at most"
    return Difference("values", name, f"{sides[0][first]!s:.60}", f"{sides[1][first]!s:.60} ({share})")


def _numbers(values: Sequence[Any]) -> "np.ndarray[Any, np.dtype[np.float64]] | None":
    """The values as numbers; None: some are none, or they differ in length."""
    try:
        return np.array(values, np.float64)
    except (ValueError, TypeError):
        return None


def _values(pipeline: Pipeline, args: argparse.Namespace) -> list[bytes]:
    """The events of the file, as a worker would read them. Raises WorkerError: the file has none."""
    given = islice(given_events(pipeline, args.file, csv=is_csv(args)), args.limit)
    values = [each.value for each in given if isinstance(each.value, bytes)]
    if not values:
        raise WorkerError(f"{args.file}: expected events, found none that the pipeline can read.")
    return values
