"""Ends the process when a call into a library never comes back: waiting for it would stop the worker for good."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

log = logging.getLogger(__name__)

LOOK = 1.0  # seconds between two looks


@dataclass(frozen=True, slots=True)
class _Call:
    name: str


def end_process(name: str, seconds: float) -> None:
    """Say why, and end as a crash does: nothing that was not committed counts, and a new worker goes on."""
    log.critical(
        "%s has not come back for %g s and never may. This worker ends; nothing uncommitted counts, and a new worker goes on.",
        name,
        seconds,
    )
    logging.shutdown()
    os._exit(1)


class Watchdog:
    """Watches calls that end by themselves in a shorter time than `patience`. One thread makes them."""

    def __init__(self, patience: float, give_up: Callable[[str, float], object] = end_process) -> None:
        """Args:
        patience: seconds that a call may take.
        give_up: called, in a thread of its own, with the call's name and the patience.
        """
        self._patience = patience
        self._give_up = give_up
        self._call: _Call | None = None
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    @contextmanager
    def watching(self, name: str) -> Iterator[None]:
        """Watch one call."""
        self._call = _Call(name)
        try:
            yield
        finally:
            self._call = None

    def _run(self) -> None:
        seen: _Call | None = None
        looks = 0
        while True:
            time.sleep(LOOK)
            # Looks are counted, not seconds: while the whole process is stopped, no call can come back.
            looks = looks + 1 if self._call is seen else 0
            seen = self._call
            if seen is not None and looks * LOOK >= self._patience:
                self._give_up(seen.name, self._patience)
                return
