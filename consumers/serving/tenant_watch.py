"""Follows the versions of tenants' models that are loaded."""

import logging
import threading
from collections.abc import Sequence
from typing import cast

from millstream.consumers.serving.combined_serving import CombinedServing
from millstream.consumers.serving.loader import give_memory_back
from millstream.consumers.serving.watch_thread import FREE_INTERVAL
from millstream.inference.combined.tenant_executor import TenantExecutor

log = logging.getLogger(__name__)

LONGEST_WAIT = 5.0  # seconds that a look waits for the batches before it changes over to more versions


class TenantWatch:
    """Loads the wanted versions beside those that answer, and switches over between two batches. One thread calls it.

    So that memory stays bounded, it changes over to a part of the versions at a time, if there are many new ones.
    """

    def __init__(self, serving: CombinedServing, stop: threading.Event) -> None:
        """Args:
        serving: whose executors are `TenantExecutor`s.
        stop: set when the worker ends.
        """
        self._serving = serving
        self._stop = stop
        self._generation = 0
        self._has_before = False  # whether versions of the generation before are loaded

    def begin(self) -> None:
        """See Watched. A tenant's version is looked up when it is loaded."""

    def look(self) -> None:
        """Look up the version of each model that is loaded, and follow it."""
        try:
            while not self._stop.is_set() and not self.unload_free():
                staged = [copy.tenants.stage(stop=self._stop.is_set) for copy in self._copies]
                if not any(staged):
                    return
                self._change_over()
                self._wait_until_free()
        except Exception:
            log.exception("the models of tenants were not followed")

    def unload_free(self) -> bool:
        """See Watched."""
        if self._has_before and not self._serving.has_old:
            for copy in self._copies:
                copy.tenants.forget_before()
            give_memory_back()
            self._has_before = False
        return self._has_before

    @property
    def _copies(self) -> Sequence[TenantExecutor]:
        return cast("Sequence[TenantExecutor]", self._serving.copies)

    def _change_over(self) -> None:
        self._generation += 1
        for copy in self._copies:
            copy.tenants.change_over(self._generation)
        self._has_before = True
        self._serving.switch_copies([copy.at_generation(self._generation) for copy in self._copies])

    def _wait_until_free(self) -> None:
        waits = round(LONGEST_WAIT / FREE_INTERVAL)
        while waits and self.unload_free() and not self._stop.wait(FREE_INTERVAL):
            waits -= 1
