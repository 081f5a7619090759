"""`millstream rollout wait`: waits until a rollout has ended. Its exit codes are for scripts."""

import argparse
import json
import sys
import time
from typing import Final

from millstream.consumers.cli.rollout_words import as_json, change_line
from millstream.consumers.control.errors import CommandRefusedError
from millstream.consumers.control.reader import ControlReader
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.rollout.changes import standing
from millstream.consumers.rollout.record import RolloutRecord
from millstream.pipeline.pipeline import Pipeline

PROMOTED, ROLLED_BACK, CONCLUDED, TIMED_OUT, REPLACED = 0, 4, 5, 6, 7
"""Exit codes. 1 to 3 are those of failures, which `millstream --help` lists."""
CODES: Final = {"promoted": PROMOTED, "rolled_back": ROLLED_BACK, "concluded": CONCLUDED}
READ_INTERVAL: Final = 0.5  # seconds that a read waits for a change


def wait(pipeline: Pipeline, reader: ControlReader, args: argparse.Namespace) -> int:
    """Print each change until the rollout has ended; returns the exit code that says how.

    Raises:
        CommandRefusedError: there is no rollout to wait for.
        ModelConfigError, SourceUnavailable: the version of the command line can't be found.
    """
    version = args.version
    if isinstance(version, str):
        version = PipelineModels(pipeline).wanted(version).version
    if version is None and reader.record is None:
        raise CommandRefusedError("wait: there is no rollout. Start one: millstream rollout start PIPELINE")
    until = None if args.timeout is None else time.monotonic() + args.timeout
    followed, shown, told = "", 0, ""  # the rollout's ID, its newest revision that is printed, the last problem
    while True:
        record = reader.record
        if not followed and record is not None and not _is_of(record, version) and version == standing(record).version:
            return PROMOTED  # by an earlier rollout
        if record is not None and (followed or _is_of(record, version)):
            if followed and record.rollout != followed:
                _show(pipeline, record, args)
                return REPLACED
            followed = record.rollout
            if record.revision != shown:
                shown = record.revision
                _show(pipeline, record, args)
            if record.state in CODES:
                return CODES[record.state]
        if until is not None and time.monotonic() >= until:
            return TIMED_OUT
        left = READ_INTERVAL if until is None else min(READ_INTERVAL, max(0.0, until - time.monotonic()))
        reader.poll(left)
        told = _tell(reader.problem, told)


def _is_of(record: RolloutRecord, version: int | None) -> bool:
    return version is None or version in (variant.version for variant in record.variants[1:])


def _show(pipeline: Pipeline, record: RolloutRecord, args: argparse.Namespace) -> None:
    print(json.dumps(as_json(pipeline, record, "")) if args.json else change_line(record), flush=True)


def _tell(problem: str, told: str) -> str:
    if problem and problem != told:
        print(problem, file=sys.stderr, flush=True)
    return problem
