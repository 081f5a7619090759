"""`millstream replay`: runs a model version over past events, and compares it with what was predicted and with the labels."""

import argparse
import gc
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.text import Text

from millstream.consumers.cli.cache_folder import cache_folder
from millstream.consumers.cli.compare import NOT_BETTER, PIPED_WIDTH, UNDECIDED
from millstream.consumers.cli.given import read_pipeline, refuse_several
from millstream.consumers.cli.log_lines import log_to_stderr
from millstream.consumers.cli.report_page import about_page, refuse_unknown_segment, refuse_unwritable, write_page
from millstream.consumers.cli.say import say
from millstream.consumers.cli.telling import SCHEMA_TIMEOUT, Telling, require_scipy
from millstream.consumers.cli.work import COLLECT_AFTER, OWN_LOGGERS, keep_freed_memory
from millstream.consumers.errors import WorkerError
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.replay.folder import About, ReplayFolder
from millstream.consumers.replay.replayed import Request, name_of
from millstream.consumers.replay.run import Compared, Late, Replay
from millstream.consumers.resilience.limited_retry import LimitedRetry
from millstream.consumers.resilience.signals import set_handler, stop_on_signals
from millstream.consumers.worker.plan import Plan
from millstream.pipeline.pipeline import Pipeline

FOLDER = "replays"
"""In the user's cache folder: holds a folder for each replay."""


def run(args: argparse.Namespace) -> int:
    """Replay and compare. Returns 0 if the version is better, else as `compare --show`; 1 if it was stopped."""
    log_to_stderr(args.log_level, OWN_LOGGERS)
    gc.set_threshold(COLLECT_AFTER)
    keep_freed_memory()
    require_scipy("replay")
    pipeline = read_pipeline(args)
    refuse_several(pipeline, "replay")
    refuse_unknown_segment(pipeline, args.segment)
    if args.report is not None:
        refuse_unwritable(args.report)
    request = _request(pipeline, args)
    folder = ReplayFolder(args.state or cache_folder(None) / FOLDER / name_of(pipeline, request))
    with folder.locked():
        compared = _compared(pipeline, request, folder, args)
    if compared is None:
        return 1
    if args.report is not None:
        _write_report(pipeline, compared, args.report)
    return _tell(pipeline, compared, json=args.json)


def _request(pipeline: Pipeline, args: argparse.Namespace) -> Request:
    if args.start >= args.end:
        args.parser.error(f"--from {_time(args.start)} --to {_time(args.end)}: expected the earlier time first.")
    if args.end > time.time() * 1000:
        args.parser.error(f"--to {_time(args.end)}: this is in the future. Only past events can be replayed.")
    version = args.model
    if not isinstance(version, int):
        version = PipelineModels(pipeline).fetch(version).version
    return Request(version, args.start, args.end, args.output, args.rate)


def _compared(pipeline: Pipeline, request: Request, folder: ReplayFolder, args: argparse.Namespace) -> Compared | None:
    """Replay what is still to be done, and compare. None: it was stopped before the end."""
    late = Late(
        predictions=round(args.late * 1000),
        labels=0 if pipeline.labels is None else round(pipeline.labels.wait * 1000),
        early=0 if pipeline.labels is None else round(pipeline.labels.early * 1000),
    )
    replay = Replay(pipeline, request, folder, late, LimitedRetry(SCHEMA_TIMEOUT, say))
    if args.anew:
        replay.begin_anew()
    about = folder.read_about()
    if about is not None:
        _refuse_another(about, request, folder.path)
        replay.refuse_changed(about)
    if about is None or not folder.is_done:
        plan, about = replay.prepare()
        _say_start(about, folder, pipeline)
        if not _is_run(replay, plan, about, folder):
            return None
    else:
        replay.refuse_unclear(about)
        say(f"all events were replayed before ({folder.path}): only the comparison is made again")
    telling = Telling(about)
    found = replay.compare(about, telling.reading, args.segment)
    telling.clear()
    return found


def _is_run(replay: Replay, plan: Plan, about: About, folder: ReplayFolder) -> bool:
    """Run the events that are left. Returns False if it was stopped before the last one."""
    telling = Telling(about)
    running = replay.running(plan, about, telling.turn)
    worker = running.worker
    stop_on_signals(lambda _name: worker.stop(), lambda _name: worker.stop_at_once())
    drained = worker.run()
    set_handler(signal.SIG_DFL)  # the comparison can be stopped at once
    signal.signal(signal.SIGINT, signal.default_int_handler)
    telling.end(running.sink)
    if drained and running.source.idle:
        folder.note_done()
        return True
    # With `--to now`, the same command would be another replay.
    say(
        f"stopped. The same command with --to {_time(about.end)} goes on behind the events that are done; with --anew, it "
        "begins anew"
    )
    return False


def _refuse_another(about: About, request: Request, path: Path) -> None:
    """Refuse a folder of another replay, which `--state` may name."""
    theirs = (about.version, about.start, about.end, about.output)
    if theirs != (request.version, request.start, request.end, request.output):
        raise WorkerError(
            f"--state {path}: this folder has another replay (version {about.version}, {_time(about.start)} to "
            f"{_time(about.end)}, output {about.output or 'none'}). Name another folder, or add --anew to delete that one."
        )


def _say_start(about: About, folder: ReplayFolder, pipeline: Pipeline) -> None:
    done = folder.progress()
    so_far = done.answered + done.rejected.total()
    say(
        f"replaying {', '.join(pipeline.input.topics)} from {_time(about.start)} to {_time(about.end)}, at most "
        f"{about.events:,} events, with {about.model} version {about.version}"
        + (f"; predictions go to {about.output}" if about.output else "; nothing is written to Kafka")
    )
    say(f"progress is kept in {folder.path}" + (f": {so_far:,} events are done" if so_far else ""))
    if pipeline.feature_store is not None:
        say("features are looked up as they are now: the feature store doesn't know those of that time")


def _write_report(pipeline: Pipeline, compared: Compared, file: Path) -> None:
    from millstream.consumers.report.of_replay import replay_part  # noqa: PLC0415  (needs SciPy)
    from millstream.consumers.report.page import page, shown  # noqa: PLC0415

    part = replay_part(pipeline, compared)
    write_page(file, page(f"{pipeline.name}: {part.title}", about_page(), [shown(part)]))


def _tell(pipeline: Pipeline, compared: Compared, *, json: bool) -> int:
    """Print the result; returns the exit code that tells the verdict."""
    from millstream.consumers.replay.conclusion import as_json, lines, outcome_of  # noqa: PLC0415  (needs SciPy)

    if json:
        print(as_json(pipeline, compared))
    else:
        console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)
        for part in lines(pipeline, compared):
            console.print(part, soft_wrap=isinstance(part, Text))
    return {"better": 0, "not better": NOT_BETTER}.get(outcome_of(pipeline, compared), UNDECIDED)


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")
