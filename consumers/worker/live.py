"""Keeps `/live` at 200 during a step that may take minutes, such as loading a model."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.consumers.observability.health import Health

TURN_EVERY = 1.0  # seconds


@contextmanager
def live(health: Health, at_most: float = math.inf) -> Iterator[None]:
    """Tell the health that the worker is live: a large model may take minutes.

    Args:
        health: is told.
        at_most: after so many seconds it is told no more, as the call probably hangs. By default, the call is bounded by itself.
    """
    done, until = threading.Event(), time.monotonic() + at_most

    def turn() -> None:
        while not done.wait(TURN_EVERY) and time.monotonic() < until:
            health.turn()

    thread = threading.Thread(target=turn, name="start", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
