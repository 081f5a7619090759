"""What one partition says about a window and pair, and what all partitions say together. Pure."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from inference.evaluation import Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.comparisons import Pair

_COUNTS = ("duplicates", "thinned", "early_labels", "late_labels", "repeated_labels")


@dataclass(frozen=True, slots=True)
class Partial:
    """One partition's part of a window and pair."""

    summary: Summary
    duplicates: int = 0
    thinned: int = 0
    early_labels: int = 0
    late_labels: int = 0
    repeated_labels: int = 0
    final: bool = False  # whether the window is closed in this partition
    closed: int = 0  # ms since the epoch: windows that waited until here take no more in this partition

    def __add__(self, other: Partial) -> Partial:
        return Partial(
            summary=self.summary + other.summary,
            **{name: getattr(self, name) + getattr(other, name) for name in _COUNTS},
            final=self.final and other.final,
            closed=min(self.closed, other.closed),
        )

    def pack(self) -> bytes:
        """As it travels."""
        return zlib.compress(msgspec.msgpack.encode(_plain(self)), level=1)

    @classmethod
    def unpack(cls, packed: bytes) -> Partial:
        """Undo `pack`."""
        summary, *rest = msgspec.msgpack.decode(zlib.decompress(packed))
        return cls(_like(Summary(), summary), *rest)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return [_plain(getattr(value, each.name)) for each in fields(value)]
    return value.tobytes() if isinstance(value, np.ndarray) else value


def _like(pattern: Any, plain: Any) -> Any:
    """`plain` in the shape of `pattern`."""
    if is_dataclass(pattern) and not isinstance(pattern, type):
        names = [each.name for each in fields(pattern)]
        parts = {name: _like(getattr(pattern, name), part) for name, part in zip(names, plain, strict=True)}
        return replace(pattern, **parts)
    if isinstance(pattern, np.ndarray):
        array = np.frombuffer(plain, pattern.dtype)
        return array.reshape(pattern.shape) if pattern.size else array
    return plain


class Merge:
    """The parts of all partitions, by window and pair."""

    def __init__(self, *, kept: int) -> None:
        """Args:
        kept: milliseconds of event time after a window's start for which its parts may still change.
        """
        self._kept = kept
        self._parts: dict[tuple[int, Pair], dict[int, Partial]] = {}
        self._closed: dict[int, int] = {}  # source partition -> how far it is
        self._dirty: set[tuple[int, Pair]] = set()

    def put(self, start: int, pair: Pair, source: int, part: Partial) -> None:
        """Take what partition `source` says now."""
        self._parts.setdefault((start, pair), {})[source] = part
        self._closed[source] = max(self._closed.get(source, 0), part.closed)
        self._dirty.add((start, pair))

    def results(self) -> Iterator[tuple[int, Pair, Partial]]:
        """The windows and pairs that changed since the last call."""
        for start, pair in sorted(self._dirty):
            first, *others = self._parts[start, pair].values()
            yield start, pair, sum(others, first)
        self._dirty.clear()

    def forget(self) -> list[tuple[int, Pair, int]]:
        """Let go the parts (window, pair, source) of windows that no partition will say more about; after `results`."""
        over = [
            (start, pair, source)
            for (start, pair), parts in self._parts.items()
            if all(self._closed[source] >= start + self._kept for source in parts)
            for source in parts
        ]
        for start, pair, _ in over:
            self._parts.pop((start, pair), None)
        return over
