"""The comparison job without Kafka: a process for each of three partitions, and one for the merge, with their topics and tables.

A process may be killed between any two writes. Its changelog then has the writes before, in their order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from millstream.consumers.comparison.job import Joins, Merges, Write
from millstream.consumers.comparison.join import join_settings
from millstream.consumers.comparison.metrics import ComparisonMetrics
from millstream.consumers.comparison.pairs import KnownPairs
from millstream.schemas.comparisons import Pair
from tests.comparison.test_join import comparisons, labels
from tests.comparison.test_pairs import PRIMARY, SHADOW, pipeline

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from millstream.consumers.comparison.chunks import Rows

PAIR = Pair(PRIMARY, SHADOW)
SOURCES = 3
ALL = 1 << 30


def apply(table: dict[bytes, bytes], writes: Iterable[Write], most: int = ALL) -> None:
    """Write the first writes to the table."""
    for key, value in list(writes)[:most]:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value


class ClosingJob:
    """Windows are numbered. An event has one comparison."""

    def __init__(self, folder: Path) -> None:
        self.pipeline = pipeline(folder, "{name: m, version: 1}")
        self.settings = join_settings(self.pipeline, None)
        self.known = KnownPairs(self.pipeline)
        self.metrics = ComparisonMetrics("p")
        self.chunks: list[dict[bytes, bytes]] = [{} for _ in range(SOURCES)]
        self.parts: dict[bytes, bytes] = {}
        self.sent: list[bytes] = []  # the parts' topic
        self.read = 0  # the merge's offset in it
        self.committed = 0
        self.published: dict[
            int, list[tuple[int, int]]
        ] = {}  # window -> events and labels of its results, the newest last
        self.next = 0
        self.joins = [self.a_join(source) for source in range(SOURCES)]
        self.merges = self.a_merge()

    def a_join(self, source: int) -> Joins:
        return Joins(self.settings, self.chunks[source], self.known, self.metrics)

    def a_merge(self) -> Merges:
        return Merges(self.pipeline, self.settings, self.parts, self.known, self.metrics, sources=SOURCES)

    def kill_join(self, source: int) -> None:
        self.joins[source] = self.a_join(source)

    def kill_merge(self) -> None:
        self.merges = self.a_merge()
        self.read = self.committed

    def rows(self, *windows: int) -> Rows:
        """One new comparison in each of these windows."""
        ids = list(range(self.next, self.next + len(windows)))
        self.next += len(windows)
        return comparisons(ids, [window * self.settings.window for window in windows], ids[0])

    def compare(self, source: int, *windows: int) -> Rows:
        """One batch with a comparison in each of these windows."""
        rows = self.rows(*windows)
        self.write_rows(source, rows)
        return rows

    def write_rows(self, source: int, rows: Rows, most: int = ALL) -> None:
        """Join a batch; write the first changes of the changelog."""
        apply(self.chunks[source], self.joins[source].comparisons(source, rows, [PAIR]), most)

    def label(self, source: int, rows: Rows) -> None:
        """Labels of these comparisons."""
        ids = [int(number) for number in rows["id"]]
        apply(self.chunks[source], self.joins[source].labels(source, labels(ids, ids[0])))

    def close(self, source: int, windows: int) -> None:
        """The windows up to this one are due for deletion."""
        self.joins[source].close(source, (windows + 2) * self.settings.window + self.settings.wait)

    def send(self, source: int) -> None:
        """Send the summaries that changed."""
        self.sent += [part.pack() for part in self.joins[source].parts(source)]

    def clean_up(self, source: int, most: int = ALL) -> None:
        """After `send`: write the first changes of the changelog."""
        apply(self.chunks[source], self.joins[source].clean_up(source), most)

    def close_everywhere(self, windows: int, newer: int) -> None:
        """All partitions delete the windows up to this one, get a comparison in a newer one, and the merge reads that."""
        for source in range(SOURCES):
            self.close(source, windows)
            self.send(source)
            self.clean_up(source)
            self.compare(source, newer)
            self.send(source)
        self.deliver()

    def deliver(self, most: int = ALL) -> None:
        """The merge reads the next parts."""
        for packed in self.sent[self.read :][:most]:
            apply(self.parts, self.merges.put(0, packed).items())
            self.read += 1

    def commit(self) -> None:
        self.committed = self.read

    def publish(self) -> None:
        """Write the results that changed."""
        for start, _, record in self.merges.results(0):
            figures = record["events"], record["labelled"]
            self.published.setdefault(start // self.settings.window, []).append(figures)

    def forget(self, most: int = ALL) -> None:
        """After `publish`: write the first changes of the parts' table."""
        apply(self.parts, self.merges.forget(0), most)

    def update(self, *sources: int) -> None:
        """All steps of an update in all processes; all parts arrive."""
        for source in sources or range(SOURCES):
            self.send(source)
            self.clean_up(source)
        self.deliver()
        self.publish()
        self.forget()

    def newest(self) -> dict[int, int]:
        """The events of each window, as published last."""
        return {window: results[-1][0] for window, results in sorted(self.published.items())}

    def windows_kept(self) -> list[int]:
        """Those that the parts' table has."""
        starts = {int(key.split(b"/")[1]) for key in self.parts if key != b"0/forgotten"}
        return sorted(start // self.settings.window for start in starts)

    def left_out(self, reason: str) -> float:
        labels = {"pipeline": "p", "reason": reason}
        return self.metrics.registry.get_sample_value("millstream_comparison_left_out_total", labels) or 0


def now() -> int:
    return time.time_ns() // 1_000_000
