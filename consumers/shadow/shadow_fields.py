"""Reads the fields of a shadow's model from the records of events that the primary has predicted."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from millstream.consumers.events import MicroBatch
from millstream.schemas.arrays import Ints
from millstream.schemas.decoded import Decoder
from millstream.schemas.table import Table


class ReadFields(NamedTuple):
    """The fields of the events that could be read."""

    table: Table
    events: Ints  # the place of each among the wanted events, ascending
    errors: dict[int, str]  # of the others, by place


class ShadowFields:
    """Reads the records anew, with a decoder of the shadow's own.

    If the primary's decoder read the shadow's fields, too, a wrong value in one of them would fail the primary's event.
    """

    def __init__(self, decoder: Decoder | None, looked_up: Sequence[str]) -> None:
        """Args:
        decoder: reads the event's fields that the model needs; None: it needs none.
        looked_up: the columns of look-ups that the model needs, which the blocks' `features` have.
        """
        self._decoder = decoder
        self._looked_up = looked_up

    def read(self, batch: MicroBatch, rows: Ints) -> ReadFields:
        """Read the fields of the events in these rows (at least one, ascending)."""
        looked_up = batch.features(rows, self._looked_up).columns if self._looked_up else {}
        if self._decoder is None:
            return ReadFields(Table(looked_up), np.arange(len(rows)), {})
        decoded = self._decoder.decode(batch.values(rows))
        events = decoded.rows
        columns = {**decoded.table.columns, **{name: column.take(events) for name, column in looked_up.items()}}
        return ReadFields(Table(columns), events, {bad.row: bad.error for bad in decoded.bad})
