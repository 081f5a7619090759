"""Adds the fields of a store's entries to a table of events: one column for each field, one request for all events."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import FeatureStoreUnavailable
from millstream.inference.feature_store.fallback import Fallback
from millstream.inference.feature_store.interface import Entities, Entries, Keys
from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.column import Column, NumberColumn
from millstream.schemas.dtypes import Dtype
from millstream.schemas.lookup_columns import age_column_of, column_of
from millstream.schemas.table import Table

_NO_AGES = np.empty(0)


@dataclass(frozen=True, slots=True)
class LookupReport:
    """What became of the events of one look-up."""

    name: str  # of the look-up
    outcomes: Mapping[str, int]  # found, missing, stale, invalid and unavailable -> the number of events
    ages: npt.NDArray[np.float64]  # of the entries that were found, seconds, one for each event


class Joined(NamedTuple):
    """Events with their features."""

    table: Table  # the events, in the same order, with the columns of the look-up
    wrong: dict[int, str]  # row of an event whose features can't be read -> why; the columns may have any values there
    report: LookupReport


@dataclass(frozen=True, slots=True)
class Lookup:
    """One look-up of a pipeline. One thread uses it."""

    name: str
    entities: Entities
    with_age: bool = False  # whether the table gets the age of each event's entry, too
    max_age: float | None = None  # seconds after which an entry counts as missing; None: any age
    fallback: Fallback | None = None  # None: events wait while the store is away
    clock: Callable[[], float] = field(default=time.time, compare=False)  # seconds since 1970

    @property
    def columns(self) -> dict[str, Dtype]:
        """The columns that it adds, with their types."""
        return {column_of(self.name, path): dtype for path, dtype in self.entities.columns.items()}

    def join(self, events: Table) -> Joined:
        """Look up the features of the events. Each key is asked for once.

        A feature is null if the store has none, or an older one than `max_age`, and for an event with a null in its key.

        Args:
            events: with the columns of the key.

        Raises:
            FeatureStoreUnavailable: the store doesn't answer in time, and there is no `fallback`. Ask again later.
        """
        found = self.entities.keys(events)
        distinct, rows = _distinct(found, with_none=self.max_age is not None)
        entries = self._entries(distinct)
        if entries is None:
            entries = self.entities.read([None])
            count, invalid = len(events), len(found.wrong)
            return Joined(
                self._with_columns(events, entries, np.zeros(count, np.int64), np.full(count, np.nan)),
                dict(found.wrong),
                LookupReport(self.name, {"unavailable": count - invalid, "invalid": invalid}, _NO_AGES),
            )
        wrong = dict(found.wrong) | _of_events(entries.wrong, rows)
        ages = np.full(len(distinct), np.nan) if entries.updated is None else self.clock() - entries.updated
        stale = (
            np.zeros(len(distinct), np.bool_) if self.max_age is None else entries.is_there & ~(ages <= self.max_age)
        )
        report = self._report(entries.is_there[rows], stale[rows], ages[rows], wrong)
        fresh = np.where(stale[rows], 0, rows)
        return Joined(self._with_columns(events, entries, fresh, ages[rows]), wrong, report)

    def _entries(self, keys: Sequence[Hashable | None]) -> Entries | None:
        """The entries; None: the store is away, and the features count as missing."""
        if self.fallback is None or not any(key is not None for key in keys):  # without keys, the store isn't asked
            return self.entities.read(keys)
        if not self.fallback.is_due():
            return None
        try:
            entries = self.entities.read(keys)
        except FeatureStoreUnavailable as error:
            self.fallback.failed(error)
            return None
        self.fallback.worked()
        return entries

    def _with_columns(self, events: Table, entries: Entries, rows: Ints, ages: npt.NDArray[np.float64]) -> Table:
        """The events with the entries in these rows, and with these ages."""
        columns: dict[str, Column] = {
            column_of(self.name, path): entries.table[path].take(rows) for path in self.entities.columns
        }
        if self.with_age:
            columns[age_column_of(self.name)] = NumberColumn(ages, ~np.isnan(ages))
        return Table({**events.columns, **columns})

    def _report(
        self, is_there: Mask, stale: Mask, ages: npt.NDArray[np.float64], wrong: Mapping[int, str]
    ) -> LookupReport:
        """The report, given the values of each event."""
        is_wrong = np.zeros(len(is_there), np.bool_)
        is_wrong[list(wrong)] = True
        used = is_there & ~stale & ~is_wrong
        outcomes = {
            "found": used,
            "missing": ~is_there & ~is_wrong,
            "stale": stale & ~is_wrong,
            "invalid": is_wrong,
        }
        # The clocks of two machines differ, so an entry may seem to be of the future.
        known = np.maximum(ages[used & ~np.isnan(ages)], 0.0)
        return LookupReport(self.name, {name: int(mask.sum()) for name, mask in outcomes.items()}, known)


def _distinct(found: Keys, *, with_none: bool) -> tuple[list[Hashable | None], Ints]:
    """The keys, each once; and for each event, the row of its key among them.

    None is the first one if an event has no key, or if the caller needs it. Otherwise it is left out, because columns without
    nulls are made in half the time.
    """
    keys = _usable(found)
    place: dict[Hashable | None, int] = {None: 0} if with_none or None in keys or not keys else {}
    rows = np.fromiter((place.setdefault(key, len(place)) for key in keys), np.int64, len(keys))
    return list(place), rows


def _usable(found: Keys) -> Sequence[Hashable | None]:
    """The key of each event; None where it can't be used."""
    if not found.wrong:
        return found.keys
    return [None if row in found.wrong else key for row, key in enumerate(found.keys)]


def _of_events(wrong: Mapping[int, str], rows: Ints) -> dict[int, str]:
    """The messages about entries, by the row of each event that has such an entry."""
    if not wrong:
        return {}
    events = np.flatnonzero(np.isin(rows, list(wrong))).tolist()
    return {event: wrong[int(rows[event])] for event in events}
