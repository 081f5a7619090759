"""Joins one partition's comparisons and labels by event ID, in windows of event time. Pure: the time is an argument.

All counts follow from the chunks and their order. So a join that is restored from the changelog gives the same results as the
join that wrote it. Rows that are read again after a crash have the same position as before, and count once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.comparison.chunks import LABELS, Chunk, Rows, kind_of
from millstream.consumers.comparison.errors import DamagedRecordError
from millstream.consumers.comparison.matching import Labels, Window
from millstream.consumers.comparison.partials import Partial

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    import numpy.typing as npt

    from millstream.inference.class_answers import Classes
    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.comparisons import Pair

MAX_AHEAD_MS: Final = 300_000  # ms that an event may be ahead of the clock; beyond that, the producer's clock is wrong
LABELS_TO_EVENTS: Final = 10  # limit of a partition's label rows, in units of `most_events`
MIN_CHUNK_ROWS: Final = 20  # rows that a chunk counts for at least: a chunk of one row takes memory, too
NO_LABELS_WAIT_MS: Final = 600_000  # ms that a window waits for late comparisons if the pipeline has no labels
MAX_OPEN_WINDOWS: Final = 1000  # open windows of a partition, not counting those that wait for labels

HASH_BITS: Final = 64  # bits of an event ID's hash
WRITER_NUMBERS: Final = 1 << 24

Change = tuple[int, bytes | None]
"""A chunk's number and its new record in the changelog; None deletes the chunk."""


@dataclass(frozen=True, slots=True)
class JoinSettings:
    """Times are in milliseconds."""

    window: int  # length of a window
    wait: int  # how long after its end a window waits for labels
    early: int  # how long a label without a comparison is kept
    most_events: int  # most events of a window
    threshold: float
    classes: Classes | None = None  # those of the models, if they are compared
    all_compared: bool = False  # whether a shadow takes all events, so that each label should have a comparison

    @property
    def most_windows(self) -> int:
        """Most open windows of a partition. If there would be more, the oldest ones are closed early.

        Windows start at whole multiples of their length, and no event is far ahead of the clock. So the windows that are due
        now are always fewer than this limit. If a producer spreads event times over a thousand years, only old windows close.
        """
        return (self.wait + MAX_AHEAD_MS) // self.window + MAX_OPEN_WINDOWS


def join_settings(pipeline: Pipeline, classes: Classes | None) -> JoinSettings:
    """The settings that the pipeline file gives; `classes`: those of the models, if they are compared."""
    comparison, labels = pipeline.comparison, pipeline.labels
    return JoinSettings(
        window=max(round(comparison.window * 1000), 1),
        wait=round(labels.wait * 1000) if labels else NO_LABELS_WAIT_MS,
        early=round(labels.early * 1000) if labels else 0,
        most_events=comparison.max_events,
        threshold=comparison.threshold,
        classes=classes,
        all_compared=any(shadow.sample_rate == 1 for shadow in pipeline.shadows),
    )


