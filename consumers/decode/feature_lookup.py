"""The events of decoded records, and the step that adds features of a store to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from millstream.consumers.events import Rejection
from millstream.schemas.arrays import Ints
from millstream.schemas.table import Table

if TYPE_CHECKING:
    from millstream.inference.feature_store.lookup import Lookup, LookupReport


class EventPart(NamedTuple):
    """Events whose records were read together, one row each."""

    table: Table  # the wanted fields
    rows: Ints  # of their records in the poll, ascending
    times: Ints  # ms since the epoch


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """The events of a poll, before the model's tensors are filled."""

    parts: Sequence[EventPart]  # at least one
    rejected: Mapping[int, Rejection]  # by row of the poll
    left_out: Ints  # rows of events that don't pass the filter, ascending
    unread: Ints  # rows of rejected records of which the filter can't tell whether they pass, ascending
    reports: "Sequence[LookupReport]" = ()


def with_features(read: ReadEvents, lookups: "Sequence[Lookup]") -> ReadEvents:
    """The events with the columns of these look-ups. Events whose features can't be read are rejected.

    Raises:
        FeatureStoreUnavailable: the store doesn't answer now. Ask again later, with the same events.
    """
    if not lookups:
        return read
    rejected = dict(read.rejected)
    reports = list(read.reports)
    parts = []
    for table, rows, times in read.parts:
        part = EventPart(table, rows, times)
        for lookup in lookups:
            joined = lookup.join(part.table)
            reports.append(joined.report)
            rejected |= {
                int(part.rows[row]): Rejection("unfit", f"look-up `{lookup.name}`: {why}")
                for row, why in joined.wrong.items()
            }
            part = _without(part._replace(table=joined.table), list(joined.wrong))
        parts.append(part)
    return replace(read, parts=parts, rejected=rejected, reports=reports)


def _without(part: EventPart, wrong: Sequence[int]) -> EventPart:
    if not wrong:
        return part
    kept = np.delete(np.arange(len(part.rows)), wrong)
    return EventPart(part.table.take(kept), part.rows[kept], part.times[kept])
