"""The safety net under the stages: an unexpected exception costs the record that raises it, and not the pipeline.

A stage that fails on a batch runs again on parts of it, until the record that raises stands alone. That record becomes a dead
letter with the reason `internal_error`. If a record that was good before fails too, the fault is the worker's: it ends.
"""

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from millstream.consumers.events import Rejection
from millstream.consumers.observability.metrics import INTERNAL_ERRORS, Metrics
from millstream.schemas.failures import failure_of

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_UNPROVEN = 16  # records rejected before the first good one; more than that, and the worker itself is at fault
MAX_FRAMES = 3  # of the traceback, in a dead letter
MAX_MESSAGE = 500  # characters of the exception's text, which may quote the record
MAX_LOGGED = 100  # faults whose traceback is logged, each once: a flood of bad records must not flood the log


def raise_expected(error: Exception) -> None:
    """Raise an error whose class says what to do: wait, reject the record, end the worker. The net is for all others."""
    if failure_of(error) != "unknown":
        raise error


class SafetyNet(Generic[T]):
    """Decides whether an unexpected exception is the record's or the worker's. One thread calls it."""

    def __init__(self, stage: str, metrics: Metrics) -> None:
        """Args:
        stage: decode, infer or encode.
        metrics: where to count.
        """
        self._stage = stage
        self._metrics = metrics
        self._good: T | None = None
        self._unproven = 0
        self._logged: set[str] = set()

    def passed(self, good: Callable[[], T]) -> None:
        """Note that the stage works. `good` gives the stage's input of one good record; the first is kept."""
        if self._good is None:
            self._good = good()

    def note(self, error: Exception) -> None:
        """Log what a batch or a record raised, each fault once."""
        frames = _frames(error)
        if frames not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(frames)
            log.error(
                "unexpected error in the %s stage: the events run again in parts, and one that raises it alone is rejected. More "
                "events with this error are counted in %s and not logged",
                self._stage,
                INTERNAL_ERRORS.name,
                exc_info=error,
            )

    def rejection(self, error: Exception, run: Callable[[T], object]) -> Rejection:
        """Why a record is rejected that raises `error` when the stage runs on it alone. Arguments and errors as of `blame`."""
        self._metrics.count(INTERNAL_ERRORS, 1, self._stage)
        self.blame(error, run)
        return Rejection(
            "internal_error",
            f"a bug in Millstream: the {self._stage} stage raised {_text(error)} ({_frames(error)}). The worker works on good "
            f"events. Please report the bug with this event, and replay it after an update.",
        )

    def blame(self, error: Exception, run: Callable[[T], object]) -> None:
        """Return if the record is at fault that raises `error` alone.

        Args:
            error: what it raised.
            run: runs the stage on the input of a good record.

        Raises:
            Exception: `error`, if the stage fails on the good record too, or on more than 16 records before any good one.
                Or what says that something is away, or that the worker must end.
        """
        if self._good is None:
            self._unproven += 1
            if self._unproven > MAX_UNPROVEN:
                raise error
            return
        try:
            run(self._good)
        except Exception as again:
            raise_expected(again)
            raise error from None


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_MESSAGE]}"


def _frames(error: Exception) -> str:
    frames = traceback.StackSummary.extract(
        traceback.walk_tb(error.__traceback__), limit=-MAX_FRAMES, lookup_lines=False
    )
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}" for frame in reversed(frames))
