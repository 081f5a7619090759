"""One partition's summary of a window and pair, and the merge of the summaries of all partitions. Pure."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from millstream.consumers.comparison.errors import DamagedRecordError
from millstream.inference.evaluation import COARSE_BITS, FINE_BITS, Histogram, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.schemas.comparisons import Pair

_SUMMARY_OVERHEAD: Final = 100_000  # bytes of a summary without its histograms; more than enough
_MAX_COUNT: Final = 1 << 48  # largest value of a count or bin: so the sum of many fits into 64 bits
_BINS: Final = 1 << (12 + FINE_BITS)
_JOINT_BINS: Final = 1 << (2 * (12 + COARSE_BITS))
MAX_PART_BYTES: Final = 256 << 20  # bytes of all parts of a merge together, compressed
SILENCE_MS: Final = 600_000  # ms that a window waits for partitions that have sent nothing of it
Place = tuple[int, "Pair", int]
"""Window, pair and source partition of a part."""
_COUNTS = ("duplicates", "thinned", "early_labels", "late_labels", "repeated_labels")


def most_bytes_of(events: int) -> int:
    """Most bytes that the partial of this number of events can have, before compression.

    An event adds at most one bin and one count (8 bytes each) to each of six histograms: both scores, both latencies, the
    difference, and one of the joint histograms.
    """
    return 6 * 16 * events + _SUMMARY_OVERHEAD


@dataclass(frozen=True, slots=True)
class Partial:
    """One partition's summary of a window and pair."""

    summary: Summary
    duplicates: int = 0
    thinned: int = 0
    early_labels: int = 0
    late_labels: int = 0
    repeated_labels: int = 0
    final: bool = False  # whether the window is closed in this partition
    deleted: int = (
        0  # ms since the epoch: the windows that were due for deletion by this time are deleted in this partition
    )

    def __add__(self, other: Partial) -> Partial:
        return Partial(
            summary=self.summary + other.summary,
            **{name: getattr(self, name) + getattr(other, name) for name in _COUNTS},
            final=self.final and other.final,
        )

    def pack(self) -> bytes:
        """Encode and compress the partial."""
        return zlib.compress(msgspec.msgpack.encode(_plain(self)), level=1)

    @classmethod
    def unpack(cls, packed: bytes, most_bytes: int) -> Partial:
        """Undo `pack`.

        Args:
            packed: the result of `pack`.
            most_bytes: limit of the decompressed size: a few hundred bytes may decompress to gigabytes.

        Raises:
            DamagedRecordError: the job didn't write this partial.
        """
        try:
            inflate = zlib.decompressobj()
            plain = inflate.decompress(packed, most_bytes)
            if not inflate.eof or inflate.unused_data:
                raise ValueError(
                    f"expected at most {most_bytes} bytes when decompressed, found more, or cut-off or trailing data"
                )
            partial = _like(cls(Summary()), msgspec.msgpack.decode(plain))
        except (zlib.error, msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise DamagedRecordError(f"not a summary: {error}") from error
        assert isinstance(partial, cls)
        _check(partial)
        return partial


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return [_plain(getattr(value, each.name)) for each in fields(value)]
    return value.tobytes() if isinstance(value, np.ndarray) else value


def _like(pattern: Any, plain: Any) -> Any:
    """Rebuild from `plain` an object of the types in `pattern`. Raises ValueError if a type doesn't match."""
    expected = list if is_dataclass(pattern) else bytes if isinstance(pattern, np.ndarray) else type(pattern)
    if type(plain) is not expected:
        raise ValueError(f"expected {expected.__name__}, found {type(plain).__name__}")
    if is_dataclass(pattern) and not isinstance(pattern, type):
        names = [each.name for each in fields(pattern)]
        parts = {name: _like(getattr(pattern, name), part) for name, part in zip(names, plain, strict=True)}
        return replace(pattern, **parts)
    if isinstance(pattern, np.ndarray):
        assert isinstance(plain, bytes)
        array = np.frombuffer(plain, pattern.dtype)
        return array.reshape(pattern.shape) if pattern.size else array
    return plain


def _check(partial: Partial) -> None:
    """Raise DamagedRecordError for values that the evaluation can't compute with."""
    summary = partial.summary
    wrong = any(
        isinstance(value, int) and not 0 <= value <= _MAX_COUNT
        for part in (partial, summary)
        for value in (getattr(part, each.name) for each in fields(part))
    )
    for side in (summary.primary, summary.shadow):
        wrong |= bool((side.confusion < 0).any())
        histograms = (side.unlabelled, side.negative, side.positive, side.latency)
        wrong |= not all(_is_sound(histogram, _BINS) for histogram in histograms)
    wrong |= not _is_sound(summary.difference, _BINS)
    joints = (summary.joint_unlabelled, summary.joint_negative, summary.joint_positive)
    if wrong or not all(_is_sound(joint, _JOINT_BINS) for joint in joints):
        raise DamagedRecordError("not a summary: expected counts and ascending bins, found others")


def _is_sound(histogram: Histogram, bins: int) -> bool:
    places, counts = histogram.bins, histogram.counts
    if len(places) != len(counts):
        return False
    if not len(places):
        return True
    inside = places[0] >= 0 and places[-1] < bins and bool((np.diff(places) > 0).all())
    return inside and bool(counts.min() > 0 and counts.max() <= _MAX_COUNT // len(counts))


class Merge:
    """The parts of all partitions, by window and pair.

    Parts stay compressed: a few hundred decompressed ones could fill the memory. The limits hold at any time.

    Windows go in the order of their starts, with all their parts. What comes of them later is refused: a sum without the parts
    that are gone would replace the whole result.
    """

    def __init__(self, *, kept: int, most_windows: int, most_bytes: int, sources: int, forgotten: int = 0) -> None:
        """Args:
        kept: how long after a window's start the partitions delete it, in ms of event time.
        most_windows: `forget` keeps this number of windows, the newest. Between two calls, there may be twice as many.
        most_bytes: most bytes of a part when decompressed.
        sources: number of partitions that send parts.
        forgotten: that of the merge before a restart.
        """
        self._kept = kept
        self._most_windows = most_windows
        self._most_bytes = most_bytes
        self._sources = sources
        self.forgotten = forgotten  # ms since the epoch: windows that start before this time are gone
        self._windows: dict[int, dict[Pair, dict[int, bytes]]] = {}  # start -> pair -> source -> packed partial
        self._bytes = 0  # of all packed partials
        self._deleted: dict[int, int] = {}  # source partition -> the `Partial.deleted` that it sent last
        self._silent: dict[int, int] = {}  # window -> since when it waits only for partitions that sent nothing of it
        self._dirty: set[tuple[int, Pair]] = set()

    def put(self, start: int, pair: Pair, source: int, packed: bytes, *, latest: int) -> list[Place]:
        """Take the newest part of partition `source`.

        Returns the parts dropped: this one if its window is gone, and those of the oldest windows if there are too many.

        Args:
            start: the window's start, ms since the epoch.
            pair: the models that the part compares.
            source: the partition.
            packed: the result of `Partial.pack`.
            latest: the latest time that `Partial.deleted` can have, ms since the epoch.

        Raises:
            DamagedRecordError: the job didn't write this partial. Nothing changes.
        """
        deleted = Partial.unpack(packed, self._most_bytes).deleted
        if deleted > latest:
            raise DamagedRecordError("the time until which windows are deleted lies in the future")
        self._deleted[source] = deleted  # less than before if older parts are read again: then newer ones follow, too
        if start < self.forgotten:
            return [(start, pair, source)]
        parts = self._windows.setdefault(start, {}).setdefault(pair, {})
        if parts.get(source) == packed:  # a job that was started again sends all parts again
            return []
        self._bytes += len(packed) - len(parts.get(source, b""))
        parts[source] = packed
        self._dirty.add((start, pair))
        dropped: list[Place] = []
        while len(self._windows) > 2 * self._most_windows or self._bytes > MAX_PART_BYTES:
            dropped += self._drop(min(self._windows))
        return dropped

    def results(self) -> Iterator[tuple[int, Pair, Partial]]:
        """The windows and pairs that changed since the last call. Parts may be put while the caller takes them one by one."""
        for start, pair in sorted(self._dirty):
            if (start, pair) not in self._dirty:  # dropped meanwhile
                continue
            self._dirty.discard((start, pair))
            parts = (Partial.unpack(packed, self._most_bytes) for packed in self._windows[start][pair].values())
            first = next(parts)
            yield start, pair, sum(parts, first)

    def forget(self, now: int) -> list[Place]:
        """Drop the windows that no partition will send again, and return their parts. `now` is ms since the epoch."""
        done = {start for start in self._windows if self._is_done(start, now)}
        dropped: list[Place] = []
        for start in sorted(self._windows):
            is_over = start in done or len(self._windows) > self._most_windows
            if not is_over or any((start, pair) in self._dirty for pair in self._windows[start]):
                break
            dropped += self._drop(start)
        return dropped

    def _is_done(self, start: int, now: int) -> bool:
        """Whether no partition will send the window again.

        A partition that has sent nothing of the window may be slow, or may never get a comparison. The window waits `SILENCE_MS`
        for it.
        """
        end = start + self._kept
        behind = {source for source in range(self._sources) if self._deleted.get(source, 0) < end}
        if any(behind & parts.keys() for parts in self._windows[start].values()):
            return False
        return not behind or now - self._silent.setdefault(start, now) >= SILENCE_MS

    def _drop(self, start: int) -> list[Place]:
        """Drop the oldest window."""
        pairs = self._windows.pop(start)
        self._bytes -= sum(len(packed) for parts in pairs.values() for packed in parts.values())
        self._dirty -= {(start, pair) for pair in pairs}
        self._silent.pop(start, None)
        self.forgotten = start + 1
        return [(start, pair, source) for pair, parts in pairs.items() for source in parts]
