"""`millstream optimize`: writes a faster version of an ONNX model beside it, and compares the two."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from millstream.consumers.cli.event_file import is_csv
from millstream.consumers.cli.event_tensors import EventTensors, answered, blank_events, events_of_file
from millstream.consumers.cli.given import read_pipeline, refuse_several
from millstream.consumers.cli.optimize_report import Comparison, Report, report_json, report_lines, report_markdown
from millstream.consumers.cli.version_folder import REPORT_FILES, is_version, new_version, pipeline_of
from millstream.consumers.errors import WorkerError
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.worker.plan import Plan, load_primary, make_plan
from millstream.inference.errors import NotOptimized
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.interface import ModelExecutor, Tensors, rows_between
from millstream.inference.optimizing.calibration import calibration_batches
from millstream.inference.optimizing.conversion import convert, external_data
from millstream.inference.optimizing.differences import agreements, number_differences
from millstream.inference.optimizing.onnx_package import onnx
from millstream.inference.optimizing.quality import compare_quality
from millstream.inference.profiling.measurement import Candidate, measure, sizes_to_compare
from millstream.inference.repository import ModelVersion
from millstream.inference.version_number import LARGEST_VERSION
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.paths import parse_path, value_at

MOST_CALIBRATION_EVENTS = 512
MODEL_FILE = "model.onnx"


def run(args: argparse.Namespace) -> int:
    """Convert, compare, write the version and print the report."""
    pipeline = _as_measured(_pipeline(args))
    model = load_primary(PipelineModels(pipeline), None)
    target = _check(args, pipeline, model)
    plan = make_plan(pipeline)
    events = None if args.file is None else _events(plan, args)
    with new_version(model, target) as folder:
        calibration, compared = _split(events, args.precision)
        steps = convert(model.file, args.precision, folder / MODEL_FILE, _batches(plan, calibration or compared))
        version = replace(model, version=args.output, file=folder / MODEL_FILE)
        report = _report(plan, version, compared, calibration, steps, args)
        for name, text in zip(REPORT_FILES, (report_markdown(report), report_json(report)), strict=True):
            (folder / name).write_text(f"{text}\n", encoding="utf-8")
    print(report_json(report) if args.json else "\n".join(report_lines(report)))
    print(
        f"{target} is written, with this report in {REPORT_FILES[0]}. Try it as a shadow before it makes predictions: "
        "`millstream docs shadows`",
        file=sys.stderr,
    )
    return 0


def _pipeline(args: argparse.Namespace) -> Pipeline:
    """The pipeline of the command line; for a model's folder, one that reads JSON without a schema."""
    if not is_version(args.pipeline):
        pipeline = read_pipeline(args)
        refuse_several(pipeline, "optimize")
        return pipeline
    if args.file is not None and is_csv(args):
        raise WorkerError(
            f"{args.file}: CSV has only text, and a model's folder has no schema. Give JSON lines, or name the pipeline file."
        )
    return pipeline_of(args.pipeline)


def _as_measured(pipeline: Pipeline) -> Pipeline:
    """The pipeline with one copy of the model, and without shadows."""
    return pipeline.model_copy(update={"model": pipeline.model.model_copy(update={"instances": 1}), "shadows": ()})


def _check(args: argparse.Namespace, pipeline: Pipeline, model: ModelVersion) -> Path:
    """Refuse what can't work, before anything is loaded. Returns the folder of the new version."""
    if model.executor != "onnx":
        raise NotOptimized(
            f"{model.file}: expected model.onnx, found a model for {model.executor}. Export it to ONNX first "
            "(`millstream docs models`)."
        )
    onnx()
    if pipeline.model.version is None:
        raise NotOptimized(
            f"{pipeline.at('model')}: expected a `version`, because the model will have several; found none, and workers would "
            f"no longer start. Write `version: {model.version}` under `model:` first."
        )
    if model.remote:
        raise NotOptimized(
            f"{pipeline.at('model', 'repository')}: the new version is written beside the old one, but this repository is a URL. "
            f"Copy the version first: `millstream models fetch {pipeline.named} --output models`. Then name its folder, and "
            f"upload the new version."
        )
    folder = model.file.parent.parent
    target = folder / str(args.output)
    if target.exists():
        taken = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
        raise NotOptimized(
            f"--output {args.output}: {target} exists already, and no version is overwritten. Choose another number, such as "
            f"{max(taken, default=0) + 1}."
        )
    if args.output > LARGEST_VERSION:
        raise NotOptimized(f"--output {args.output}: expected a version of at most {LARGEST_VERSION}.")
    if args.file is None:
        _check_without_events(args)
    return target


