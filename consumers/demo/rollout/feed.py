"""Writes departures at a steady rate, and each flight's outcome when it has landed: so labels come late."""

import threading
import time
from collections.abc import Sequence

import polars as pl

from millstream.consumers.demo.flight_writer import FlightWriter
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.store import SchemaStore

TICK = 0.05  # seconds between two writes
FIRST_ROUND = 1  # later rounds append their number to the flight's ID


class Flights:
    """Departures by number, in order. After the last one, they begin again in another round, with other IDs."""

    def __init__(self, flights: pl.DataFrame) -> None:
        """`flights`: rows of `departures`."""
        self._flights = flights
        self._ids: Sequence[str] = flights["id"].to_list()
        self._number_of = {flight: row for row, flight in enumerate(self._ids)}
        landed = flights.with_row_index("row").filter(pl.col("late").is_not_null()).sort("arrived_at")
        self._landings: Sequence[tuple[int, int, bool]] = landed.select("arrived_at", "row", "late").rows()

    def rows(self, start: int, stop: int) -> pl.DataFrame:
        """Events `start` to `stop` (exclusive)."""
        parts = []
        while start < stop:
            rounds, row = divmod(start, len(self._flights))
            part = self._flights[row : min(row + stop - start, len(self._flights))]
            if rounds + 1 > FIRST_ROUND:
                part = part.with_columns(pl.format("{}#{}", "id", pl.lit(rounds + 1)).alias("id"))
            parts.append(part)
            start += len(part)
        return pl.concat(parts)

    def number_of(self, event_id: str) -> int | None:
        """The number of the event with this ID; None if there is none."""
        flight, _, rounds = event_id.partition("#")
        row = self._number_of.get(flight)
        if row is None or not (rounds.isdecimal() or not rounds):
            return None
        return row + (int(rounds or FIRST_ROUND) - 1) * len(self._flights)

    def landings(self, events: int, known: int) -> tuple[list[tuple[str, bool]], int]:
        """The flights that have landed by the departure of the last of these events.

        Args:
            events: how many have departed, at least 1.
            known: how many landings were returned before.

        Returns:
            ID and whether it was late, of the next ones; and how many landings are known then.
        """
        found: list[tuple[str, bool]] = []
        latest, row = divmod(events - 1, len(self._flights))
        now = self._flights["departed_at"][row]
        while True:
            rounds, place = divmod(known, len(self._landings))
            arrived_at, landed, late = self._landings[place]
            if rounds > latest or (rounds == latest and arrived_at > now):
                return found, known
            name = self._ids[landed]
            found.append((name if rounds + 1 == FIRST_ROUND else f"{name}#{rounds + 1}", late))
            known += 1


class Feed(threading.Thread):
    """See the module. The events have no key: each flight is routed by its ID."""

    def __init__(self, pipeline: Pipeline, store: SchemaStore, flights: Flights, rate: float) -> None:
        """Args:
        pipeline: with labels of `flights.ARRIVAL_SCHEMA`.
        store: its schemas.
        flights: the events.
        rate: events per second.
        """
        super().__init__(name="feed", daemon=True)
        self._writer = FlightWriter(pipeline, store)
        self._flights = flights
        self._rate = rate
        self._stopping = threading.Event()
        self._known = 0  # landings
        self.sent = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        """Write until stopped. An error ends the thread and is stored in `failure`."""
        started = time.monotonic()
        try:
            while not self._stopping.wait(TICK):
                self._write(int((time.monotonic() - started) * self._rate) - self.sent)
            self._writer.flush()
        except Exception as error:
            self.failure = error

    def stop(self) -> None:
        """Write no more events, and wait until Kafka has acknowledged those written."""
        self._stopping.set()
        if self.is_alive():
            self.join()

    def _write(self, count: int) -> None:
        if count < 1:
            return
        self._writer.depart(self._flights.rows(self.sent, self.sent + count), keyed=False)
        self.sent += count
        landed, self._known = self._flights.landings(self.sent, self._known)
        for flight, late in landed:
            self._writer.arrive(flight, late)
