"""One partition's comparisons and labels, met by event id in windows of event time. Pure: the time comes in as an argument.

All that is ever counted follows from the chunks and their order, so a join that is restored from the changelog says the same
as the one that wrote it; and rows that are read twice (after a crash) have the position of the first time and count once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from millstream.consumers.comparison.chunks import Chunk, Rows
from millstream.consumers.comparison.errors import DamagedRecordError
from millstream.consumers.comparison.matching import Labels, Window
from millstream.consumers.comparison.partials import Partial

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    import numpy.typing as npt

    from millstream.schemas.comparisons import Pair

MAX_AHEAD_MS: Final = 300_000  # ms that an event may be ahead of the clock; what is further is somebody's wrong clock
LABELS_TO_EVENTS: Final = 10  # most label rows of a partition, in units of `most_events`
MIN_CHUNK_ROWS: Final = 20  # that a chunk counts for at least: a chunk of one row takes memory too
MAX_OPEN_WINDOWS: Final = 1000  # open windows of a partition, beside those that wait for labels

HASH_BITS: Final = 64  # of an id
WRITER_NUMBERS: Final = 1 << 24

Change = tuple[int, bytes | None]
"""A chunk's number and how the changelog is to have it from now on; None: no more."""


@dataclass(frozen=True, slots=True)
class JoinSettings:
    """Times in milliseconds."""

    window: int
    wait: int  # after a window's end, for labels
    early: int  # that a label without a comparison is kept
    most_events: int  # of a window
    threshold: float

    @property
    def most_windows(self) -> int:
        """Open windows of a partition; windows beyond that close from the oldest on.

        Windows begin at whole multiples of their length and no event is far ahead of the clock, so these are more than there
        can be of now: who spreads event times over a thousand years closes windows of the past, and none that is due.
        """
        return (self.wait + MAX_AHEAD_MS) // self.window + MAX_OPEN_WINDOWS


