"""The demo's events by number: real flights in order of departure, repeated in rounds. A few are broken on purpose."""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from millstream.consumers.demo.flights import encode_events
from millstream.schemas.dead_letters import DeadLetter
from millstream.schemas.rows import RowError, decode_row
from millstream.schemas.store import Schema

FIRST_ROUND = 1  # later rounds append their number to the flight's ID
BREAKAGES = ("truncated", "unknown schema id", "departure delay not a number", "too many bytes", "not Avro")
UNKNOWN_SCHEMA_ID = 424_242  # no schema of the demo has this ID


@dataclass(frozen=True, slots=True)
class DemoEvent:
    """The record of an event."""

    key: bytes | None  # the aircraft, as the example's `input.key` says; the event's ID if the event is broken
    value: bytes


class FlightStream:
    """`len(stream)` events. Event n is a row of `flights`; from round 2 on, its ID ends in `#2`, `#3`, ..."""

    def __init__(self, flights: pl.DataFrame, *, events: int, broken: int, schema: Schema) -> None:
        """Args:
        flights: rows of `flights.departures`, at least one.
        events: total number of events.
        broken: how many of them can't be processed; they are spread evenly.
        schema: the events' schema.
        """
        self._flights = flights
        self._events = events
        self._schema = schema
        self._row_of = {flight: row for row, flight in enumerate(flights["id"])}
        spots = [events * (2 * place + 1) // (2 * broken) for place in range(broken)]
        self.breakages = {spot: BREAKAGES[place % len(BREAKAGES)] for place, spot in enumerate(spots)}

    def __len__(self) -> int:
        return self._events

    def events(self, start: int, stop: int) -> list[DemoEvent]:
        """Events `start` to `stop` (exclusive), encoded."""
        events: list[DemoEvent] = []
        while start < stop:
            rounds, row = divmod(start, len(self._flights))
            rows = self._flights[row : min(row + stop - start, len(self._flights))]
            if rounds + 1 > FIRST_ROUND:
                rows = rows.with_columns(pl.format("{}#{}", "id", pl.lit(rounds + 1)).alias("id"))
            values = encode_events(rows, self._schema.id)
            for number, (flight, tail, value) in enumerate(
                zip(rows["id"], rows["tail_number"], values, strict=True), start
            ):
                breakage = self.breakages.get(number)
                if breakage is None:
                    events.append(DemoEvent(tail.encode() if tail else None, value))
                else:
                    events.append(DemoEvent(flight.encode(), self._broken(breakage, value, rows[number - start])))
            start += len(rows)
        return events

    def number_of(self, event_id: str) -> int | None:
        """The number of the event with this ID; None if the stream has no such event."""
        flight, _, rounds = event_id.partition("#")
        row = self._row_of.get(flight)
        if row is None or not (rounds.isdecimal() or not rounds):
            return None
        number = row + (int(rounds or FIRST_ROUND) - 1) * len(self._flights)
        return number if number < self._events else None

    def number_of_letter(self, letter: DeadLetter) -> int | None:
        """The number of the event in this dead letter; None if the stream has no such event."""
        number = self.number_of((letter.key or b"").decode(errors="replace"))
        if number is not None:
            return number  # the key of an event that was broken on purpose
        try:
            return self.number_of(str(decode_row(letter.value or b"", self._schema.definition)["id"]))
        except RowError:
            return None

    def late(self, numbers: Sequence[int]) -> pl.Series:
        """Whether each of these flights arrived late; null if its arrival is unknown."""
        return self._flights["late"].gather([number % len(self._flights) for number in numbers])

    def landed(self, numbers: npt.NDArray[np.int64], now: int) -> npt.NDArray[np.bool_]:
        """Whether each of these flights has landed when flight `now` departs: then its outcome is known.

        All must be of the first round.
        """
        arrived = self._flights["arrived_at"].gather(numbers)
        known: npt.NDArray[np.bool_] = (arrived <= self._flights["departed_at"][now]).fill_null(value=False).to_numpy()
        return known

    def name_of(self, number: int) -> str:
        """The flight's usual name, for example UA1545 EWR→IAH."""
        row = self._flights.row(number % len(self._flights), named=True)
        return f"{row['carrier']}{row['flight']} {row['origin']}→{row['dest']}"

    def _broken(self, breakage: str, value: bytes, row: pl.DataFrame) -> bytes:
        match breakage:
            case "truncated":
                return value[: len(value) // 2]
            case "unknown schema id":
                return struct.pack(">bI", 0, UNKNOWN_SCHEMA_ID) + value[5:]
            case "departure delay not a number":
                lost = row.with_columns(departure_delay=pl.lit(math.nan, pl.Float32))
                return encode_events(lost, self._schema.id)[0]
            case "too many bytes":
                return value + b"\0\0\0"
        return b"flight " + value[5:31]
