"""`millstream models list|show|fetch|diff|warm`: the versions of a pipeline's model, wherever its repository is."""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from millstream.consumers.cli.given import read_pipeline, refuse_several
from millstream.consumers.cli.model_differences import compare_versions
from millstream.consumers.cli.serving import Refusal, Serving, ask_workers
from millstream.consumers.errors import WorkerError
from millstream.consumers.models.loadable import refuse_unloadable
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.models.versions import Known, known_version, known_versions, signature_lines
from millstream.consumers.worker.plan import check_answers, make_plan
from millstream.inference.errors import ModelRejected
from millstream.inference.repository import NAME_VERSION
from millstream.pipeline.pipeline import Pipeline

PIPED_WIDTH = 1000  # columns of output that doesn't go to a terminal: one line per version, for `grep`


def run(args: argparse.Namespace) -> int:
    """Run the action. `diff` returns 1 if the versions differ in what a pipeline relies on, otherwise 0."""
    pipeline = read_pipeline(args)
    refuse_several(pipeline, f"models {args.action}")
    match args.action:
        case "list":
            return _list(pipeline, args)
        case "show":
            return _show(pipeline, args)
        case "fetch":
            return _fetch(pipeline, args)
        case "diff":
            return compare_versions(pipeline, args)
    return _warm(pipeline, args)


def _list(pipeline: Pipeline, args: argparse.Namespace) -> int:
    workers = ask_workers(args.workers)
    models = PipelineModels(pipeline)
    versions = known_versions(models)
    if args.json:
        refusals = {worker: f"{why.reason}: {why.error}" for worker, why in _refused(pipeline, workers)}
        refused = {"refusals": refusals} if workers else {}
        for known in versions:
            print(json.dumps({**_as_json(known, workers), "exists": known.exists, **refused}))
        return 0
    place = "in the cache" if models.source.remote else "folder"
    table = Table(box=None, pad_edge=False)
    for heading in ("version", "aliases", "size", "checksum", place, *(["served by"] if workers else [])):
        table.add_column(heading, overflow="fold")
    for known in versions:
        serving = [_servers(known, workers)] if workers else []
        size = _size(known.bytes) if known.exists else "missing"
        cells = (size, (known.digest or "-")[:12], str(known.folder or "-"))
        table.add_row(str(known.version), ", ".join(known.aliases) or "-", *cells, *serving)
    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(table)
    there = [known.version for known in versions if known.exists]
    if pipeline.models is None and pipeline.wanted_version is None and len(there) > 1:
        print(f"{pipeline.path.name} names none of them: {NAME_VERSION.format(version=there[-1])}")
    for worker, refusal in _refused(pipeline, workers):
        print(f"worker {worker} doesn't change over ({refusal.reason}): {refusal.error}")
    _tell_unknown(workers)
    return 0


def _refused(pipeline: Pipeline, workers: list[Serving]) -> Iterator[tuple[str, Refusal]]:
    """The workers that should serve another version of the pipeline's model than they do, and why they don't."""
    for each in workers:
        yield from ((each.worker, refusal) for refusal in each.refusals if refusal.model == pipeline.model.name)


def _show(pipeline: Pipeline, args: argparse.Namespace) -> int:
    workers = ask_workers(args.workers)
    models = PipelineModels(pipeline)
    loaded = models.wanted(args.version)
    known = known_version(models, loaded.version, loaded.file.parent)
    lines = signature_lines(loaded)
    if args.json:
        print(json.dumps({**_as_json(known, workers), "executor": loaded.executor, **lines}))
        refuse_unloadable(pipeline, loaded)
        return 0
    print(f"model     {loaded.place}")
    for name, value in (
        ("aliases", ", ".join(known.aliases)),
        ("size", _size(known.bytes)),
        ("checksum", known.digest),
    ):
        print(f"{name:<9} {value or '-'}")
    print(f"executor  {loaded.executor}")
    for kind in ("inputs", "outputs"):
        for entry in lines[kind]:
            print(f"{kind[:-1]:<9} {entry}")
    if workers:
        print(f"served by {_servers(known, workers)}")
    _tell_unknown(workers)
    refuse_unloadable(pipeline, loaded)  # after the signature, which is config.yaml's: the file may lack it
    return 0


def _fetch(pipeline: Pipeline, args: argparse.Namespace) -> int:
    models = PipelineModels(pipeline)
    fetched = models.fetch(args.version)
    known = known_version(models, fetched.version, fetched.folder)
    folder = fetched.folder
    if args.output is not None:
        folder = args.output / pipeline.model.name / str(fetched.version)
        _copy(fetched.folder, folder)
    if args.json:
        print(json.dumps({**_as_json(known, []), "folder": str(folder)}))
    else:
        print(f"version {fetched.version} of {pipeline.model.name} ({_size(known.bytes)}) is in {folder}")
    return 0


def _copy(source: Path, target: Path) -> None:
    """Copy a version: all of it at once, or nothing. Raises WorkerError if the target is there, or can't be written."""
    if target.exists():
        raise WorkerError(f"{target} exists already, and no version is overwritten. Delete it, or name another folder.")
    part = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(source, part)
        part.rename(target)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise WorkerError(f"{target} can't be written: {getattr(error, 'strerror', None) or error}.") from None


def _warm(pipeline: Pipeline, args: argparse.Namespace) -> int:
    begun = time.monotonic()
    models = PipelineModels(pipeline)
    fetched = models.fetch(args.version)
    there = time.monotonic()
    plan = make_plan(models.pinned(fetched.version))
    plan.executor.warm_up()
    if isinstance(refusal := check_answers(plan), ModelRejected):
        raise WorkerError(
            f"{plan.model.place}: it rejects a blank event: {refusal}. Only a real event can show whether it works: run "
            f"`millstream predict` with it. A running worker does not change over to it."
        )
    taken = {"fetch_seconds": round(there - begun, 3), "load_seconds": round(time.monotonic() - there, 3)}
    if args.json:
        known = known_version(models, fetched.version, fetched.folder)
        print(json.dumps({**_as_json(known, []), "device": plan.executor.device, **taken}))
    else:
        print(
            f"version {fetched.version} of {pipeline.model.name} works on {plan.executor.device}: fetched in "
            f"{taken['fetch_seconds']:g} s, loaded and warmed up in {taken['load_seconds']:g} s"
        )
    return 0


def _as_json(known: Known, workers: list[Serving]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "model": known.name,
        "version": known.version,
        "aliases": list(known.aliases),
        "bytes": known.bytes,
        "checksum": known.digest,
        "folder": None if known.folder is None else str(known.folder),
    }
    if workers:
        found["served_by"] = [each.worker for each in workers if (known.name, known.version) in each.models]
        found["unknown_workers"] = {each.worker: each.error for each in workers if each.error}
    return found


def _servers(known: Known, workers: list[Serving]) -> str:
    return ", ".join(each.worker for each in workers if (known.name, known.version) in each.models) or "-"


def _tell_unknown(workers: list[Serving]) -> None:
    for each in workers:
        if each.error:
            print(f"worker {each.worker}: {each.error}", file=sys.stderr)


def _size(size: int | None) -> str:
    if size is None:
        return "-"
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
