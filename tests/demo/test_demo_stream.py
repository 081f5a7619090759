import json
import math
import struct

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.demo.example import example_folder
from millstream.consumers.demo.flights import departures
from millstream.consumers.demo.stream import BREAKAGES, FlightStream
from millstream.schemas.dead_letters import DeadLetter
from millstream.schemas.rows import RowError, decode_row
from millstream.schemas.store import Schema

DEFINITION = json.loads((example_folder() / "schemas" / "1-flight-departure.avsc").read_text())
FLIGHTS = departures([9]).head(50)


def stream(events: int, broken: int = 0) -> FlightStream:
    return FlightStream(FLIGHTS, events=events, broken=broken, schema=Schema(1, "flight-departure", DEFINITION))


def letter(key: bytes | None, value: bytes | None) -> DeadLetter:
    return DeadLetter(
        reason="unfit",
        error="",
        pipeline="p",
        topic="in",
        partition=0,
        offset=0,
        timestamp=0,
        failed_at=0,
        key=key,
        value=value,
    )


def test_rounds_repeat_the_flights_under_ids_of_their_own() -> None:
    flights = stream(130)
    ids = [decode_row(event.value, DEFINITION)["id"] for event in flights.events(0, 130)]
    assert ids[:50] == FLIGHTS["id"].to_list()
    assert ids[50] == f"{FLIGHTS['id'][0]}#2"
    assert ids[129] == f"{FLIGHTS['id'][29]}#3"
    assert [flights.number_of(event_id) for event_id in ids] == list(range(130))


@given(st.data())
def test_chunks_make_the_same_events_as_one_go(data: st.DataObject) -> None:
    flights = stream(130, broken=7)
    start = data.draw(st.integers(0, 130))
    stop = data.draw(st.integers(start, 130))
    ours, all_ = flights.events(start, stop), flights.events(0, 130)
    assert ours == all_[start:stop]


@pytest.mark.parametrize("other", ["", "#", "#2", "no flight", f"{FLIGHTS['id'][0]}#4", f"{FLIGHTS['id'][0]}#x"])
def test_id_of_no_event_has_no_number(other: str) -> None:
    assert stream(130).number_of(other) is None


@given(st.integers(1, 400), st.data())
def test_so_many_events_are_broken_as_asked(events: int, data: st.DataObject) -> None:
    broken = data.draw(st.integers(0, events))
    spots = sorted(stream(events, broken).breakages)
    assert len(spots) == broken
    assert all(0 <= spot < events for spot in spots)


def test_each_breakage_is_what_it_says_and_keeps_its_event_known() -> None:
    flights = stream(50, broken=len(BREAKAGES))
    events = flights.events(0, 50)
    for spot, breakage in flights.breakages.items():
        event = events[spot]
        assert flights.number_of_letter(letter(event.key, event.value)) == spot
        if breakage == "departure delay not a number":
            assert decode_row(event.value, DEFINITION)["departure_delay"] == "NaN"
        elif breakage == "unknown schema id":
            assert struct.unpack(">bI", event.value[:5]) != (0, 1)
        else:
            with pytest.raises(RowError):
                decode_row(event.value, DEFINITION)


def test_dead_letter_of_a_sound_event_is_known_by_the_id_inside() -> None:
    flights = stream(60)
    event = flights.events(55, 56)[0]
    assert flights.number_of_letter(letter(event.key, event.value)) == 55
    assert flights.number_of_letter(letter(b"N1", b"junk")) is None
    assert flights.number_of_letter(letter(b"\xff", None)) is None


def test_outcomes_repeat_with_the_flights() -> None:
    flights = stream(130)
    assert flights.late([3, 53, 103]).to_list() == [FLIGHTS["late"][3]] * 3
    row = FLIGHTS.row(3, named=True)
    assert flights.name_of(53) == f"{row['carrier']}{row['flight']} {row['origin']}→{row['dest']}"


def test_lost_delay_is_broken_for_version_two_only() -> None:
    flights = stream(50, broken=len(BREAKAGES))
    spot = next(spot for spot, breakage in flights.breakages.items() if "delay" in breakage)
    row = decode_row(flights.events(spot, spot + 1)[0].value, DEFINITION)
    sound = FLIGHTS.row(spot, named=True)
    assert math.isfinite(row["distance"])
    assert (row["id"], row["distance"]) == (sound["id"], sound["distance"])


def test_flights_without_a_tail_number_have_no_key() -> None:
    bare = FLIGHTS.with_columns(tail_number=pl.lit(None, pl.String))
    flights = FlightStream(bare, events=1, broken=0, schema=Schema(1, "flight-departure", DEFINITION))
    assert flights.events(0, 1)[0].key is None
