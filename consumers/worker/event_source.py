"""What a worker's loop needs of its source: the Kafka source, or that of a replay."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from millstream.consumers.events import FetchedBatch
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.record_types import Partition
from millstream.consumers.records import Records


class EventSource(Protocol):
    """Reads events. Only the main thread calls it. See `Source` for each method."""

    assigned_once: bool

    @property
    def topics(self) -> frozenset[str]: ...  # noqa: D102

    @property
    def idle(self) -> bool: ...  # noqa: D102

    @property
    def start_offsets(self) -> dict[Partition, int]: ...  # noqa: D102

    @property
    def lost_uncommitted(self) -> int: ...  # noqa: D102

    def subscribe(self, before_revoke: Callable[[list[Partition]], object], /) -> None: ...  # noqa: D102

    def begin(self) -> None: ...  # noqa: D102

    def poll(self, limit: int, timeout: float, window: BatchWindow | None = None, /) -> FetchedBatch | None: ...  # noqa: D102

    def pause(self, topics: frozenset[str]) -> None: ...  # noqa: D102

    def rewind(self) -> bool: ...  # noqa: D102

    def lag(self, delivered: Mapping[Partition, int], /) -> dict[Partition, int]: ...  # noqa: D102

    def refuse_past_end(self) -> None: ...  # noqa: D102

    def undelivered(self, partitions: Sequence[Partition], /) -> int: ...  # noqa: D102

    def note_running(self, records: Records, /) -> None: ...  # noqa: D102

    def note_committed(self, offsets: Mapping[Partition, int], /) -> None: ...  # noqa: D102

    def commit(self, offsets: Mapping[Partition, int], /, *, wait: bool) -> bool: ...  # noqa: D102

    def close(self, failure: BaseException | None = None, may_wait: Callable[[], bool] = ..., /) -> None: ...  # noqa: D102
