"""Reports how far the comparison job is behind, as a metric and in the log."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from millstream.consumers.comparison import metrics as m
from millstream.consumers.comparison.pace import Pace

if TYPE_CHECKING:
    from millstream.consumers.comparison.transport import FoldingApp
    from millstream.pipeline.pipeline import Pipeline

log = logging.getLogger(__name__)


class FallingBehind:
    """Measures the lag from time to time, and warns once when the job falls behind."""

    def __init__(self, pipeline: Pipeline, faust: FoldingApp, metrics: m.ComparisonMetrics) -> None:
        self._pipeline = pipeline
        self._faust = faust
        self._metrics = metrics
        self._topics = {pipeline.comparison.topic, *([] if pipeline.labels is None else [pipeline.labels.topic])}
        self._pace = Pace()
        self._behind = False

    def look(self, compared: int) -> None:
        """Measure the lag. `compared` is the number of comparisons read so far."""
        consumer: Any = self._faust.consumer
        behind = 0
        for place in consumer.assignment():
            if place.topic not in self._topics:
                continue
            end, read = consumer.highwater(place), consumer._committed_offset[place]
            if end is not None and read is not None:
                self._metrics.set(m.LAG, max(end - read, 0), place.topic, str(place.partition))
                behind += max(end - read, 0) if place.topic == self._pipeline.comparison.topic else 0
        share = self._pace.look(time.monotonic(), compared, behind)
        self._metrics.set(m.FITTING_SHARE, 1 if share is None else share)
        if share is not None and not self._behind:
            shares = ", ".join(f"{shadow.name} {shadow.sample_rate * share:.2g}" for shadow in self._pipeline.shadows)
            log.warning(
                "the comparison job falls behind: %d comparisons are waiting. Start another process, or lower `sample_rate`. "
                "With these values, this process would keep up: %s",
                behind,
                shares,
            )
        self._behind = share is not None
