"""Finds partitions that end below the group's offsets. An idle worker would notice nothing."""

import time
from collections.abc import Mapping

from millstream.consumers.errors import OffsetsPastEnd
from millstream.consumers.flow.partition_names import ranges_of
from millstream.consumers.observability.health import Health
from millstream.consumers.record_types import Partition

# Seconds for which a partition must end too early. A new leader may tell an earlier end until its followers have answered.
PATIENCE = 10.0
WHAT = "offsets"  # what is away meanwhile, see `Health`
Past = Mapping[Partition, tuple[int, int]]
"""Partitions that end too early -> the offset of the next event to read, and the partition's end."""


class PastEnd:
    """Remembers since when partitions end too early: the worker is not ready meanwhile. Only the main thread calls it."""

    def __init__(self, group: str, health: Health) -> None:
        """Args:
        group: the consumer group, for messages.
        health: gets the partitions that end too early.
        """
        self._group = group
        self._health = health
        self._since: dict[Partition, float] = {}
        self.seen: dict[Partition, tuple[int, int]] = {}
        """Partitions that have ended too early, as in `Past`. New events may have filled the gap since."""

    def note(self, past: Past) -> None:
        """Note the partitions that end too early now.

        Raises:
            OffsetsPastEnd: some have ended too early for `PATIENCE` seconds.
        """
        self.seen |= past
        if past:
            said = f"group {self._group} is at an offset past the end of {ranges_of(past)}"
            self._health.away(WHAT, said, stops_reading=False)
        else:
            self._health.back(WHAT)
        now = time.monotonic()
        self._since = {partition: self._since.get(partition, now) for partition in past}
        refuse_past_end(self._group, {p: past[p] for p, since in self._since.items() if now - since >= PATIENCE})


def refuse_past_end(group: str, past: Past) -> None:
    """Raise OffsetsPastEnd if there are partitions that end too early. `group`: for the message."""
    if not past:
        return
    (topic, number), *others = sorted(past)
    offset, end = past[topic, number]
    also = f". The same holds for {ranges_of(others)}" if others else ""
    raise OffsetsPastEnd(
        f"group {group} is at offset {offset} of {topic}/{number}, but the partition ends at {end}{also}. Somebody has set the "
        f"group's offset too high, the brokers lost records, or the topic was deleted and created anew. New events below "
        f"{offset} would not be predicted, so a worker ends there. Stop all workers, and set the offset: `millstream offsets "
        f"PIPELINE {_partition_options(past)} --to earliest` to predict all that is there, also what was predicted before, such "
        f"as for a new topic; with `--to latest` for only what comes from now on. The command shows what would change, and sets "
        f"it with --execute. For another offset, and for workers of dedicated shadows, `millstream docs "
        f"runbook#offsets-that-a-broker-has-lost` has a script. Then start the workers again."
    )


def _partition_options(past: Past) -> str:
    """What limits `millstream offsets` to these partitions."""
    return " ".join(f"--partition {name}" for name in ranges_of(past).split(", "))
