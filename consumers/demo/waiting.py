"""Waits until running commands have reached a state."""

import threading
import time
from collections.abc import Callable

from millstream.consumers.errors import WorkerError


def wait_until(condition: Callable[[], bool], timeout: float, what: str, stop: threading.Event) -> None:
    """Wait until `condition` is true, at most `timeout` seconds. `what` names the condition in the error.

    Raises:
        WorkerError: the condition was not true in time.
        KeyboardInterrupt: `stop` was set.
    """
    until = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > until:
            raise WorkerError(f"waited {timeout:g} s in vain for {what}")
        if stop.wait(0.1):
            raise KeyboardInterrupt
