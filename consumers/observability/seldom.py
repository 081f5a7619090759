"""Warnings of each kind once a minute: neither bad records nor a broker that is away may fill the log."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from millstream.pipeline.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

LOG_INTERVAL: Final = 60.0  # seconds
MAX_EXAMPLE_LENGTH: Final = 500  # characters of what a record says


class SeldomWarnings:
    """Counts what is to be said, and says it at most every `LOG_INTERVAL` seconds for each kind."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: dict[str, float] = {}
        self._count: Counter[str] = Counter()

    def warn(self, kind: str, count: int, example: object) -> None:
        """Say that there are `count` more of this kind, such as `example`. Kinds are few and fixed: they are kept."""
        self._count[kind] += count
        now = self._clock()
        if now - self._said.get(kind, -LOG_INTERVAL) < LOG_INTERVAL:
            return
        self._said[kind] = now
        log.warning("%d %s, such as: %s", self._count.pop(kind), kind, printable(str(example)[:MAX_EXAMPLE_LENGTH]))
