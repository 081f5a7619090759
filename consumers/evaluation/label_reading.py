"""Reads the labels of a step apart from its events: while labels can't be read, errors and latency are still known."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from millstream.consumers.evaluation.intake import LabelIntake
from millstream.schemas.errors import SchemaError, SchemaUnavailable
from millstream.topics.errors import BrokerUnreachableError, TopicError
from millstream.topics.since_reader import SinceReader

if TYPE_CHECKING:
    from millstream.consumers.evaluation.rows import Rows
    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.store import SchemaStore
    from millstream.topics.since_reader import Fetched

RETRY: Final = 30.0  # seconds between two attempts to read labels that can't be read
STALLED: Final = (
    60.0  # seconds without a record from a partition that has some: its broker is away, and no error says so
)


class LabelReading:
    """See the module. For one thread.

    If labels can't be read, `problem` says why. Later, they are read again from the beginning: the events are still there. If a
    partition only stalls, its reading goes on where it was.
    """

    def __init__(self, pipeline: Pipeline, settings: StepSettings, store: SchemaStore) -> None:
        """Connect.

        Args:
            pipeline: with labels.
            settings: of the step.
            store: of the schemas.

        Raises:
            SchemaUnavailable: the registry does not answer.
        """
        self._pipeline = pipeline
        self._settings = settings
        self._store = store
        self.problem = ""  # why labels can't be read, or not all have been read again; empty: they can
        self._intake: LabelIntake | None = None
        self._reader: SinceReader | None = None  # None: labels can't be read
        self._lost = (
            0.0  # when reading began or stalled, ms since the epoch: labels until then must be read again or at last
        )
        self._left: dict[tuple[str, int, int], float] = {}  # `SinceReader.left` -> since when, on the monotonic clock
        self._again = 0.0  # when to try again, on the monotonic clock
        self._try_to_open()

    def read(self, limit: int, timeout: float, until: float) -> list[Fetched]:
        """Up to `limit` records. If there are none, it waits up to `timeout` seconds. Raises as the constructor.

        Args:
            limit: most records.
            timeout: seconds.
            until: labels after this time are left for later, ms since the epoch: they would have to wait for their events.
        """
        if self._reader is None and time.monotonic() >= self._again:
            self._try_to_open()
        # At its end, `read_until` is infinite, and says nothing of the labels that came since then.
        if self._reader is None or (not self._reader.is_at_end and self._reader.read_until > until):
            self._left.clear()
            return []
        try:
            found = self._reader.read(limit, timeout)
        except TopicError as error:
            self._failed(error)
            return []
        self._watch(self._reader)
        if self._reader.is_at_end or self._reader.read_until >= self._lost:
            self.problem = ""
        return list(found.values())

    def rows(self, fetched: Fetched) -> Rows:
        """The rows of records that `read` returned. Raises SchemaUnavailable."""
        assert self._intake is not None
        return self._intake.rows(fetched)

    @property
    def behind(self) -> int:
        """Records that are not read yet, as far as the broker has said."""
        return 0 if self._reader is None else self._reader.behind

    @property
    def read_until(self) -> float:
        """All labels before this time were read, ms since the epoch. With a problem, nobody should wait for them: infinite."""
        return math.inf if self._reader is None or self.problem else self._reader.read_until

    @property
    def is_at_end(self) -> bool:
        """Whether all that was there has been read. With a problem, nobody should wait for the rest."""
        return self._reader is None or bool(self.problem) or self._reader.is_at_end

    def refresh(self) -> None:
        """See `SinceReader.refresh`."""
        if self._reader is not None:
            self._reader.refresh()

    def close(self) -> None:
        """Close the connection."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _try_to_open(self) -> None:
        section, settings = self._pipeline.labels, self._settings
        assert section is not None
        try:
            self._intake = LabelIntake(section, settings, self._store)
            self._reader = SinceReader(self._pipeline.client_config(), {section.topic: settings.begin - settings.early})
            self._lost = time.time() * 1000
        except SchemaUnavailable:
            raise
        # The reader of the events has connected, so if no broker answers here, a partition of the labels has no leader.
        except (BrokerUnreachableError, TopicError, SchemaError) as error:
            self._failed(error)

    def _watch(self, reader: SinceReader) -> None:
        """Notice partitions that stall: the client asks a lost leader again without an error."""
        now = time.monotonic()
        self._left = {own: self._left.get(own, now) for own in reader.left}
        stalled = sorted((*own[:2], now - since) for own, since in self._left.items() if now - since >= STALLED)
        if stalled and not self.problem:
            topic, partition, passed = stalled[0]
            self.problem = f"topic {topic}, partition {partition}: nothing was read for {passed:.0f} s, but it has more"
            self._lost = time.time() * 1000

    def _failed(self, error: Exception) -> None:
        self.close()
        self._left.clear()
        self.problem, self._again = str(error).rstrip("."), time.monotonic() + RETRY