class PartitionJoin:
    """The open windows of one partition."""

    def __init__(self, settings: JoinSettings, writer: int = 0) -> None:
        """Args:
        settings: of the windows.
        writer: a number of this join alone, below `WRITER_NUMBERS`: of two processes that take each other for gone, neither may
            write over a chunk of the other.
        """
        self._settings = settings
        self._writer = writer
        self._chunks: dict[int, Chunk] = {}
        self._windows: dict[int, set[int]] = {}  # start -> numbers of the chunks with rows in it
        self._events: Counter[int] = Counter()  # start -> rows
        self._damaged: list[int] = []  # numbers of records that are no chunks, for the changelog to let go
        self._dirty: set[int] = set()  # windows to summarise
        self._final: set[int] = set()  # windows that were summarised after they closed
        self._new_labels: list[int] = []  # numbers of the chunks whose windows are not known yet
        self._labels: Labels | None = None  # of all chunks; None: to be made anew
        self._next = writer
        self.watermark = 0  # the newest event time read
        self._closed_to = 0  # windows that waited until here take no more
        self.counts: Counter[str] = Counter()  # what was left out and why, since the start of this process

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
        """The join as its chunks tell.

        Args:
            settings: of the windows.
            packed: the chunks, by number; those that are none are counted as `damaged`.
            writer: see `__init__`.
            latest: ms since the epoch: how new an event can be.
            known: pairs that are compared; rows of others are left out.
        """
        join = cls(settings, writer)
        for number, record in sorted(packed.items()):
            try:
                chunk = Chunk.unpack(number, record, latest)
            except DamagedRecordError:
                join.counts["damaged"] += 1
                join._damaged.append(number)
                continue
            join._take(chunk.of_pairs(known))
        return join

    def add_comparisons(self, rows: Rows, pairs: Sequence[Pair], now: int) -> list[Change]:
        """Take a batch (COMPARISON_ROW); `now` is ms since the epoch."""
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
        chunk = Chunk("comparisons", self._next, watermark, self._closed_to, now, rows, tuple(pairs))
        chunk = self._thin(chunk, self._halvings(chunk))
        self._take(chunk)
        changed = {chunk.number, *self._halve_full(chunk)}
        changes: list[Change] = [(number, self._chunks[number].pack()) for number in sorted(changed)]
        # Many windows between two updates: they don't wait for the next one, which would summarise them.
        return [*changes, *self._forget()] if len(self._windows) > 2 * self._settings.most_windows else changes

    def add_labels(self, rows: Rows, now: int) -> list[Change]:
        """Take a batch (LABEL_ROW)."""
        if not len(rows):
            return []
        chunk = Chunk("labels", self._next, self.watermark, self._closed_to, now, rows)
        self._take(chunk)
        return [(chunk.number, chunk.pack())]

    def close(self, until: int) -> None:
        """Close the windows that end and have waited before `until` (ms, event time).

        The caller passes a watermark of this join, once the labels that were written before it are joined: windows must not
        close while the labels are read more slowly than the comparisons, after an outage, say.
        """
        self._closed_to = max(self._closed_to, until)

    def tick(self, now: int) -> tuple[list[Change], list[tuple[int, Pair, Partial]]]:
        """Summarise the windows that changed, and let go what is over.

        Returns:
            what changed in the changelog, and for each changed window and pair its summary.
        """
        self._find_windows_of_new_labels()
        closed = {start for start in self._windows if self._close(start) <= self._closed_to}
        self._dirty |= closed - self._final
        self._final = closed
        partials = [(start, pair, partial) for start in sorted(self._dirty) for pair, partial in self._summaries(start)]
        self._dirty.clear()
        changes = [*self._sift_labels(now), *self._forget()]
        return changes, partials

    # What the parts of a window's life are.

    def _start(self, event_times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return event_times - event_times % self._settings.window

    def _is_closed(self, event_times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        closed = self._start(event_times) + self._settings.window + self._settings.wait <= self._closed_to
        return closed | (event_times < 0)

    def _close_beyond_most(self, event_times: npt.NDArray[np.int64]) -> bool:
        """Close the oldest windows where these events would open too many; returns whether any was."""
        starts = self._windows.keys() | set(np.unique(self._start(event_times)).tolist())
        if len(starts) <= self._settings.most_windows:
            return False
        oldest = sorted(starts)[-self._settings.most_windows]
        self.close(oldest + self._settings.wait)
        return True

    def _close(self, start: int) -> int:
        """The time at which the window takes no more."""
        return start + self._settings.window + self._settings.wait

    def _end(self, start: int) -> int:
        """The time at which the window is forgotten: until then a late label is known for what it is."""
        return self._close(start) + self._settings.window

    def _take(self, chunk: Chunk) -> None:
        self._next = (chunk.number // WRITER_NUMBERS + 1) * WRITER_NUMBERS + self._writer
        self._chunks[chunk.number] = chunk
        self.watermark = max(self.watermark, chunk.watermark)
        self._closed_to = max(self._closed_to, chunk.closed)
        if chunk.kind == "labels":
            self._labels = None
            self._new_labels.append(chunk.number)
            return
        starts, counts = np.unique(self._start(chunk.rows["event_time"]), return_counts=True)
        self._events.update(dict(zip(starts.tolist(), counts.tolist(), strict=True)))
        for start in {*starts.tolist(), *chunk.thinned}:
            self._windows.setdefault(start, set()).add(chunk.number)
            self._dirty.add(start)

    # Bounds on what is kept.

    def _halvings(self, chunk: Chunk) -> dict[int, int]:
        """How often each of the chunk's windows was halved before it."""
        halvings: dict[int, int] = {}
        for start in np.unique(self._start(chunk.rows["event_time"])).tolist():
            numbers = self._windows.get(start, ())
            halvings[start] = max((self._chunks[number].halvings.get(start, 0) for number in numbers), default=0)
        return {start: times for start, times in halvings.items() if times}

    def _thin(self, chunk: Chunk, halvings: dict[int, int]) -> Chunk:
        """The chunk without the rows that halving its windows so often leaves out: by the id's hash, so at random."""
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
        """Halve the windows that hold too many events; returns the numbers of the chunks changed."""
        changed = set[int]()
        for start in np.unique(self._start(newest.rows["event_time"])).tolist():
            while self._events[start] > self._settings.most_events:
                times = self._chunks[newest.number].halvings.get(start, 0) + 1
                if times > HASH_BITS:  # one id again and again: no hash is that small
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
            self._labels = Labels.of([chunk for chunk in self._chunks.values() if chunk.kind == "labels"])
        return self._labels

    def _known(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """The ids of all comparisons, ascending, and the windows that they are in."""
        chunks = [chunk.rows for chunk in self._chunks.values() if chunk.kind == "comparisons"]
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
        """Keep of the labels that have waited long enough for their comparisons those that have one."""
        unsifted = [chunk for chunk in self._chunks.values() if chunk.kind == "labels" and not chunk.until]
        over = sum(map(_weight, unsifted)) - LABELS_TO_EVENTS * self._settings.most_events
        due = []
        for chunk in unsifted:
            if chunk.arrived + self._settings.early <= now or over > 0:
                due.append(chunk)
                over -= _weight(chunk)
        known = self._known() if due else None
        sifted_rows = sum(_weight(chunk) for chunk in self._chunks.values() if chunk.kind == "labels" and chunk.until)
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
            if until:
                self._chunks[chunk.number] = sifted = replace(chunk, rows=chunk.rows[kept], until=until)
                yield chunk.number, sifted.pack()
            else:
                del self._chunks[chunk.number]
                yield chunk.number, None

    def _repeated(self, chunk: Chunk, kept: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which of the kept labels are not their event's first: the first one alone counts."""
        all_labels = self._all_labels()
        _, places = all_labels.match(chunk.rows["id"])
        order = np.lexsort((chunk.rows["position"], chunk.rows["id"]))
        ids = chunk.rows["id"][order]
        later = np.zeros(len(kept), np.bool_)
        later[order[1:]] = ids[1:] == ids[:-1]
        repeated: npt.NDArray[np.bool_] = kept & (later | (all_labels.numbers[places] != chunk.number))
        return repeated

    def _forget(self) -> Iterator[Change]:
        yield from ((number, None) for number in self._damaged)
        self._damaged = []
        for start in [start for start in self._windows if self._end(start) <= self._closed_to]:
            del self._windows[start]
            del self._events[start]
            self._dirty.discard(start)
        wanted = set[int]().union(*self._windows.values())
        comparisons = [chunk for chunk in self._chunks.values() if chunk.kind == "comparisons"]
        for chunk in comparisons[:-1]:  # the newest stays: it holds the times
            if chunk.number not in wanted:
                del self._chunks[chunk.number]
                yield chunk.number, None
        for chunk in [chunk for chunk in self._chunks.values() if 0 < chunk.until <= self._closed_to]:
            self._labels = None
            del self._chunks[chunk.number]
            yield chunk.number, None

    def _summaries(self, start: int) -> Iterator[tuple[Pair, Partial]]:
        if start not in self._windows:
            return
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
                    final=close <= self._closed_to,
                    closed=self._closed_to,
                ),
            )


def _weight(chunk: Chunk) -> int:
    """Rows that a chunk of labels counts for."""
    return max(len(chunk.rows), MIN_CHUNK_ROWS)


def _found(
    ids: npt.NDArray[np.uint64], known: npt.NDArray[np.uint64], starts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Which ids are known, and the windows of those. An id of several windows has the newest."""
    if not len(known):
        return np.zeros(len(ids), np.bool_), np.empty(0, np.int64)
    places = np.searchsorted(known, ids, side="right") - 1
    found = known[places] == ids
    return found, starts[places[found]]
