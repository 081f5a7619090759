"""Says in the log that events become dead letters, and says it loudly if nearly all of a worker's first events do."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from millstream.consumers.events import DecodedBatch, Rejection
from millstream.consumers.observability.seldom import MAX_EXAMPLE_LENGTH, Kind, SeldomWarnings
from millstream.pipeline.printable import printable

log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 60.0  # after the first result, for which a worker looks whether nearly all events are refused
FEWEST_EVENTS: Final = 20  # from which it can tell
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
        self._warnings = SeldomWarnings(clock)
        self._until: float | None = None  # the end of the first seconds
        self._looking = True  # whether nearly all events may yet turn out to be refused
        self._events = 0
        self._reasons: Counter[str] = Counter()
        self._examples: dict[str, str] = {}  # by reason: the first

    def note(self, block: DecodedBatch, dead: Mapping[int, Rejection], events: int) -> None:
        """Note the results of some events. `dead`: by row of the block, why events became dead letters; `events`: all of them."""
        if self._looking:
            self._look(block, dead, events)
        if dead:
            row, why = next(iter(dead.items()))
            self._warnings.warn(DEAD_LETTERS, len(dead), _example(block, row, why))
        else:
            self._warnings.catch_up()

    def _look(self, block: DecodedBatch, dead: Mapping[int, Rejection], events: int) -> None:
        now = self._clock()
        if self._until is None:
            self._until = now + FIRST_SECONDS
        if now >= self._until:
            self._looking = False
            return
        self._events += events
        self._reasons.update(why.reason for why in dead.values())
        for row, why in dead.items():
            self._examples.setdefault(why.reason, _example(block, row, why))
        refused = self._reasons.total()
        if self._events < FEWEST_EVENTS or refused < NEARLY_ALL * self._events:
            return
        self._looking = False
        reason, count = self._reasons.most_common(1)[0]
        log.error(
            "NEARLY ALL EVENTS ARE REFUSED: %d of the first %d became dead letters, %d of them for one reason: %s. If the model, "
            "the schema or the pipeline file is wrong, stop the workers, correct it, and replay the dead letters. List them: "
            "millstream dead-letters list %s. Show one with its event: millstream dead-letters show %s PARTITION@OFFSET",
            refused,
            self._events,
            count,
            printable(self._examples[reason][:MAX_EXAMPLE_LENGTH]),
            self._file,
            self._file,
        )


def _example(block: DecodedBatch, row: int, why: Rejection) -> str:
    topic, partition = block.partition(row)
    return f"{why.reason}: {why.error} (offset {block.offsets[row]} of {topic}/{partition})"
