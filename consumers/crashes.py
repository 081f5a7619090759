"""Events that take the process down with them: counted across restarts in the metadata of committed offsets. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from consumers.events import Partition

ALONE_ATTEMPTS = 2  # a worker may be killed for another reason while an event runs alone: once is no proof

_PATTERN = re.compile(r"millstream starts=(\d{1,9}) alone=(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Attempts:
    """What became of earlier workers at a committed offset."""

    starts: int = 0  # workers that began there and committed nothing further
    alone: int = 0  # of those, how many were running its first event by itself

    @staticmethod
    def read(metadata: str | None) -> "Attempts":
        """What an offset's metadata says; metadata of others, or none, says that nobody tried."""
        found = _PATTERN.fullmatch(metadata or "")
        return Attempts(int(found[1]), int(found[2])) if found else Attempts()

    def metadata(self) -> str:
        """What to commit with the offset."""
        return f"millstream starts={self.starts} alone={self.alone}"


class CrashGuard:
    """Says how the first events after an assignment are to be run: as usual, each alone, or not at all.

    Workers that end without a commit leave their count with the offset. After `limit` of them the next one runs events one by
    one, commits after each, and notes before each that it runs; an event that was found so noted `ALONE_ATTEMPTS` times is the
    one that takes workers down.
    """

    def __init__(self, limit: int, span: int) -> None:
        """Args:
        limit: workers that may end at an offset before its events run alone.
        span: events of a partition that run alone then.
        """
        self._limit = limit
        self._span = span
        self._careful: dict[Partition, tuple[Attempts, int]] = {}  # partition -> (attempts, events yet to run alone)

    def assigned(self, attempts: Mapping[Partition, Attempts]) -> dict[Partition, Attempts]:
        """Take the committed attempts of partitions just assigned; returns what to commit in their place."""
        for partition, found in attempts.items():
            if found.starts >= self._limit or found.alone:
                self._careful[partition] = (found, self._span)
        return {partition: replace(found, starts=found.starts + 1) for partition, found in attempts.items()}

    def gone(self, partition: Partition) -> None:
        """Forget a partition that was revoked or lost."""
        self._careful.pop(partition, None)

    @property
    def careful(self) -> bool:
        """Whether events are to run one by one."""
        return bool(self._careful)

    def verdict(self, partition: Partition) -> Literal["run", "alone", "crashed"]:
        """What to do with the partition's next event."""
        found = self._careful.get(partition)
        if found is None:
            return "run"
        return "crashed" if found[0].alone >= ALONE_ATTEMPTS else "alone"

    def note(self, partition: Partition) -> Attempts:
        """What to commit with the offset of an event that is about to run alone."""
        found, _ = self._careful[partition]
        return Attempts(max(found.starts, self._limit), found.alone + 1)

    def done(self, partition: Partition) -> None:
        """The partition's next event has its result, or is refused."""
        found = self._careful.get(partition)
        if found is None:
            return
        if found[1] > 1:
            self._careful[partition] = (Attempts(self._limit), found[1] - 1)
        else:
            del self._careful[partition]
