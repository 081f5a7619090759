"""Waiting for what running commands do."""

import threading
import time
from collections.abc import Callable

from millstream.consumers.errors import WorkerError


def wait_until(condition: Callable[[], bool], timeout: float, what: str, stop: threading.Event) -> None:
    """Wait for something that a running command does, `timeout` seconds at most.

    Raises:
        WorkerError: it was not so in time.
        KeyboardInterrupt: `stop` was set.
    """
    until = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > until:
            raise WorkerError(f"waited {timeout:g} s for {what}")
        if stop.wait(0.1):
            raise KeyboardInterrupt
