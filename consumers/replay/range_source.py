"""The source of a replay: takes the place of the Kafka source in a worker, and reads ranges of offsets instead of a group's."""

import time
from collections.abc import Callable, Mapping, Sequence

from millstream.consumers.events import FetchedBatch
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.record_types import Partition
from millstream.consumers.records import Records
from millstream.consumers.replay.pace import Pace
from millstream.consumers.source.range_reader import RangeReader, Ranges


class RangeSource:
    """Reads the events of a replay. Has the methods of `Source` that a worker's loop calls. Only the main thread calls it."""

    def __init__(
        self,
        reader: RangeReader,
        begin: Callable[[], Ranges],
        *,
        assignment: Assignment,
        rate: float | None,
        on_turn: Callable[[int], object] = lambda _read: None,
    ) -> None:
        """Args:
        reader: reads the records.
        begin: returns what is still to be read: at the start, and after an aborted transaction.
        assignment: gets the partitions.
        rate: events per second; None: as fast as possible.
        on_turn: gets the number of records read so far, about once per read.
        """
        self._reader = reader
        self._begin = begin
        self._assignment = assignment
        self._pace = Pace(rate, time.monotonic())
        self._on_turn = on_turn
        self._paused = False
        self._read = 0  # records
        self.start_offsets: dict[Partition, int] = {}
        self.assigned_once = False
        self.lost_uncommitted = 0  # no partition is ever lost

    @property
    def topics(self) -> frozenset[str]:
        """The input topics that have something to read."""
        return frozenset(topic for topic, _ in self._assignment.epochs)

    @property
    def idle(self) -> bool:
        """Whether all records are read."""
        return self._reader.done

    def subscribe(self, _before_revoke: Callable[[list[Partition]], object]) -> None:
        """Begin to read. No partition is ever revoked."""
        ranges = self._begin()
        self._assignment.group_metadata = self._reader.group_metadata
        self._assignment.add([partition for partition, (start, end) in ranges.items() if start < end])
        self.start_offsets = {partition: start for partition, (start, _) in ranges.items()}
        self._reader.begin(ranges)
        self.assigned_once = True

    def begin(self) -> None:
        """Nothing is to be done at the start of a turn."""
        self._on_turn(self._read)

    def poll(self, limit: int, timeout: float, _window: BatchWindow | None = None) -> FetchedBatch | None:
        """Read up to `limit` records, as fast as the rate allows. Raises WorkerError: a partition can't be read."""
        room = self._pace.room(limit, time.monotonic())
        if not room or self._paused:
            time.sleep(timeout if self._paused else min(self._pace.wait(), timeout))
            return None
        records = self._reader.read(room, timeout)
        if not records:
            return None
        self._pace.took(len(records))
        self._read += len(records)
        return FetchedBatch(records, self._assignment.epochs, time.monotonic(), time.time_ns() // 1_000_000)

    def pause(self, topics: frozenset[str]) -> None:
        """Pause all topics, or resume them."""
        if bool(topics) != self._paused:
            self._paused = bool(topics)
            self._reader.pause(pause=self._paused)

    def rewind(self) -> bool:
        """Go back to what is stored, after an aborted transaction."""
        self._assignment.renew()
        self._reader.begin(self._begin())
        self._paused = False
        return True

    def lag(self, _delivered: Mapping[Partition, int]) -> dict[Partition, int]:
        """There is no lag: nobody waits for the results."""
        return {}

    def refuse_past_end(self) -> None:
        """A replay reads up to the ends that it has asked for."""

    def undelivered(self, _partitions: Sequence[Partition]) -> int:
        """Nobody takes a replay's partitions away."""
        return 0

    def note_running(self, _records: Records) -> None:
        """A replay counts no crashes."""

    def note_committed(self, _offsets: Mapping[Partition, int]) -> None:
        """The sink has stored them."""

    def commit(self, _offsets: Mapping[Partition, int], *, wait: bool) -> bool:  # noqa: ARG002
        """The sink stores the offsets."""
        return True

    def close(self, _failure: BaseException | None = None, _may_wait: Callable[[], bool] = lambda: True) -> None:
        """Close the connections."""
        self._reader.close()
