"""Decides which model version answers a micro-batch, and notes which versions still have batches in flight. Pure."""

import threading
from typing import Generic, TypeVar

V = TypeVar("V")


class VersionSwitch(Generic[V]):
    """The version that answers the next batch, and the number of batches that each version has to answer.

    A batch's version is fixed when it is submitted. So the switch to another version is between two batches in the order of
    submission, whichever of them ends first. Any thread may call it.
    """

    def __init__(self, first: V) -> None:
        """`first` answers the batches until `switch_to`."""
        self._lock = threading.Lock()
        self._current = first
        self._in_flight: dict[V, int] = {}  # version -> its batches, at least one

    @property
    def current(self) -> V:
        """The version that answers the next batch."""
        return self._current

    def take(self) -> V:
        """The version that answers a batch which is submitted now. Call `release` when the batch has its result."""
        with self._lock:
            version = self._current
            self._in_flight[version] = self._in_flight.get(version, 0) + 1
        return version

    def release(self, version: V) -> None:
        """Note that a batch of this version has its result, or never gets one."""
        with self._lock:
            left = self._in_flight[version] - 1
            if left:
                self._in_flight[version] = left
            else:
                del self._in_flight[version]

    def switch_to(self, version: V) -> None:
        """Let this version answer the batches that are submitted from now on."""
        with self._lock:
            self._current = version

    def in_use(self) -> list[V]:
        """The version that answers the next batch, and the others that have batches in flight."""
        with self._lock:
            return [self._current, *(version for version in self._in_flight if version is not self._current)]
