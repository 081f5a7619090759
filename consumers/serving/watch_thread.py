"""The thread that looks at the model repository, and follows what it wants."""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from millstream.consumers.serving.loader import lower_priority

log = logging.getLogger(__name__)

FREE_INTERVAL = 0.02  # seconds between two looks at whether an old version is free


class Watched(Protocol):
    """What is followed, see `ModelWatch`."""

    def begin(self) -> None:
        """Called once, before the first wait."""

    def look(self) -> None:
        """Look at the repository once, and follow it."""

    def unload_free(self) -> bool:
        """Unload what was replaced and has no batch in flight any more. Returns whether there is more to wait for."""
        ...


def follow(
    watched: Sequence[Watched],
    interval: float,
    stop: threading.Event,
    *,
    nice: bool = False,
    wait_for: Callable[[float, float], float] = random.uniform,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Look at the repository until `stop` is set.

    From the end of a look to the beginning of the next one it takes `interval` at most. So what the repository wants is seen
    within `interval`, or, if versions are loaded just then, within `interval` after that.

    Args:
        watched: one after the other, at each look.
        interval: seconds.
        stop: set when the worker ends.
        nice: whether loading may have a lower priority.
        wait_for: chooses the wait between two bounds: jitter, so that the workers don't load at the same moment.
        clock: seconds.
    """
    if nice:
        lower_priority()
    for each in watched:
        each.begin()
    while not _ends(watched, wait_for(interval / 2, interval), stop, clock):
        for each in watched:
            if stop.is_set():
                return
            each.look()


def _ends(watched: Sequence[Watched], wait: float, stop: threading.Event, clock: Callable[[], float]) -> bool:
    """Wait. Meanwhile, unload what was replaced as soon as its last batch has left. Returns whether `stop` is set."""
    until = clock() + wait
    waiting = [each for each in watched if each.unload_free()]
    while (left := until - clock()) > 0:
        if stop.wait(min(left, FREE_INTERVAL) if waiting else left):
            return True
        waiting = [each for each in waiting if each.unload_free()]
    return stop.is_set()
