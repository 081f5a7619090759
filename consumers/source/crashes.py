"""Finds events that crash the process. The metadata of committed offsets counts the crashes over restarts. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from millstream.consumers.record_types import Partition

ALONE_ATTEMPTS = 2  # one crash is no proof: a worker may be killed for another reason while an event runs alone
# Events of a suspected partition that run together. If a worker ends while they run, the next one runs each of them alone.
MAX_SUSPECT_EVENTS = 16

_PATTERN = re.compile(r"millstream starts=(\d{1,9}) running=(\d{1,9}) alone=(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Attempts:
    """What happened to earlier workers at a committed offset."""

    starts: int = 0  # workers that began there and committed no later offset
    running: int = 0  # events from this offset that the last of these workers was running
    alone: int = 0  # how many of these workers were running the first event alone

    @staticmethod
    def read(metadata: str | None) -> "Attempts":
        """Read the metadata of an offset. Other metadata, or none, means that no worker has begun there."""
        found = _PATTERN.fullmatch(metadata or "")
        return Attempts(*map(int, found.groups())) if found else Attempts()

    def metadata(self) -> str:
        """The metadata to commit with the offset."""
        return f"millstream starts={self.starts} running={self.running} alone={self.alone}"


@dataclass(frozen=True, slots=True)
class _Suspicion:
    found: Attempts  # at the partition's next event
    alone: int  # events from this offset that run one by one
    left: int  # events from this offset that run few at a time


class CrashGuard:
    """Decides how the first events after an assignment run: as usual, few at a time, each alone, or not at all.

    The offset's metadata counts the workers that ended without a later commit. After `limit` of them, the next worker suspects
    the events there. It runs few at a time, notes their number in the metadata before they run, and commits after them. If a
    worker finds such a note, it runs these events one by one. An event that was running alone when `ALONE_ATTEMPTS` workers
    ended is the one that crashes them: it is rejected.
    """

    def __init__(self, limit: int, span: int) -> None:
        """Args:
        limit: how many workers may end at an offset before its events are suspected.
        span: events of a partition that are suspected then.
        """
        self._limit = limit
        self._span = span
        self._suspicions: dict[Partition, _Suspicion] = {}

    def assigned(self, attempts: Mapping[Partition, Attempts]) -> dict[Partition, Attempts]:
        """Take the committed attempts of newly assigned partitions. Returns those to commit, which count this worker too."""
        for partition, found in attempts.items():
            if found.starts >= self._limit or found.running:
                self._suspicions[partition] = _Suspicion(found, found.running, max(self._span, found.running))
        return {partition: replace(found, starts=found.starts + 1) for partition, found in attempts.items()}

    def gone(self, partition: Partition) -> None:
        """Forget a partition that was revoked or lost."""
        self._suspicions.pop(partition, None)

    @property
    def most(self) -> int | None:
        """How many events may run at a time; None: as many as usual."""
        if not self._suspicions:
            return None
        return 1 if any(suspicion.alone for suspicion in self._suspicions.values()) else MAX_SUSPECT_EVENTS

    def refuses(self, partition: Partition) -> bool:
        """Whether the partition's next event is the one that crashes workers."""
        suspicion = self._suspicions.get(partition)
        return suspicion is not None and suspicion.found.alone >= ALONE_ATTEMPTS

    def note(self, partition: Partition, events: int) -> Attempts | None:
        """The attempts to commit before the next `events` events run; None: the partition is not suspected."""
        suspicion = self._suspicions.get(partition)
        if suspicion is None:
            return None
        found = suspicion.found
        return Attempts(max(found.starts, self._limit), events, found.alone + 1 if events == 1 else 0)

    def done(self, partition: Partition, events: int) -> None:
        """Note that the partition's next events have results."""
        suspicion = self._suspicions.pop(partition, None)
        if suspicion is not None and suspicion.left > events:
            alone = max(suspicion.alone - events, 0)
            self._suspicions[partition] = _Suspicion(Attempts(self._limit), alone, suspicion.left - events)
