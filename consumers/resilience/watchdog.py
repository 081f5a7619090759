"""Ends the process when something in it never gets on, such as a call into a library: waiting would stop the worker for good."""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

log = logging.getLogger(__name__)

POLL_INTERVAL = 1.0  # seconds between two looks

T = TypeVar("T")
Subject = tuple[str, float]
GiveUp = Callable[[str, float], object]


def end_process(name: str, seconds: float) -> None:
    """Say why, and end as a crash does: nothing that was not committed counts, and a new worker goes on."""
    log.critical(
        "%s has not come back for %g s and never may. This worker ends; nothing uncommitted counts, and a new worker goes on.",
        name,
        seconds,
    )
    logging.shutdown()
    os._exit(1)


def watch(subject: Callable[[], Subject | None], patience: float, give_up: GiveUp = end_process) -> None:
    """Give up once the subject has been the same for `patience` seconds; from a thread that lasts as long as the process.

    Args:
        subject: a name, and what changes as it gets on; None while there is nothing to watch.
        patience: seconds, of which those don't count for which the whole process is stopped.
        give_up: called once with the name and the patience.
    """

    def look() -> None:
        seen, looks = subject(), 0
        while True:
            time.sleep(POLL_INTERVAL)
            # Looks are counted, not seconds: while the whole process is stopped, nothing can get on.
            before, seen = seen, subject()
            looks = looks + 1 if seen == before else 0
            if seen is not None and looks * POLL_INTERVAL >= patience:
                give_up(seen[0], patience)
                return

    threading.Thread(target=look, name="watchdog", daemon=True).start()


class Watchdog:
    """Watches calls that end by themselves in a shorter time than `patience`. One thread makes them."""

    def __init__(self, patience: float, give_up: GiveUp = end_process) -> None:
        """Args:
        patience: seconds that a call may take.
        give_up: called, in a thread of its own, with the call's name and the patience.
        """
        self._calls = 0
        self._call: Subject | None = None
        watch(lambda: self._call, patience, give_up)

    def watched(self, name: str, call: Callable[[], T]) -> T:
        """The answer of `call`, which is watched under this name."""
        self._calls += 1
        self._call = name, self._calls
        try:
            return call()
        finally:
            self._call = None
