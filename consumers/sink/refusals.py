"""Says in the log that events become dead letters, and says it loudly once nearly all events do."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from millstream.consumers.events import DecodedBatch, Rejection
from millstream.consumers.observability.seldom import MAX_EXAMPLE_LENGTH, Kind, SeldomWarnings
from millstream.pipeline.printable import printable

log = logging.getLogger(__name__)

WARNING_INTERVAL: Final = 10.0  # seconds between two warnings while events become dead letters
ERROR_INTERVAL: Final = 60.0  # seconds between two errors at least, if nearly all events are refused again and again
FEWEST_EVENTS: Final = 20  # in a row, from which the worker can tell whether nearly all events are refused
NEARLY_ALL: Final = 0.9  # of the events
DEAD_LETTERS: Final = Kind("event became a dead letter", "events became dead letters")


class Refusals:
    """Counts the dead letters of a worker for its log. One thread calls it."""

    def __init__(self, file: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        file: the pipeline file for the commands in messages, quoted for a shell.
        clock: seconds.
        """
        self._file = file
        self._clock = clock
        self._warnings = SeldomWarnings(clock, WARNING_INTERVAL)
        self._said = -ERROR_INTERVAL  # when the error was last logged
        self._is_said = False  # whether it was logged for the events that are refused now
        self._others = 0  # events since nearly all of the newest were refused
        # The newest events, as long as nearly all of them were refused.
        self._events = 0
        self._reasons: Counter[str] = Counter()
        self._examples: dict[str, str] = {}  # by reason: the first

    def note(
        self,
        block: DecodedBatch,
        dead: Mapping[int, Rejection],
        others: npt.NDArray[np.int64],
        apart: Container[int] = (),
    ) -> None:
        """Note the results of some events.

        Args:
            block: of their records.
            dead: why events became dead letters, by row of the block.
            others: rows of the other events.
            apart: rows of dead letters that don't count for whether nearly all events are refused.
        """
        if dead:
            row, why = next(iter(dead.items()))
            self._warnings.warn(DEAD_LETTERS, len(dead), _example(block, row, why))
        else:
            self.catch_up()
        dead = {row: why for row, why in dead.items() if row not in apart} if apart else dead
        events = len(dead) + len(others)
        if self._reasons.total() + len(dead) < NEARLY_ALL * (self._events + events):
            # A backlog is read in a few large blocks. If only its end is refused, no block after it shows that.
            newest = _newest_refused(block, dead, others)
            self._others += self._events + events - len(newest)
            if self._others >= FEWEST_EVENTS:
                self._is_said = False
            self._forget()
            dead, events = {row: dead[row] for row in newest if row in dead}, len(newest)
        self._events += events
        self._reasons.update(why.reason for why in dead.values())
        for row, why in dead.items():
            if why.reason not in self._examples:
                self._examples[why.reason] = _example(block, row, why)
        if self._events >= FEWEST_EVENTS:
            self._others = 0
            if not self._is_said and self._clock() - self._said >= ERROR_INTERVAL:
                self._say()
            self._forget()

    def catch_up(self) -> None:
        """Log the dead letters since the last warning, if the time for the next one has come."""
        self._warnings.catch_up()

    def _forget(self) -> None:
        self._events = 0
        self._reasons.clear()
        self._examples.clear()

    def _say(self) -> None:
        self._is_said, self._said = True, self._clock()
        reason, count = self._reasons.most_common(1)[0]
        log.error(
            "NEARLY ALL EVENTS ARE REJECTED: %d of the last %d became dead letters, %d of them for one reason: %s. If the model, "
            "the schema or the pipeline file is wrong, or a producer changed its events, stop the workers, correct it, and "
            "replay the dead letters. List them: millstream dead-letters list %s. Show one with its event: "
            "millstream dead-letters show %s PARTITION@OFFSET",
            self._reasons.total(),
            self._events,
            count,
            printable(self._examples[reason][:MAX_EXAMPLE_LENGTH]),
            self._file,
            self._file,
        )


def _newest_refused(block: DecodedBatch, dead: Mapping[int, Rejection], others: npt.NDArray[np.int64]) -> list[int]:
    """As many of the newest rows as possible of which nearly all are dead.

    By their time, because the rows of several partitions come one partition after the other.
    """
    if not dead:
        return []
    rows = np.sort(np.concatenate([np.fromiter(dead, np.int64, len(dead)), others]))
    newest_first = rows[np.argsort(block.timestamps[rows], kind="stable")][::-1]
    refused = np.cumsum(~np.isin(newest_first, others))
    enough = np.flatnonzero(refused >= NEARLY_ALL * np.arange(1, len(rows) + 1))
    return newest_first[: enough[-1] + 1][::-1].tolist() if len(enough) else []


def _example(block: DecodedBatch, row: int, why: Rejection) -> str:
    topic, partition = block.partition(row)
    return f"{why.reason}: {why.error} (offset {block.offsets[row]} of {topic}/{partition})"
