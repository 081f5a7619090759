"""Warnings of each kind now and then: neither bad records nor a broker that is away may fill the log."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.pipeline.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

LOG_INTERVAL: Final = 60.0  # seconds
MAX_EXAMPLE_LENGTH: Final = 500  # characters of what a record says


class Kind(NamedTuple):
    """What is counted, as a line says it behind its number."""

    one: str  # behind 1: event became a dead letter
    many: str  # behind other numbers: events became dead letters


class SeldomWarnings:
    """Counts what is to be said, and says it at most every `interval` seconds for each kind."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, interval: float = LOG_INTERVAL) -> None:
        self._clock = clock
        self._interval = interval
        self._said: dict[Kind, float] = {}
        self._count: Counter[Kind] = Counter()
        self._examples: dict[Kind, object] = {}  # of the kinds that are counted and not said yet: the last one

    def warn(self, kind: Kind, count: int, example: object) -> None:
        """Say that there are `count` more of this kind, such as `example`. Kinds are few and fixed: they are kept."""
        self._count[kind] += count
        self._examples[kind] = example
        self._say_if_due(kind)

    def catch_up(self) -> None:
        """Say what was counted since the last lines, where the time has come, without waiting for the next warning."""
        for kind in list(self._examples):  # nearly always empty
            self._say_if_due(kind)

    def say_all(self) -> None:
        """Say what was counted since the last lines, at the end."""
        for kind in list(self._examples):
            self._say(kind)

    def _say_if_due(self, kind: Kind) -> None:
        if self._clock() - self._said.get(kind, -self._interval) >= self._interval:
            self._say(kind)

    def _say(self, kind: Kind) -> None:
        self._said[kind] = self._clock()
        example = printable(str(self._examples.pop(kind))[:MAX_EXAMPLE_LENGTH])
        count = self._count.pop(kind)
        log.warning("%d %s, such as: %s", count, kind.one if count == 1 else kind.many, example)
