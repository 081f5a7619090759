"""A reader's state of the control topic, record by record. Pure: the records come in as bytes."""

from collections.abc import Callable
from dataclasses import dataclass

from millstream.consumers.rollout.record import BadRolloutError, RolloutRecord
from millstream.consumers.rollout.revisions import followed

Decode = Callable[[bytes], RolloutRecord]
"""As `RolloutDecoder.decode`."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One record of the topic."""

    offset: int
    record: RolloutRecord | None  # None: it can't be read, or it ends the rollout (no value)
    counts: bool  # whether it changed the state
    problem: str = ""  # why it doesn't count; empty if it does, or was there already


class ControlState:
    """The newest record that counts. A record that can't be read leaves the state as it is."""

    def __init__(self, pipeline: str) -> None:
        self._key = pipeline.encode()
        self._pipeline = pipeline
        self._last = -1  # offset of the last record, of whichever pipeline
        self._is_anew = False  # whether the topic was created anew, and `record` is still the state of the old one
        self.record: RolloutRecord | None = None
        self.problem = ""  # why the newest record can't be read; empty if it can

    @property
    def unknown(self) -> bool:
        """Whether there is a state, but nobody can tell which: its record can't be read, and older ones are gone."""
        return self.record is None and bool(self.problem)

    def see(self, offset: int, key: bytes | None, value: bytes | None, decode: Decode) -> Seen | None:
        """The state after one more record; None for a record of another pipeline, or without a key.

        Raises:
            SchemaUnavailable: the record's schema can't be had at the moment. The state is as before; try again.
        """
        # Offsets that go back are those of a topic that was created anew. Its revisions begin at 1 again. Records of other
        # pipelines may come before the first one of ours.
        self._is_anew |= offset <= self._last
        seen = self._see(offset, value, decode) if key == self._key else None
        self._is_anew &= seen is None or not seen.counts
        self._last = offset
        return seen

    def _see(self, offset: int, value: bytes | None, decode: Decode) -> Seen:
        if value is None:
            self.record, self.problem = None, ""
            return Seen(offset, None, counts=True)
        try:
            record = decode(value)
            if record.pipeline != self._pipeline:
                raise BadRolloutError(f"expected a record of {self._pipeline}, found one of {record.pipeline}")
        except BadRolloutError as error:
            self.problem = f"the record at offset {offset} can't be read: {error}"
            return Seen(offset, None, counts=False, problem=self.problem)
        found = followed(None if self._is_anew else self.record, record)
        if found.counts:
            self.record, self.problem = found.record, ""
        return Seen(offset, record, found.counts, found.why_not)
