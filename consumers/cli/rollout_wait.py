"""`millstream rollout wait`: waits until a rollout has ended. Its exit codes are for scripts."""

import argparse
import json
import sys
import time
from typing import Final

from millstream.consumers.cli.rollout_words import DELETED, as_json, change_line
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
    waiting, told = _Waiting(pipeline, version, as_json=args.json), ""
    code = waiting.code_at_begin(reader.record)
    while code is None:
        if until is not None and time.monotonic() >= until:
            print(f"the rollout is still on its way after {args.timeout:g} s (--timeout)", file=sys.stderr, flush=True)
            return TIMED_OUT
        left = READ_INTERVAL if until is None else min(READ_INTERVAL, max(0.0, until - time.monotonic()))
        changes = [seen.record for seen in reader.poll(left) if seen.counts]
        told = _tell(reader.problem, told)
        # The first change that ends the rollout decides: those behind it are of another one.
        code = next((found for found in map(waiting.code_after, changes) if found is not None), None)
    return code


class _Waiting:
    """The rollout that is waited for, change by change."""

    def __init__(self, pipeline: Pipeline, version: int | None, *, as_json: bool) -> None:
        """Args:
        pipeline: with a rollout.
        version: the candidate; None: any.
        as_json: whether changes are printed as JSON.
        """
        self._pipeline = pipeline
        self._version = version
        self._as_json = as_json
        self._followed = ""  # the rollout's ID

    def code_at_begin(self, record: RolloutRecord | None) -> int | None:
        """As `code_after`, for the record that is there already: it is printed only if it ends the rollout.

        `start` has printed the one that begins it.
        """
        if record is not None and self._is_wanted(record) and record.state not in CODES:
            self._followed = record.rollout
            return None
        return self.code_after(record)

    def code_after(self, record: RolloutRecord | None) -> int | None:
        """Print a change that is of the rollout, or ends it; returns the exit code if it does. None: there is no record."""
        if not self._followed and (record is None or not self._is_wanted(record)):
            was_promoted = record is not None and standing(record).version == self._version
            return PROMOTED if was_promoted else None
        self._show(record)
        if record is None or self._followed not in ("", record.rollout):
            return REPLACED
        self._followed = record.rollout
        return CODES.get(record.state)

    def _is_wanted(self, record: RolloutRecord) -> bool:
        return self._version is None or self._version in (variant.version for variant in record.variants[1:])

    def _show(self, record: RolloutRecord | None) -> None:
        if self._as_json:
            print(json.dumps(as_json(self._pipeline, record, "")), flush=True)
        else:
            print(DELETED if record is None else change_line(record), flush=True)


def _tell(problem: str, told: str) -> str:
    if problem and problem != told:
        print(problem, file=sys.stderr, flush=True)
    return problem
