"""Batches that the client can't inflate: it asks for them again and again, and the partition stands still behind them."""

import logging
import time
from collections.abc import Iterable

from millstream.consumers.observability.metrics import BLOCKED, Metrics
from millstream.consumers.record_types import Partition

log = logging.getLogger(__name__)

LOG_INTERVAL = 60.0  # seconds between two lines of the log about one partition


class UnreadableBatches:
    """Names the partitions that stand still, in the log and in a gauge, for as long as they do. The polling thread calls it."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._blocked: dict[Partition, tuple[int, float, float]] = {}  # offset, since when, when it was logged

    def note(self, partition: Partition, offset: int, error: str) -> None:
        """The client can't read on at this offset."""
        topic, number = partition
        now = time.monotonic()
        at, since, logged = self._blocked.get(partition, (offset, now, now - LOG_INTERVAL))
        if at != offset:
            self.passed([partition])
            since = now
        if now - logged >= LOG_INTERVAL:
            logged = now
            log.error(
                "%s/%d stands still at offset %d: the batch there can't be read (%s). It may inflate to more than 100 MB, or be "
                "damaged. Nothing behind it is predicted until the batch is skipped: docs/runbook.md#millstreameventblocked",
                *(topic, number, offset, error),
            )
        self._blocked[partition] = offset, since, logged
        self._metrics.set(BLOCKED, now - since, "batch", topic, str(number), str(offset))

    def passed(self, partitions: Iterable[Partition]) -> None:
        """Records of these partitions came, or the partitions went."""
        for partition in partitions if self._blocked else ():
            if (blocked := self._blocked.pop(partition, None)) is not None:
                topic, number = partition
                self._metrics.forget(BLOCKED, "batch", topic, str(number), str(blocked[0]))
