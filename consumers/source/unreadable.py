"""Reports batches of records that the Kafka client can't decompress. It fetches them forever, and never gets past them."""

import logging
import time
from collections.abc import Iterable

from millstream.consumers.observability.metrics import BLOCKED, Metrics
from millstream.consumers.record_types import Partition

log = logging.getLogger(__name__)

LOG_INTERVAL = 60.0  # seconds between two log lines about one partition


class UnreadableBatches:
    """Names the blocked partitions in the log and in a gauge. Only the main thread calls it."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._blocked: dict[Partition, tuple[int, float, float]] = {}  # offset, blocked since, last logged

    def note(self, partition: Partition, offset: int, error: str) -> None:
        """Note that the client can't read the batch at this offset."""
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
                "damaged. Nothing behind it is predicted until the batch is skipped: "
                "`millstream docs runbook#millstreameventblocked`",
                *(topic, number, offset, error),
            )
        self._blocked[partition] = offset, since, logged
        self._metrics.set(BLOCKED, now - since, "batch", topic, str(number), str(offset))

    def passed(self, partitions: Iterable[Partition]) -> None:
        """Note that these partitions are not blocked any more: records came, or the partitions were revoked."""
        for partition in partitions if self._blocked else ():
            if (blocked := self._blocked.pop(partition, None)) is not None:
                topic, number = partition
                self._metrics.forget(BLOCKED, "batch", topic, str(number), str(blocked[0]))
