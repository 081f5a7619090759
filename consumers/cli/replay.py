"""`millstream replay`: runs a model version over past events, and compares it with what was predicted and with the labels."""

import argparse
import gc
import shutil
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.text import Text

from millstream.consumers.cli.cache_folder import cache_folder
from millstream.consumers.cli.compare import NOT_BETTER, PIPED_WIDTH, UNDECIDED
from millstream.consumers.cli.given import read_pipeline, refuse_several
from millstream.consumers.cli.log_lines import log_to_stderr
from millstream.consumers.cli.work import COLLECT_AFTER, OWN_LOGGERS, keep_freed_memory
from millstream.consumers.errors import WorkerError
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.replay.folder import About, ReplayFolder
from millstream.consumers.replay.replayed import Request, name_of
from millstream.consumers.replay.row_sink import RowSink
from millstream.consumers.replay.run import Compared, Late, Replay
from millstream.consumers.resilience.limited_retry import LimitedRetry
from millstream.consumers.resilience.signals import stop_on_signals
from millstream.consumers.worker.plan import Plan
from millstream.pipeline.pipeline import Pipeline

SCHEMA_TIMEOUT = 60.0  # seconds that the schema registry may be away
TELL_EVERY = {True: 0.5, False: 10.0}  # seconds between two lines about the progress: on a terminal, and elsewhere
FOLDER = "replays"
"""In the user's cache folder: holds a folder for each replay."""


def run(args: argparse.Namespace) -> int:
    """Replay and compare. Returns 0 if the version is better, else as `compare --show`; 1 if it was stopped."""
    log_to_stderr(args.log_level, OWN_LOGGERS)
    gc.set_threshold(COLLECT_AFTER)
    keep_freed_memory()
    _require_scipy()
    pipeline = read_pipeline(args)
    refuse_several(pipeline, "replay")
    request = _request(pipeline, args)
    folder = ReplayFolder(args.state or cache_folder(None) / FOLDER / name_of(pipeline, request))
    with folder.locked():
        if args.anew:
            folder.clear()
        compared = _compared(pipeline, request, folder, args)
    return 1 if compared is None else _tell(pipeline, compared, json=args.json)


def _require_scipy() -> None:
    """Refuse to begin if the figures could not be computed at the end."""
    try:
        import scipy  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise WorkerError(
            f"`millstream replay` needs the package {error.name}, which is not installed. "
            f"Install Millstream's extra `comparison`: {sys.executable} -m pip install 'millstream[comparison]'"
        ) from None


def _request(pipeline: Pipeline, args: argparse.Namespace) -> Request:
    if args.start >= args.end:
        args.parser.error(f"--from {_time(args.start)} --to {_time(args.end)}: expected the earlier time first.")
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
    replay = Replay(pipeline, request, folder, late, LimitedRetry(SCHEMA_TIMEOUT, _say))
    about = folder.read_about()
    if about is not None:
        _refuse_another(about, request, folder.path)
    if about is None or not folder.is_done:
        plan, about = replay.prepare()
        _say_start(about, folder, pipeline)
        if not _is_run(replay, plan, about, folder):
            return None
    else:
        _say(f"all events were replayed before ({folder.path}): only the comparison is made again")
    telling = _Telling(about)
    found = replay.compare(about, telling.reading)
    telling.clear()
    return found


def _is_run(replay: Replay, plan: Plan, about: About, folder: ReplayFolder) -> bool:
    """Run the events that are left. Returns False if it was stopped before the last one."""
    telling = _Telling(about)
    running = replay.running(plan, about, telling.turn)
    worker = running.worker
    stop_on_signals(lambda _name: worker.stop(), lambda _name: worker.stop_at_once())
    drained = worker.run()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the comparison can be stopped at once
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    telling.end(running.sink)
    if drained and running.source.idle:
        folder.note_done()
        return True
    _say("stopped. The same command goes on behind the events that are done; with --anew, it begins anew")
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
    _say(
        f"replaying {', '.join(pipeline.input.topics)} from {_time(about.start)} to {_time(about.end)}, at most {about.events:,} "
        f"events, with {about.model} version {about.version}"
        + (f"; predictions go to {about.output}" if about.output else "; nothing is written to Kafka")
    )
    _say(f"progress is kept in {folder.path}" + (f": {so_far:,} events are done" if so_far else ""))
    if pipeline.feature_store is not None:
        _say("features are looked up as they are now: the feature store doesn't know those of that time")


class _Telling:
    """Tells the progress: one line that changes on a terminal, else a line now and then."""

    def __init__(self, about: About) -> None:
        self._about = about
        self._terminal = sys.stderr.isatty()
        self._began = self._told = time.monotonic()

    def turn(self, read: int, sink: RowSink) -> None:
        """Tell how far the replay is, if it is time to."""
        self._tell(lambda: self._line(read, sink))

    def reading(self, what: str, read: int) -> None:
        """Tell how many records of a topic are read."""
        self._tell(lambda: f"comparing: {read:,} {what} read")

    def end(self, sink: RowSink) -> None:
        """Tell the end of the events."""
        self.clear()
        done, seconds = sink.stored, time.monotonic() - self._began
        rejected = f", {done.rejected.total():,} without an answer" if done.rejected else ""
        _say(f"{done.answered:,} events answered{rejected}; this took {seconds:.1f} s")

    def clear(self) -> None:
        """Take the line back."""
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _tell(self, line: Callable[[], str]) -> None:
        now = time.monotonic()
        if now - self._told < TELL_EVERY[self._terminal]:
            return
        self._told = now
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\033[K{line()[:width]}", end="", file=sys.stderr, flush=True)
        else:
            _say(line())

    def _line(self, read: int, sink: RowSink) -> str:
        before = sum(sink.begun.offsets.get(place, start) - start for place, (start, _) in self._about.ranges.items())
        rate = read / max(time.monotonic() - self._began, 1e-9)
        left = max(self._about.events - before - read, 0)
        rejected = f", {sink.stored.rejected.total():,} without an answer" if sink.stored.rejected else ""
        return (
            f"{before + read:,} of at most {self._about.events:,} events, {rate:,.0f} events/s, about "
            f"{left / max(rate, 1e-9):,.0f} s left{rejected}"
        )


def _tell(pipeline: Pipeline, compared: Compared, *, json: bool) -> int:
    """Print the result; returns the exit code that tells the verdict."""
    from millstream.consumers.replay.conclusion import as_json, outcome_of, shown  # noqa: PLC0415  (needs SciPy)

    if json:
        print(as_json(pipeline, compared))
    else:
        console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, highlight=False)
        for part in shown(pipeline, compared):
            console.print(part, soft_wrap=isinstance(part, Text))
    return {"better": 0, "not better": NOT_BETTER}.get(outcome_of(pipeline, compared), UNDECIDED)


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
