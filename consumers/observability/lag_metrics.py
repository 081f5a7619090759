"""Exports a group's lag and its trend to Prometheus."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from millstream.pipeline.pipeline import Pipeline
from millstream.topics.errors import BrokerUnreachableError, TopicsError
from millstream.topics.lag import LagReader, PartitionLag, Place
from millstream.topics.lag_trend import LagTrend, Trend, drain_seconds

# Intervals after which a measured lag is too old to be exported: dashboards then show a gap instead.
MAX_AGE_INTERVALS = 3.0


@dataclass(frozen=True, slots=True)
class LagLook:
    """The lag at one moment, and its trend."""

    at: float  # seconds on the monotonic clock
    lags: Sequence[PartitionLag]
    trends: dict[Place, Trend]  # of the partitions whose trend is known
    total: Trend | None

    @property
    def messages(self) -> int:
        """The lag of all partitions together."""
        return sum(lag.messages for lag in self.lags)

    @property
    def seconds(self) -> float | None:
        """The greatest known age of an unprocessed event, so the least that the oldest one has. None: no age is known.

        For alerts: one partition that can't be read must not hide the others. People are shown `oldest_age`.
        """
        return max((lag.seconds for lag in self.lags if lag.seconds is not None), default=None)

    @property
    def drain(self) -> float | None:
        """Seconds until the lag is gone at the present trend; None: not known, infinite: never."""
        return drain_seconds(self.messages, self.total)


class LagFollower(LagTrend):
    """Adds the trend to measured lags."""

    def look(self, at: float, lags: Sequence[PartitionLag]) -> LagLook:
        """Take the lags that were measured at second `at`."""
        self.add(at, lags)
        places = [(lag.topic, lag.partition) for lag in lags]
        trends = {place: trend for place in places if (trend := self.of(place)) is not None}
        return LagLook(at, lags, trends, self.over(places))


class LagWatch:
    """Measures the lag regularly in a thread of its own, so that an outage of the broker blocks nobody else."""

    def __init__(self, make_reader: Callable[[], LagReader], interval: float) -> None:
        """Args:
        make_reader: called in the thread.
        interval: seconds between two measurements.
        """
        self._make_reader = make_reader
        self._interval = interval
        self._latest: LagLook | None = None
        self._stopping = threading.Event()
        self.problem = ""  # why the last measurement failed; "" if it did not
        self._thread = threading.Thread(target=self._run, name="lag", daemon=True)
        self._thread.start()

    def latest(self) -> LagLook | None:
        """The latest lag; None if it is too old."""
        look = self._latest
        return (
            look
            if look is not None and time.monotonic() - look.at < MAX_AGE_INTERVALS * max(self._interval, 1.0)
            else None
        )

    def close(self) -> None:
        """Stop. Waits for the thread for a second at most, because the broker may be away."""
        self._stopping.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        reader = self._make_reader()
        follower = LagFollower()
        while not self._stopping.is_set():
            try:
                self._latest = follower.look(time.monotonic(), reader.read())
                self.problem = ""
            except BrokerUnreachableError as error:
                self.problem = str(error) if self._latest is None else error.what
            except TopicsError as error:
                self.problem = str(error)
            self._stopping.wait(self._interval)
        reader.close()


def reader_of(pipeline: Pipeline) -> LagReader:
    """A reader of the pipeline's lag."""
    return LagReader(pipeline.client_config(), pipeline.group_id, pipeline.input.topics, start=pipeline.input.start)


_PARTITION = ("topic", "partition")  # labels


class LagCollector(Collector):
    """Gives the latest lag to a Prometheus registry."""

    def __init__(self, pipeline: str, group: str, latest: Callable[[], LagLook | None]) -> None:
        """Args:
        pipeline: its name, a label that the workers' metrics have too.
        group: whose lag.
        latest: the latest look, None where the lag is not known.
        """
        self._of = (pipeline, group)
        self._latest = latest

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """See `prometheus_client.registry.Collector`."""
        look = self._latest()
        up = GaugeMetricFamily(
            "millstream_group_lag_known",
            "1 while the broker answers for the group's lag.",
            labels=("pipeline", "group"),
        )
        up.add_metric(self._of, float(look is not None))
        return [up] if look is None else [up, *self._lag(look), *self._trend(look)]

    def _lag(self, look: LagLook) -> Iterable[GaugeMetricFamily]:
        lag_ = _family("lag", "Events of a partition that the group has not processed.", *_PARTITION)
        seconds = _family("lag_seconds", "Age of a partition's oldest unprocessed event.", *_PARTITION)
        committed = _family("committed_offset", "Offset that the group has committed.", *_PARTITION)
        total = _family("total_lag", "Events that the group has not processed.")
        longest = _family("max_lag_seconds", "Age of the group's oldest unprocessed event.")
        for lag in look.lags:
            labels = [*self._of, lag.topic, str(lag.partition)]
            lag_.add_metric(labels, lag.messages)
            if lag.seconds is not None:
                seconds.add_metric(labels, lag.seconds)
            if lag.committed is not None:
                committed.add_metric(labels, lag.committed)
        total.add_metric(self._of, look.messages)
        if look.seconds is not None:
            longest.add_metric(self._of, look.seconds)
        return [lag_, seconds, committed, total, longest]

    def _trend(self, look: LagLook) -> Iterable[GaugeMetricFamily]:
        deleted = _family("deleted_events", "Offsets that retention took before the group had read them.", *_PARTITION)
        held_back = _family(
            "held_back_offsets",
            "Offsets behind a producer's open transaction: nobody can read them before it ends.",
            *_PARTITION,
        )
        arrival = _family("arrival_rate", "Events a second that come.")
        growth = _family("lag_growth", "Events a second by which the lag grows; negative where it shrinks.")
        drain = _family("drain_seconds", "Seconds until nothing waits, if it goes on like this; +Inf: never.")
        for lag in look.lags:
            deleted.add_metric([*self._of, lag.topic, str(lag.partition)], lag.deleted)
            held_back.add_metric([*self._of, lag.topic, str(lag.partition)], lag.held_back)
        if look.total is not None:
            arrival.add_metric(self._of, look.total.arrival)
            growth.add_metric(self._of, look.total.growth)
        if look.drain is not None:
            drain.add_metric(self._of, look.drain)
        return [deleted, held_back, arrival, growth, drain]


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"millstream_group_{name}", text, labels=("pipeline", "group", *labels))


def oldest_age(lags: Sequence[PartitionLag]) -> float | None:
    """The age of the oldest unprocessed event, as people are shown it. None: that of one of the partitions isn't known.

    Without partitions it is 0. See also `LagLook.seconds`.
    """
    ages = [lag.seconds for lag in lags]
    return None if None in ages else max((age for age in ages if age is not None), default=0.0)


def by_topic(lags: Sequence[PartitionLag]) -> dict[str, list[PartitionLag]]:
    """The partitions of each topic."""
    topics: dict[str, list[PartitionLag]] = {}
    for lag in lags:
        topics.setdefault(lag.topic, []).append(lag)
    return topics
