"""Events that take the process down with them: counted across restarts in the metadata of committed offsets. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from millstream.consumers.record_types import Partition

ALONE_ATTEMPTS = 2  # a worker may be killed for another reason while an event runs alone: once is no proof
# Events that run together in a partition under suspicion: each of them runs alone once a worker ended with them.
MAX_SUSPECT_EVENTS = 16

_PATTERN = re.compile(r"millstream starts=(\d{1,9}) running=(\d{1,9}) alone=(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Attempts:
    """What became of earlier workers at a committed offset."""

    starts: int = 0  # workers that began there and committed nothing further
    running: int = 0  # events from there on that the last of them had said it was running
    alone: int = 0  # how many of them were running the first event by itself

    @staticmethod
    def read(metadata: str | None) -> "Attempts":
        """What an offset's metadata says; metadata of others, or none, says that nobody tried."""
        found = _PATTERN.fullmatch(metadata or "")
        return Attempts(*map(int, found.groups())) if found else Attempts()

    def metadata(self) -> str:
        """What to commit with the offset."""
        return f"millstream starts={self.starts} running={self.running} alone={self.alone}"


@dataclass(frozen=True, slots=True)
class _Suspicion:
    found: Attempts  # at the partition's next event
    alone: int  # events from there on that run one by one
    left: int  # events from there on that run few at a time


class CrashGuard:
    """Says how the first events after an assignment are to be run: as usual, few at a time, each alone, or not at all.

    Workers that end without a commit leave their count with the offset. After `limit` of them the next one runs few events at a
    time, commits after them, and notes before them which these are; those that were found so noted run one by one. An event that
    was found running alone `ALONE_ATTEMPTS` times is the one that takes workers down.
    """

    def __init__(self, limit: int, span: int) -> None:
        """Args:
        limit: workers that may end at an offset before its events run few at a time.
        span: events of a partition that run so then.
        """
        self._limit = limit
        self._span = span
        self._suspicions: dict[Partition, _Suspicion] = {}

    def assigned(self, attempts: Mapping[Partition, Attempts]) -> dict[Partition, Attempts]:
        """Take the committed attempts of partitions just assigned; returns what to commit in their place."""
        for partition, found in attempts.items():
            if found.starts >= self._limit or found.running:
                self._suspicions[partition] = _Suspicion(found, found.running, max(self._span, found.running))
        return {partition: replace(found, starts=found.starts + 1) for partition, found in attempts.items()}

    def gone(self, partition: Partition) -> None:
        """Forget a partition that was revoked or lost."""
        self._suspicions.pop(partition, None)

    @property
    def most(self) -> int | None:
        """Events that may run at a time; None: as many as usual."""
        if not self._suspicions:
            return None
        return 1 if any(suspicion.alone for suspicion in self._suspicions.values()) else MAX_SUSPECT_EVENTS

    def refuses(self, partition: Partition) -> bool:
        """Whether the partition's next event is the one that takes workers down."""
        suspicion = self._suspicions.get(partition)
        return suspicion is not None and suspicion.found.alone >= ALONE_ATTEMPTS

    def note(self, partition: Partition, events: int) -> Attempts | None:
        """What to commit with the offset of the next `events` events, which are about to run; None: nothing."""
        suspicion = self._suspicions.get(partition)
        if suspicion is None:
            return None
        found = suspicion.found
        return Attempts(max(found.starts, self._limit), events, found.alone + 1 if events == 1 else 0)

    def done(self, partition: Partition, events: int) -> None:
        """The partition's next events have their results, or are refused."""
        suspicion = self._suspicions.pop(partition, None)
        if suspicion is not None and suspicion.left > events:
            alone = max(suspicion.alone - events, 0)
            self._suspicions[partition] = _Suspicion(Attempts(self._limit), alone, suspicion.left - events)
