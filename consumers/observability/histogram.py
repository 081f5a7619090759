"""A Prometheus histogram that takes many values per call. The client library's own takes a microsecond for each value."""

import threading
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

MAX_BUFFERED_VALUES = 256  # single values that are kept before they are counted


class Series:
    """The values with one set of labels. Any thread may add values."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.array(bounds)
        self._counts = np.zeros(len(bounds) + 1, np.int64)
        self._sum = 0.0
        self._kept: list[float] = []  # values that are not counted yet
        self._counting = threading.Lock()

    def observe(self, value: float) -> None:
        """Add a value. It is counted later, together with others, but `read` includes it at once."""
        self._kept.append(value)
        if len(self._kept) >= MAX_BUFFERED_VALUES:
            self._count_kept()

    def observe_many(self, values: npt.NDArray[np.float64]) -> None:
        """Add all values."""
        with self._counting:
            self._count(values)

    def read(self) -> tuple[npt.NDArray[np.int64], float]:
        """The number of values up to each bound, the last one being the number of all values; and their sum."""
        self._count_kept()
        with self._counting:
            return self._counts.cumsum(), self._sum

    def _count_kept(self) -> None:
        with self._counting:
            # Other threads may append meanwhile.
            values = self._kept[:]
            del self._kept[: len(values)]
            self._count(np.array(values, np.float64))

    def _count(self, values: npt.NDArray[np.float64]) -> None:
        buckets = np.searchsorted(self._bounds, values, side="left")
        self._counts += np.bincount(buckets, minlength=len(self._counts))
        self._sum += float(values.sum())


class Histogram(Collector):
    """A histogram, with a series for each set of labels."""

    def __init__(self, name: str, about: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        """Args:
        name: of the metric.
        about: its help text.
        labels: the names of the labels.
        bounds: upper bounds of the buckets, ascending.
        """
        self._name = name
        self._about = about
        self._labels = labels
        self._bounds = bounds
        self._series: dict[tuple[str, ...], Series] = {}

    def labels(self, *labels: str) -> Series:
        """The series with these label values. The first call creates it. Any thread may call."""
        return self._series.setdefault(labels, Series(self._bounds))

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """See `prometheus_client.registry.Collector`."""
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for labels, series in list(self._series.items()):
            counts, total = series.read()
            family.add_metric(labels, list(zip(bounds, counts.tolist(), strict=True)), total)
        return [family]
