"""The control topic as autopilot uses it: what is new, and changes by compare-and-set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from millstream.consumers.autopilot.history import History

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.control.state import Seen
    from millstream.consumers.control.writer import Reader
    from millstream.consumers.rollout.record import RolloutRecord


class Writer(Protocol):
    """As `ControlWriter`."""

    def write(self, record: RolloutRecord, check: Callable[[], None]) -> None:
        """Write a change, if nobody else made one in between, and `check` allows it."""


class TopicReader(Protocol):
    """As `ControlReader`."""

    @property
    def record(self) -> RolloutRecord | None:
        """The newest record that counts."""
        ...

    @property
    def unknown(self) -> bool:
        """Whether there is a state, but nobody can tell which."""
        ...

    @property
    def problem(self) -> str:
        """Why the newest state may be unknown here; empty if it is known."""
        ...

    def read_to_end(self) -> list[Seen]:
        """Read all records that are committed now."""
        ...


class Control:
    """See the module. For one thread."""

    def __init__(self, reader: TopicReader, writer: Callable[[Reader], Writer]) -> None:
        """Args:
        reader: of the topic.
        writer: opens a writer that reads with this reader.
        """
        self._reader = reader
        self._open_writer = writer
        self._writer: Writer | None = None
        self._new: list[RolloutRecord] = []
        self.history = History()

    @property
    def record(self) -> RolloutRecord | None:
        """The newest record that counts."""
        return self._reader.record

    @property
    def unknown(self) -> bool:
        """See `TopicReader`."""
        return self._reader.unknown

    @property
    def problem(self) -> str:
        """See `TopicReader`."""
        return self._reader.problem

    def read_to_end(self) -> list[Seen]:
        """Read all, and remember what is new: writers read, too. Raises as `ControlReader.read_to_end`."""
        seen = self._reader.read_to_end()
        for own in seen:
            if own.counts and own.record is not None:
                self.history.see(own.record)
                self._new.append(own.record)
        return seen

    def take_new(self) -> list[RolloutRecord]:
        """The changes that were read since the last call, in their order: own ones, and those of others."""
        new, self._new = self._new, []
        return new

    def write(self, record: RolloutRecord, check: Callable[[], None]) -> None:
        """Write a change. Raises as `ControlWriter.write`: ChangeRefusedError if somebody else made one in between."""
        if self._writer is None:
            self._writer = self._open_writer(self)
        self._writer.write(record, check)  # it reads the change back with this reader