def _check_without_events(args: argparse.Namespace) -> None:
    if args.precision == "int8-static":
        raise NotOptimized("--precision int8-static learns ranges from real events: add --events FILE.")
    if args.labels is not None:
        raise NotOptimized("--labels names a field of the events: add --events FILE.")
    if not args.blind:
        raise NotOptimized(
            "nothing shows whether the new version answers as the old one does: add --events FILE with some of your events. "
            "To write it all the same, add --blind."
        )


def _events(plan: Plan, args: argparse.Namespace) -> EventTensors:
    top = None if args.labels is None else str(parse_path(args.labels).steps[0])
    events = events_of_file(plan, args, args.limit, beside=top)
    if args.labels is not None and all(_label(row, args.labels) is None for row in events.rows):
        raise NotOptimized(
            f"--labels {args.labels}: expected this field in the events of {args.file}, found it in none."
        )
    if args.precision == "int8-static" and len(events) < 2:
        raise NotOptimized(f"{args.file}: int8-static needs at least 2 events, one to learn ranges and one to compare.")
    return events


def _split(events: EventTensors | None, precision: str) -> tuple[EventTensors | None, EventTensors | None]:
    """The events to calibrate with, and those to compare: static quantization is judged by events that it hasn't seen."""
    if events is None or precision != "int8-static":
        return None, events
    first = min(len(events) // 2, MOST_CALIBRATION_EVENTS)
    return _slice(events, 0, first), _slice(events, first, len(events))


def _slice(events: EventTensors, start: int, stop: int) -> EventTensors:
    return replace(
        events,
        tensors=rows_between(events.tensors, start, stop),
        outputs=rows_between(events.outputs, start, stop),
        rows=events.rows[start:stop],
    )


def _batches(plan: Plan, events: EventTensors | None) -> list[Tensors]:
    """Some of the events, as the model itself takes them."""
    if events is None:
        return []
    sizes = plan.executor.batch_sizes
    fixed = sizes[0] if len(sizes) == 1 else None
    return calibration_batches(plan.model, rows_between(events.tensors, 0, MOST_CALIBRATION_EVENTS), fixed)


def _report(
    plan: Plan,
    version: ModelVersion,
    events: EventTensors | None,
    calibration: EventTensors | None,
    steps: Sequence[str],
    args: argparse.Namespace,
) -> Report:
    settings = plan.pipeline.model
    new = open_executor(
        version, device=settings.device, threads=settings.threads, max_events=plan.pipeline.batch.max_events
    )
    new.warm_up()
    compared = None if events is None else _compared(plan, new, events, args.labels)
    speed = events or blank_events(plan, plan.executor.max_events)
    sizes = sizes_to_compare(plan.executor.batch_sizes[0], plan.executor.max_events)
    candidates = [
        Candidate(str(number), executor, size)
        for number, executor in ((plan.model.version, plan.executor), (version.version, new))
        for size in sizes
    ]
    measure(candidates, speed.tensors, seconds=args.seconds)
    return Report(
        model=plan.model.name,
        old=plan.model.version,
        new=version.version,
        precision=args.precision,
        device=new.device,
        steps=[*steps, *_about_calibration(calibration)],
        bytes=(_size(plan.model.file), _size(version.file)),
        speed=[candidate.profile() for candidate in candidates if candidate.turns],
        events=speed.source,
        rejected=speed.rejected,
        comparison=compared,
    )


def _about_calibration(events: EventTensors | None) -> list[str]:
    return [] if events is None else [f"{len(events):,} events set the ranges; the outputs are compared on others"]


def _size(file: Path) -> int:
    return file.stat().st_size + sum((file.parent / name).stat().st_size for name in external_data(file))


def _compared(plan: Plan, new: ModelExecutor, events: EventTensors, labels: str | None) -> Comparison:
    """Compare the answers. Raises NotOptimized if the new version doesn't answer all events that the old one answers."""
    _, outputs, _, faults = answered(plan, new, events.tensors)
    if faults:
        raise NotOptimized(
            f"the new version rejects {len(faults):,} of {len(events):,} events that the old one answers. The first reason: "
            f"{next(iter(faults.values()))}. It isn't written; try another `--precision`."
        )
    numbers = number_differences(events.outputs, outputs)
    lost = next((each for each in numbers if each.lost), None)
    if lost is not None:
        raise NotOptimized(
            f"the new version answers NaN or infinity in `{lost.output}` for {lost.lost:,} of {len(events):,} events, and the "
            "old one doesn't. It isn't written; try another `--precision`: numbers of 16 bits end at 65,504."
        )
    signature = plan.model.signature.outputs
    quality = None
    if labels is not None:
        found = [_label(row, labels) for row in events.rows]
        quality = compare_quality(found, events.outputs, outputs, signature)
    return Comparison(len(events), numbers, agreements(events.outputs, outputs, signature), quality)


def _label(row: Any, path: str) -> Any:
    return None if row is None else value_at(row, parse_path(path).steps)
