"""Reads ranges of topics into the files of a join."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.consumers.records import Records
    from millstream.consumers.replay.answers import Rows
    from millstream.consumers.replay.buckets import Buckets
    from millstream.consumers.resilience.limited_retry import LimitedRetry
    from millstream.consumers.source.range_reader import RangeReader, Ranges


@dataclass(frozen=True, slots=True)
class Filling:
    """Puts rows of records into buckets."""

    reader: RangeReader
    buckets: Buckets
    retry: LimitedRetry  # waits while the schema registry is away
    say: Callable[[str, int], object]  # gets what is read, and how many records so far

    def add(self, ranges: Ranges, what: str, kinds: Mapping[str, Callable[[Records], Rows]]) -> None:
        """Read all records of the ranges.

        Args:
            ranges: which ones.
            what: they are, for people.
            kinds: kind of rows -> what makes these of records.

        Raises:
            WorkerError: a topic can't be read, or the schema registry stays away.
        """
        self.reader.begin(ranges)
        read = 0
        for records in self.reader:
            for kind, rows_of in kinds.items():
                self.buckets.add(kind, self.retry.call(partial(rows_of, records)))
            read += len(records)
            self.say(what, read)
