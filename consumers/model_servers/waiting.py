"""Waits for child processes, but not longer than the user wants to."""

import threading
import time
from collections.abc import Callable

from millstream.consumers.model_servers.errors import StopRequested

_INTERVAL = 0.05  # seconds between two looks


def wait_for(condition: Callable[[], bool], timeout: float, stop: threading.Event | None) -> bool:
    """Wait until `condition` is true; returns False if it isn't within `timeout` seconds.

    Raises:
        StopRequested: `stop` was set.
    """
    stop = stop or threading.Event()
    until = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > until:
            return False
        if stop.wait(_INTERVAL):
            raise StopRequested
    return True