class PartitionJoin:
    """The open windows of one partition."""

    def __init__(self, settings: JoinSettings, writer: int = 0) -> None:
        """Args:
        settings: the windows' settings.
        writer: a number below `WRITER_NUMBERS` that only this join has. Two processes may both believe that they own the
            partition; with different numbers, neither overwrites a chunk of the other.
        """
        self._settings = settings
        self._writer = writer
        self._chunks: dict[int, Chunk] = {}
        self._windows: dict[int, set[int]] = {}  # start -> numbers of the chunks with rows in it
        self._events: Counter[int] = Counter()  # start -> rows
        self._damaged: list[int] = []  # numbers of records that aren't chunks, to delete from the changelog
        self._summarised: dict[int, int] = {}  # start -> rows in the latest summary
        self._dirty: set[int] = set()  # windows to summarise
        self._summarised_to = 0  # windows whose wait ended by this time were summarised after they closed
        self._new_labels: list[int] = []  # numbers of the chunks whose windows are not known yet
        self._labels: Labels | None = None  # the labels of all chunks; None: must be built again
        self._next = writer
        self.watermark = 0  # the newest event time read
        self._closed_to = 0  # windows whose wait ended by this time (ms since the epoch) are closed
        self._deleted_to = 0  # windows that were due for deletion by this time are deleted
        self.counts: Counter[str] = Counter()  # reason -> records left out; the caller takes and clears them

    @classmethod
    def restored(
        cls,
        settings: JoinSettings,
        packed: dict[int, bytes],
        writer: int = 0,
        *,
        latest: int,
        known: Container[Pair],
    ) -> PartitionJoin:
        """Rebuild a join from its chunks.

        Args:
            settings: the windows' settings.
            packed: the chunks, by number. Records that aren't chunks are counted as `damaged`.
            writer: see `__init__`.
            latest: the newest event time that is possible, ms since the epoch.
            known: the pairs that are compared; rows of other pairs are left out.
        """
        join = cls(settings, writer)
        for number, record in sorted(packed.items()):
            try:
                chunk = Chunk.unpack(number, record, latest, settings.classes)
            except DamagedRecordError:
                join.counts["damaged"] += 1
                join._damaged.append(number)
                continue
            join._take(chunk.of_pairs(known))
        # A chunk that another window needs still has rows of deleted windows, but not all of their rows.
        for start in [start for start in join._windows if join._end(start) <= join._deleted_to]:
            join._drop(start)
        return join

    def add_comparisons(self, rows: Rows, pairs: Sequence[Pair], now: int) -> list[Change]:
        """Take a batch of comparisons (rows of `comparison_row`); `now` is ms since the epoch."""
        ahead = rows["event_time"] > now + MAX_AHEAD_MS
        late = self._is_closed(rows["event_time"])
        if self._close_beyond_most(rows["event_time"][~(ahead | late)]):
            late = self._is_closed(rows["event_time"])
        self.counts["ahead"] += int(ahead.sum())
        self.counts["late"] += int((late & ~ahead).sum())
        rows = rows[~(ahead | late)]
        if not len(rows):
            return []
        watermark = max(self.watermark, int(rows["event_time"].max()))
        kind, closed, deleted = kind_of(self._settings.classes), self._closed_to, self._deleted_to
        chunk = Chunk(kind, self._next, watermark, closed, now, rows, tuple(pairs), deleted=deleted)
        chunk = self._thin(chunk, self._halvings(chunk))
        self._take(chunk)
        changed = {chunk.number, *self._halve_full(chunk)}
        changes: list[Change] = [(number, self._chunks[number].pack()) for number in sorted(changed)]
        # Too many windows opened since the last update: delete the old ones now, before an update has summarised them.
        return (
            [*changes, *self._forget(self._closed_to)]
            if len(self._windows) > 2 * self._settings.most_windows
            else changes
        )

    def add_labels(self, rows: Rows, now: int) -> list[Change]:
        """Take a batch of labels (rows of LABEL_ROW); `now` is ms since the epoch."""
        if not len(rows):
            return []
        chunk = Chunk(LABELS, self._next, self.watermark, self._closed_to, now, rows)
        self._take(chunk)
        return [(chunk.number, chunk.pack())]

    def close(self, until: int) -> None:
        """Close the windows whose wait ended by `until` (event time, ms since the epoch).

        The caller passes a watermark of this join, once all labels written before that watermark was taken are joined. So no
        window closes early if the labels are read more slowly than the comparisons, for example after an outage.
        """
        self._closed_to = max(self._closed_to, until)

    def summaries(self) -> Iterator[tuple[int, Pair, Partial]]:
        """The summary of each window and pair that changed since the last call.

        They are computed one by one. Comparisons and labels may be added meanwhile.
        """
        self._find_windows_of_new_labels()
        closed = self._closed_to  # windows that close meanwhile are summarised once more
        self._dirty |= {start for start in self._windows if self._summarised_to < self._close(start) <= closed}
        self._summarised_to = closed
        for start in sorted(self._dirty):
            self._dirty.discard(start)
            for pair, partial in self._summaries(start, closed):
                yield start, pair, partial

    def clean_up(self, now: int) -> list[Change]:
        """Delete what is no longer needed; returns the changes of the changelog. Take all `summaries` before."""
        return [*self._sift_labels(now), *self._forget(self._summarised_to)]

    # The times of a window: start, end of the wait, deletion.

    def _start(self, event_times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return event_times - event_times % self._settings.window

    def _is_closed(self, event_times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        closed = self._start(event_times) + self._settings.window + self._settings.wait <= self._closed_to
        return closed | (event_times < 0)

    def _close_beyond_most(self, event_times: npt.NDArray[np.int64]) -> bool:
        """Close the oldest windows if these events would open too many; returns whether it closed any."""
        starts = self._windows.keys() | set(np.unique(self._start(event_times)).tolist())
        if len(starts) <= self._settings.most_windows:
            return False
        oldest = sorted(starts)[-self._settings.most_windows]
        self.close(oldest + self._settings.wait)
        return True

    def _close(self, start: int) -> int:
        """The time at which the window closes."""
        return start + self._settings.window + self._settings.wait

    def _end(self, start: int) -> int:
        """The time at which the window is deleted. Until then, a label of the window is recognised as late."""
        return self._close(start) + self._settings.window

    def _take(self, chunk: Chunk) -> None:
        self._next = (chunk.number // WRITER_NUMBERS + 1) * WRITER_NUMBERS + self._writer
        self._chunks[chunk.number] = chunk
        self.watermark = max(self.watermark, chunk.watermark)
        self._closed_to = max(self._closed_to, chunk.closed, chunk.deleted)
        self._deleted_to = max(self._deleted_to, chunk.deleted)
        if chunk.kind == LABELS:
            self._labels = None
            self._new_labels.append(chunk.number)
            return
        starts, counts = np.unique(self._start(chunk.rows["event_time"]), return_counts=True)
        self._events.update(dict(zip(starts.tolist(), counts.tolist(), strict=True)))
        for start in {*starts.tolist(), *chunk.thinned}:
            self._windows.setdefault(start, set()).add(chunk.number)
            self._dirty.add(start)

    # Limits of memory.

    def _halvings(self, chunk: Chunk) -> dict[int, int]:
        """How often each of the chunk's windows has been halved so far."""
        halvings: dict[int, int] = {}
        for start in np.unique(self._start(chunk.rows["event_time"])).tolist():
            numbers = self._windows.get(start, ())
            halvings[start] = max((self._chunks[number].halvings.get(start, 0) for number in numbers), default=0)
        return {start: times for start, times in halvings.items() if times}

    def _thin(self, chunk: Chunk, halvings: dict[int, int]) -> Chunk:
        """The chunk after its windows were halved this often. The ID's hash decides which rows are removed: a random sample."""
        if not halvings:
            return chunk
        starts = self._start(chunk.rows["event_time"])
        keep = np.ones(len(starts), np.bool_)
        thinned = dict(chunk.thinned)
        for start, times in halvings.items():
            out = (starts == start) & (chunk.rows["id"] >> np.uint64(64 - times) != 0)
            thinned[start] = thinned.get(start, 0) + int(out.sum())
            keep &= ~out
        return replace(chunk, rows=chunk.rows[keep], halvings={**chunk.halvings, **halvings}, thinned=thinned)

    def _halve_full(self, newest: Chunk) -> set[int]:
        """Halve the windows that have too many events; returns the numbers of the changed chunks."""
        changed = set[int]()
        for start in np.unique(self._start(newest.rows["event_time"])).tolist():
            while self._events[start] > self._settings.most_events:
                times = self._chunks[newest.number].halvings.get(start, 0) + 1
                if times > HASH_BITS:  # the hash has no more bits: nearly all events have the same ID
                    break
                for number in self._windows[start]:
                    self._chunks[number] = self._thin(self._chunks[number], {start: times})
                changed |= self._windows[start]
                self._events[start] = self._count(start)
        return changed

    def _count(self, start: int) -> int:
        return sum(
            int((self._start(self._chunks[number].rows["event_time"]) == start).sum())
            for number in self._windows[start]
        )

    # Labels and the windows of their events.

    def _all_labels(self) -> Labels:
        if self._labels is None:
            self._labels = Labels.of([chunk for chunk in self._chunks.values() if chunk.kind == LABELS])
        return self._labels

    def _known(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """The ID hashes of all comparisons, ascending, and the start of each one's window."""
        chunks = [chunk.rows for chunk in self._chunks.values() if chunk.kind != LABELS]
        ids = np.concatenate([rows["id"] for rows in chunks]) if chunks else np.empty(0, np.uint64)
        times = np.concatenate([rows["event_time"] for rows in chunks]) if chunks else np.empty(0, np.int64)
        order = np.argsort(ids, kind="stable")
        return ids[order], self._start(times[order])

    def _find_windows_of_new_labels(self) -> None:
        new = [self._chunks[number].rows["id"] for number in self._new_labels if number in self._chunks]
        self._new_labels = []
        if new and self._windows:
            _, starts = _found(np.concatenate(new), *self._known())
            self._dirty |= set(np.unique(starts).tolist()) & self._windows.keys()

    def _sift_labels(self, now: int) -> Iterator[Change]:
        """Of the labels that have waited long enough, keep those that have a comparison."""
        unsifted = self._unsifted()
        over = sum(map(_weight, unsifted)) - LABELS_TO_EVENTS * self._settings.most_events
        due = []
        for chunk in unsifted:
            if chunk.arrived + self._settings.early <= now or over > 0:
                due.append(chunk)
                over -= _weight(chunk)
        known = self._known() if due else None
        sifted_rows = sum(_weight(chunk) for chunk in self._chunks.values() if chunk.kind == LABELS and chunk.until)
        crowded = bool(due) and sifted_rows > LABELS_TO_EVENTS * self._settings.most_events
        for chunk in due:
            assert known is not None
            kept, starts = _found(chunk.rows["id"], *known)
            self.counts["unknown_labels"] += int((~kept).sum())
            if crowded:
                repeated = self._repeated(chunk, kept)
                self.counts["repeated_labels"] += int(repeated.sum())
                kept, starts = kept & ~repeated, starts[~repeated[kept]]
            until = self._end(int(starts.max())) if len(starts) else 0
            self._labels = None
            yield self._keep(chunk, kept, until)

    def _repeated(self, chunk: Chunk, kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which of the kept labels aren't the first of their event: only the first counts."""
        all_labels = self._all_labels()
        _, places = all_labels.match(chunk.rows["id"])
        order = np.lexsort((chunk.rows["position"], chunk.rows["id"]))
        ids = chunk.rows["id"][order]
        later = np.zeros(len(kept), np.bool_)
        later[order[1:]] = ids[1:] == ids[:-1]
        repeated: npt.NDArray[np.bool_] = kept & (later | (all_labels.numbers[places] != chunk.number))
        return repeated

    def _forget(self, closed: int) -> Iterator[Change]:
        """Delete the windows that are due for deletion by `closed`, and the chunks without a window."""
        yield from ((number, None) for number in self._damaged)
        self._damaged = []
        self._deleted_to = max(self._deleted_to, closed)
        over = [start for start in self._windows if self._end(start) <= closed]
        for start in over:
            # Halving may have removed rows since the summary. A restored join doesn't know the summaries of its predecessor.
            self.counts["late"] += max(self._events[start] - self._summarised.pop(start, 0), 0)
            self._drop(start)
        wanted = set[int]().union(*self._windows.values())
        comparisons = [chunk for chunk in self._chunks.values() if chunk.kind != LABELS]
        # The newest stays: a restored join takes its watermark from it.
        unwanted = [chunk.number for chunk in comparisons[:-1] if chunk.number not in wanted]
        if over:  # the changelog learns that the windows are deleted before it loses some of their rows
            newest = self._chunks[comparisons[-1].number] = replace(comparisons[-1], deleted=self._deleted_to)
            yield newest.number, newest.pack()
        if over or unwanted:
            yield from self._forget_labels(self._unsifted())
        for number in unwanted:
            del self._chunks[number]
            yield number, None
        for chunk in [chunk for chunk in self._chunks.values() if 0 < chunk.until <= closed]:
            self._labels = None
            del self._chunks[chunk.number]
            yield chunk.number, None

    def _unsifted(self) -> list[Chunk]:
        """The labels of which nobody has looked yet which ones have a comparison."""
        return [chunk for chunk in self._chunks.values() if chunk.kind == LABELS and not chunk.until]

    def _forget_labels(self, unsifted: Sequence[Chunk]) -> Iterator[Change]:
        """Delete the labels of deleted windows from these. Without their comparisons they would look unknown."""
        known = self._known() if unsifted else None
        for chunk in unsifted:
            assert known is not None
            found, starts = _found(chunk.rows["id"], *known)
            gone = np.zeros(len(found), np.bool_)
            gone[found] = ~np.isin(starts, list(self._windows))
            if gone.any():
                self._labels = None
                yield self._keep(chunk, ~gone, until=0)

    def _keep(self, chunk: Chunk, kept: npt.NDArray[np.bool_], until: int) -> Change:
        """Keep these rows of a chunk of labels, or delete a chunk without any."""
        if not kept.any():
            del self._chunks[chunk.number]
            return chunk.number, None
        self._chunks[chunk.number] = smaller = replace(chunk, rows=chunk.rows[kept], until=until)
        return chunk.number, smaller.pack()

    def _drop(self, start: int) -> None:
        del self._windows[start]
        del self._events[start]

    def _summaries(self, start: int, closed: int) -> Iterator[tuple[Pair, Partial]]:
        if start not in self._windows:
            return
        self._summarised[start] = self._events[start]
        chunks = [self._chunks[number] for number in sorted(self._windows[start])]
        window = Window.of(chunks, [self._start(chunk.rows["event_time"]) == start for chunk in chunks])
        thinned = sum(chunk.thinned.get(start, 0) for chunk in chunks)
        close = self._close(start)
        for pair, summary, counts in window.summaries(self._all_labels(), close, self._settings.threshold):
            yield (
                pair,
                Partial(
                    summary=summary,
                    **counts,
                    thinned=thinned,
                    final=close <= closed,
                    deleted=self._deleted_to,
                ),
            )


def _weight(chunk: Chunk) -> int:
    """How many rows a chunk of labels counts for."""
    return max(len(chunk.rows), MIN_CHUNK_ROWS)


def _found(
    ids: npt.NDArray[np.uint64], known: npt.NDArray[np.uint64], starts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Which IDs are known, and the windows of the known ones. If an ID is in several windows, the newest one is taken."""
    if not len(known):
        return np.zeros(len(ids), np.bool_), np.empty(0, np.int64)
    places = np.searchsorted(known, ids, side="right") - 1
    found = known[places] == ids
    return found, starts[places[found]]
