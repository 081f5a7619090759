"""Files in which rows with equal IDs lie together, so that rows of many events can be joined in a bounded memory."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from types import TracebackType

    from millstream.consumers.replay.answers import Rows

EVENTS: Final = 400_000  # of a bucket, about
MOST: Final = 256  # buckets


class Buckets:
    """Rows of several kinds, split by the last bits of their IDs. A context manager; its files are temporary."""

    def __init__(self, events: int, folder: Path) -> None:
        """Args:
        events: about so many IDs will come.
        folder: where to make a temporary folder.
        """
        self.count = min(max(-(-events // EVENTS), 1), MOST)
        self._folder = TemporaryDirectory(prefix="join-", dir=folder)
        self._types: dict[str, np.dtype[np.void]] = {}

    def add(self, kind: str, rows: Rows) -> None:
        """Add rows; within an ID, they keep their order."""
        if not len(rows):
            return
        self._types[kind] = rows.dtype
        places = (rows["id"] % np.uint64(self.count)).astype(np.int64)
        order = np.argsort(places, kind="stable")
        ends = np.bincount(places, minlength=self.count).cumsum()
        ordered = rows[order]
        for bucket, (start, end) in enumerate(zip(ends - np.diff(ends, prepend=0), ends, strict=True)):
            if end > start:
                with self._file(kind, bucket).open("ab") as file:
                    file.write(ordered[start:end].tobytes())

    def firsts(self, kind: str, bucket: int) -> tuple[Rows, int]:
        """The first row of each ID, ascending by ID; and how many further ones there are."""
        file = self._file(kind, bucket)
        if kind not in self._types or not file.exists():
            return np.zeros(0, self._types.get(kind, np.dtype([("id", "<u8")]))), 0
        rows = np.fromfile(file, self._types[kind])
        _, firsts = np.unique(rows["id"], return_index=True)
        return rows[firsts], len(rows) - len(firsts)

    def _file(self, kind: str, bucket: int) -> Path:
        return Path(self._folder.name) / f"{kind}-{bucket}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()


def places_of(
    ids: Rows | npt.NDArray[np.uint64], among: Rows | npt.NDArray[np.uint64]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Where each ID is among others (ascending), and whether it is there at all."""
    if not len(among):
        return np.zeros(len(ids), np.int64), np.zeros(len(ids), np.bool_)
    places = np.minimum(np.searchsorted(among, ids), len(among) - 1)
    return places, among[places] == ids
