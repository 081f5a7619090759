"""The files of a replay: what it is about, and a file for each checkpoint with rows, counts and offsets.

A checkpoint's file appears by a rename, with its rows and the offsets behind them. So a replay that is killed goes on at the
offsets of the newest file, and no event is in two files.

If predictions also go to a topic, their transaction commits the offsets for a group of the replay's own. The file is written
before the commit under the name of a pending one, and renamed after it. If the replay is killed in between, the group's offsets
tell whether the transaction was committed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from millstream.consumers.errors import WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from millstream.consumers.record_types import Partition
    from millstream.consumers.replay.answers import Rows

ABOUT: Final = "replay.json"
_PENDING: Final = "pending.npz"
_LOCK: Final = "lock"
_DONE: Final = "done"


@dataclass(frozen=True, slots=True)
class About:
    """What a replay is about. The same command has the same, and so goes on with the same folder."""

    pipeline: str
    model: str
    version: int
    start: int  # ms since the epoch
    end: int
    output: str | None  # the topic that gets the predictions
    compared: str | None  # the compared output
    scored_by: dict[str, Any]  # see `answers.scored_by`
    group: str
    ranges: dict[Partition, tuple[int, int]]  # the offsets of the events
    read_by: dict[str, Any] = field(default_factory=dict)  # see `replayed.read_by`; empty: written before it was kept

    @property
    def events(self) -> int:
        """Offsets of the ranges: no fewer than events."""
        return sum(end - start for start, end in self.ranges.values())

    def to_json(self) -> str:
        """As the folder stores it."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "ranges"}
        ranges = [[*partition, *ends] for partition, ends in self.ranges.items()]
        return json.dumps({**plain, "ranges": ranges}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> About:
        """Undo `to_json`. Raises ValueError, KeyError, TypeError: the text is something else."""
        plain = json.loads(text)
        ranges = {(topic, number): (start, end) for topic, number, start, end in plain.pop("ranges")}
        return cls(**plain, ranges=ranges)


@dataclass(slots=True)
class Progress:
    """How far a replay is: sums over its checkpoints."""

    offsets: dict[Partition, int] = field(default_factory=dict)  # the next one of each partition that has a checkpoint
    answered: int = 0  # events with outputs
    rejected: Counter[str] = field(default_factory=Counter)  # by reason
    examples: dict[str, str] = field(default_factory=dict)  # reason -> one event and its error
    chunks: int = 0  # files
    left_out: int = 0  # events, by `input.filter`

    def add(self, part: Progress) -> None:
        """Add a checkpoint."""
        self.offsets |= part.offsets
        self.answered += part.answered
        self.left_out += part.left_out
        self.rejected += part.rejected
        self.examples = part.examples | self.examples
        self.chunks += 1

    def to_json(self) -> str:
        """As a checkpoint's file stores it."""
        offsets = [[*partition, offset] for partition, offset in self.offsets.items()]
        return json.dumps([offsets, self.answered, dict(self.rejected), self.examples, self.left_out])

    @classmethod
    def from_json(cls, text: str) -> Progress:
        """Undo `to_json`."""
        offsets, answered, rejected, examples, *more = json.loads(text)
        left_out = more[0] if more else 0  # a file from before there was a filter
        places = {(topic, at): offset for topic, at, offset in offsets}
        return cls(places, answered, Counter(rejected), examples, left_out=left_out)


class ReplayFolder:
    """A folder of one replay. One process uses it at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_about(self) -> About | None:
        """What the folder is about; None: it is new. Raises WorkerError: the file is damaged."""
        file = self.path / ABOUT
        try:
            return About.from_json(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise WorkerError(f"{file} is no description of a replay ({error}). Add --anew to begin anew.") from None

    def write_about(self, about: About) -> None:
        """Begin a replay."""
        self._write(ABOUT, lambda file: file.write(about.to_json().encode()))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others away. Raises WorkerError: another process uses the folder."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise WorkerError(
                    f"the same replay runs already: another process uses {self.path}. Wait for it, or stop it."
                ) from None
            yield

    def clear(self) -> None:
        """Delete all results."""
        for name in (ABOUT, _PENDING, _DONE):
            (self.path / name).unlink(missing_ok=True)
        for file in self._chunks():
            file.unlink()

    @property
    def is_done(self) -> bool:
        """Whether all events are done."""
        return (self.path / _DONE).exists()

    def note_done(self) -> None:
        """Note that all events are done."""
        self._write(_DONE, lambda file: file.write(b"all events are done\n"))

    def progress(self) -> Progress:
        """What is stored."""
        whole = Progress()
        for file in self._chunks():
            with np.load(file) as stored:
                whole.add(Progress.from_json(str(stored["progress"])))
        return whole

    def rows(self) -> Iterator[Rows]:
        """The rows of each checkpoint."""
        for file in self._chunks():
            with np.load(file) as stored:
                yield stored["rows"]

    def write_pending(self, rows: Rows, part: Progress) -> None:
        """Store a checkpoint that does not count yet."""
        self._write(_PENDING, lambda file: np.savez(file, rows=rows, progress=np.array(part.to_json())))

    def keep_pending(self, number: int) -> None:
        """Let the pending checkpoint count, as the one with this number."""
        (self.path / _PENDING).rename(self.path / f"checkpoint-{number:06d}.npz")
        self._sync()

    def drop_pending(self) -> None:
        """Forget the pending checkpoint."""
        (self.path / _PENDING).unlink(missing_ok=True)

    def pending(self) -> Progress | None:
        """The pending checkpoint, left by a replay that was killed; None: there is none."""
        with suppress(FileNotFoundError), np.load(self.path / _PENDING) as stored:
            return Progress.from_json(str(stored["progress"]))
        return None

    def settle(self, committed: Mapping[Partition, int]) -> None:
        """Decide on a checkpoint that was pending when the replay was killed.

        Args:
            committed: the offsets that transactions have committed.
        """
        part = self.pending()
        if part is None:
            return
        if part.offsets and all(committed.get(place, -1) >= offset for place, offset in part.offsets.items()):
            self.keep_pending(self.progress().chunks)
        else:
            self.drop_pending()

    def _chunks(self) -> list[Path]:
        return sorted(self.path.glob("checkpoint-*.npz"))

    def _write(self, name: str, write: Any) -> None:
        """Write a file so that it is there as a whole or not at all, also after a crash of the machine."""
        temporary = self.path / f"{name}.tmp"
        with temporary.open("wb") as file:
            write(file)
            _flush(file)
        temporary.rename(self.path / name)
        self._sync()

    def _sync(self) -> None:
        handle = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def left(about: About, progress: Progress) -> dict[Partition, tuple[int, int]]:
    """The offsets that are still to be read."""
    return {
        place: (max(start, progress.offsets.get(place, start)), end) for place, (start, end) in about.ranges.items()
    }
