"""`millstream profile`: measures a pipeline's model at several batch sizes, and recommends the settings of its batches."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from millstream.consumers.cli.event_tensors import EventTensors, blank_events, events_of_file
from millstream.consumers.cli.given import read_pipeline, refuse_several
from millstream.consumers.cli.profile_report import plot, row_json, settings_json, settings_yaml, table
from millstream.consumers.errors import WorkerError
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.worker.plan import Plan, load_primary, make_plan
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.interface import ModelExecutor
from millstream.inference.profiling.batch_settings import BatchSettings, choose
from millstream.inference.profiling.measurement import Candidate, measure, sizes_to_measure
from millstream.inference.profiling.size_profile import SizeProfile
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.repository import without_version

SHARE_TO_FIND_EVENTS = 0.2  # of the time to measure: in it, a slow model runs only some of the events
EVENTS_READ = 4096  # of the file, at most; more where one batch is larger


def run(args: argparse.Namespace) -> int:
    """Measure, print the sizes and the settings. Returns 1 if no size meets the target."""
    pipeline = _pipeline(args)
    target = args.target_p99 or pipeline.batch.target_p99
    most = args.max_events or pipeline.batch.max_events
    sizes = sizes_to_measure(most, () if args.max_events else load_primary(PipelineModels(pipeline), None).batch_sizes)
    plan = make_plan(_as_measured(pipeline, sizes[-1]))
    console = Console(stderr=args.json, highlight=False, soft_wrap=True)
    events = blank_events(plan, sizes[-1]) if args.file is None else _of_file(plan, args, sizes[-1])
    executors = _executors(plan, sizes[-1])
    candidates = [
        Candidate(_label(threads), executor, size)
        for threads, executor in executors.items()
        for size in sizes
        if size <= executor.max_events
    ]
    _tell_start(console, plan, events, candidates, args)
    _measured(console, candidates, events, args.seconds)
    return _tell_end(console, pipeline, _by_threads(executors, candidates), target, args)


def _pipeline(args: argparse.Namespace) -> Pipeline:
    """The pipeline, with the model of the command line."""
    pipeline = read_pipeline(args)
    refuse_several(pipeline, "profile")
    if args.model is None:
        return pipeline
    name, version = args.model
    # The pipeline file's mapping is that of its own model.
    inputs = pipeline.model.inputs if name == pipeline.model.name else {}
    where = without_version(pipeline.model.repository, same=name == pipeline.model.name)
    changed = {"name": name, "version": version, "inputs": inputs, "repository": where}
    model = pipeline.model.model_copy(update=changed)
    return pipeline.model_copy(update={"model": model})


def _as_measured(pipeline: Pipeline, max_events: int) -> Pipeline:
    """The pipeline with one copy of the model, which takes batches of this size, and without shadows."""
    return pipeline.model_copy(
        update={
            "model": pipeline.model.model_copy(update={"instances": 1}),
            "batch": pipeline.batch.model_copy(update={"max_events": max_events}),
            "shadows": (),
        }
    )


def _of_file(plan: Plan, args: argparse.Namespace, largest: int) -> EventTensors:
    events = events_of_file(plan, args, max(EVENTS_READ, largest), seconds=args.seconds * SHARE_TO_FIND_EVENTS)
    if events.rejected:
        print(
            f"{events.rejected:,} events get no prediction, and are not measured. The first: {events.first_rejection}",
            file=sys.stderr,
        )
    return events


def _executors(plan: Plan, max_events: int) -> dict[int, ModelExecutor]:
    """The executors to measure, by their number of threads. ONNX models on a CPU also run with 1 thread and all cores."""
    settings = plan.pipeline.model
    found = {settings.threads: plan.executor}
    if plan.model.executor == "onnx" and plan.executor.device == "cpu":
        for threads in {1, _cores()} - found.keys():
            found[threads] = open_executor(plan.model, device="cpu", threads=threads, max_events=max_events)
    return dict(sorted(found.items()))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _label(threads: int) -> str:
    return f"{threads}"


def _tell_start(
    console: Console, plan: Plan, events: EventTensors, candidates: Sequence[Candidate], args: argparse.Namespace
) -> None:
    sizes = sorted({candidate.events for candidate in candidates})
    threads = list(dict.fromkeys(candidate.label for candidate in candidates))
    repeated = f", repeated in batches of more than {len(events):,}" if len(events) < sizes[-1] else ""
    console.print(f"model     {plan.model.place}, on {plan.executor.device}", markup=False)
    console.print(f"events    {events.source}{repeated}", markup=False)
    with_threads = f" with {' and '.join(threads)} CPU threads" if len(threads) > 1 else ""
    console.print(
        f"measures  {len(sizes)} batch sizes{with_threads}, {args.seconds:g} s after the warm-up", markup=False
    )


def _measured(console: Console, candidates: Sequence[Candidate], events: EventTensors, seconds: float) -> None:
    """Measure, and show the figures so far if the output is a terminal."""

    def so_far() -> Text:
        return Text("\n".join(table([each.profile() for each in candidates if each.turns])))

    if console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as live:
            measure(
                candidates,
                events.tensors,
                seconds=seconds,
                after_turn=lambda: live.update(so_far(), refresh=True),
            )
    else:
        measure(candidates, events.tensors, seconds=seconds)
    for candidate in candidates:
        if candidate.refused:
            print(f"{candidate.events} events at a time can't run: {candidate.refused}", file=sys.stderr)
    if not any(candidate.turns for candidate in candidates):
        hint = " Give real events: --events FILE" if not any(events.rows) else ""
        raise WorkerError(f"no batch size could be measured.{hint}")


def _by_threads(executors: dict[int, ModelExecutor], candidates: Sequence[Candidate]) -> dict[int, list[SizeProfile]]:
    found = {
        threads: [each.profile() for each in candidates if each.label == _label(threads) and each.turns]
        for threads in executors
    }
    return {threads: profiles for threads, profiles in found.items() if profiles}


def _tell_end(
    console: Console,
    pipeline: Pipeline,
    by_threads: dict[int, list[SizeProfile]],
    target: float | None,
    args: argparse.Namespace,
) -> int:
    profiles = [profile for some in by_threads.values() for profile in some]
    reserve = pipeline.commit_seconds if pipeline.delivery == "exactly_once" else 0.0
    settings = choose(list(by_threads.values()), target, reserve)
    threads = int(settings.profile.label)
    changed_threads = threads if threads != pipeline.model.threads else None
    if args.json:
        for profile in profiles:
            print(row_json(profile))
        print(settings_json(settings, target, changed_threads))
    else:
        _print_end(console, pipeline, profiles, settings, settings_yaml(settings, target, changed_threads))
    if args.plot is not None:
        _write(args.plot, plot(f"{pipeline.model.name}: throughput and latency by batch size", by_threads))
    return 0 if settings.meets_target else 1


def _print_end(
    console: Console, pipeline: Pipeline, profiles: Sequence[SizeProfile], settings: BatchSettings, yaml: str
) -> None:
    lines = ["", *table(profiles), "", f"settings  {settings.reason}", "", yaml]
    for line in lines:
        console.print(line, markup=False)
    if pipeline.delivery == "exactly_once":
        text = "with exactly_once, a batch stays open until shortly before the next commit, whatever max_wait says"
        console.print(f"note      {text}", markup=False)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WorkerError(f"{file}: the chart can't be written: {error.strerror}. Choose another place.") from None
