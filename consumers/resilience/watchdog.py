"""Ends the process if something in it hangs, such as a call into a library. Otherwise the worker would wait forever."""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

log = logging.getLogger(__name__)

POLL_INTERVAL = 1.0  # seconds between two looks

T = TypeVar("T")
Subject = tuple[object, float]
"""What is watched, as `str` names it, and a number that changes with progress."""
GiveUp = Callable[[str, float], object]


WORKER_ENDS = "This worker ends; nothing uncommitted counts, and a new worker goes on."


def end_process(name: str, seconds: float, ends: str = WORKER_ENDS) -> None:
    """Log the reason and end the process like a crash. `ends` says what follows."""
    log.critical("%s has not come back for %g s and never may. %s", name, seconds, ends)
    logging.shutdown()
    os._exit(1)


def watch(subject: Callable[[], Subject | None], patience: float, give_up: GiveUp = end_process) -> None:
    """Call `give_up` once the subject hasn't changed for `patience` seconds. A thread observes it as long as the process lives.

    Args:
        subject: returns what is watched; None while there is nothing to watch.
        patience: seconds, not counting time in which the whole process is stopped.
        give_up: called once with the name and the patience.
    """

    def look() -> None:
        seen, looks = subject(), 0
        while True:
            time.sleep(POLL_INTERVAL)
            # It counts looks instead of seconds, because nothing makes progress while the whole process is stopped.
            before, seen = seen, subject()
            # Only the numbers are compared: a name may be an object that can't be compared.
            stands = seen is not None and before is not None and seen[1] == before[1]
            looks = looks + 1 if stands else 0
            if seen is not None and looks * POLL_INTERVAL >= patience:
                give_up(str(seen[0]), patience)
                return

    threading.Thread(target=look, name="watchdog", daemon=True).start()


class Watchdog:
    """Watches calls that should take less than `patience` seconds. One thread makes them."""

    def __init__(
        self, patience: float, give_up: GiveUp = end_process, may_wait: Callable[[], bool] = lambda: False
    ) -> None:
        """Args:
        patience: seconds that a call may take.
        give_up: called, in a thread of its own, with the call's name and the patience.
        may_wait: whether what the calls need is known to be away. The patience begins anew once it is back.
        """
        self._calls = 0
        self._call: Subject | None = None
        watch(lambda: None if may_wait() else self._call, patience, give_up)

    def watched(self, name: object, call: Callable[[], T]) -> T:
        """Return what `call` returns, and watch it under this name: what `str` returns if the call hangs."""
        self._calls += 1
        self._call = name, self._calls
        try:
            return call()
        finally:
            self._call = None
