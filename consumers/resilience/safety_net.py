"""The safety net under the stages: after an unexpected exception, only the record that raises it is rejected.

If a stage raises on a batch, it runs again on parts of the batch, until the record that raises is alone. This record becomes a
dead letter with the reason `internal_error`. If the stage then also raises on a record that was good before, the worker is at
fault, and ends.
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

MAX_UNPROVEN = 16  # records rejected before the first good one; after more, the worker itself is at fault
MAX_FRAMES = 3  # frames of the traceback in a dead letter
MAX_MESSAGE = 500  # characters of the exception's text, which may quote the record
MAX_LOGGED = 100  # different faults whose traceback is logged, each once, so that bad records can't flood the log


def raise_expected(error: Exception) -> None:
    """Raise an expected error: its class says whether to wait, reject the record or end the worker. Ignore other errors."""
    if failure_of(error) != "unknown":
        raise error


class SafetyNet(Generic[T]):
    """Decides whether the record or the worker causes an unexpected exception. One thread calls it."""

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
        """Note that the stage works. `good` returns the stage's input for one good record; the first one is kept."""
        if self._good is None:
            self._good = good()

    def note(self, error: Exception) -> None:
        """Log the error of a batch or a record, each fault once."""
        frames = _frames(error)
        if frames in self._logged or len(self._logged) >= MAX_LOGGED:
            return
        self._logged.add(frames)
        if isinstance(error, MemoryError):
            log.warning(
                "memory is short in the %s stage (%s): the events run again in parts", self._stage, _text(error)
            )
        else:
            log.error(
                "unexpected error in the %s stage: the events run again in parts, and one that raises it alone is rejected. More "
                "events with this error are counted in %s and not logged",
                self._stage,
                INTERNAL_ERRORS.name,
                exc_info=error,
            )

    def rejection(self, error: Exception, run: Callable[[T], object]) -> Rejection:
        """The rejection of a record on which the stage raises `error`, alone. Arguments and errors as for `blame`."""
        self.count()
        self.blame(error, run)
        return self.rejection_of(error)

    def count(self) -> None:
        """Count a record on which the stage failed, alone."""
        self._metrics.count(INTERNAL_ERRORS, 1, self._stage)

    def rejection_of(self, error: Exception) -> Rejection:
        """The rejection of a record that is at fault."""
        if isinstance(error, MemoryError):
            return Rejection(
                "internal_error",
                f"the {self._stage} stage got no memory for this event alone ({_text(error)}), and works on good events. Give "
                f"the worker more memory, and replay the event.",
            )
        return Rejection(
            "internal_error",
            f"a bug in Millstream: the {self._stage} stage raised {_text(error)} ({_frames(error)}). The worker works on good "
            f"events. Please report the bug with this event, and replay it after an update.",
        )

    def proof(self, error: Exception) -> T | None:
        """A record that was good before. If the stage raises on it now, the stage is at fault and not the record.

        Returns:
            the good record; None if there was none yet. Then the record counts as at fault.

        Raises:
            Exception: `error`, on more than 16 records before any good one; at once if memory is short, which may hit any record.
        """
        if self._good is None:
            self._unproven += 1
            if self._unproven > MAX_UNPROVEN or isinstance(error, MemoryError):
                raise error
        return self._good

    def blame(self, error: Exception, run: Callable[[T], object]) -> None:
        """Return if the record is at fault; otherwise raise.

        Args:
            error: raised by the stage on this record alone.
            run: runs the stage on an input.

        Raises:
            Exception: `error`, if the stage raises on the good record too, or as `proof` says. Or an
                expected error of the run: there is an outage, or the worker must end.
        """
        good = self.proof(error)
        if good is None:
            return
        try:
            run(good)
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
