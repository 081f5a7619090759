import json

import pytest

from millstream.consumers.demo.example import example_folder
from millstream.consumers.demo.flights import departures
from millstream.consumers.demo.results import Results
from millstream.consumers.demo.stream import FlightStream
from millstream.consumers.demo.summary import Sent, summary
from millstream.schemas.store import Schema

DEFINITION = json.loads((example_folder() / "schemas" / "1-flight-departure.avsc").read_text())


@pytest.fixture(scope="module")
def stream() -> FlightStream:
    schema = Schema(1, "flight-departure", DEFINITION)
    return FlightStream(departures([9]).head(300), events=300, broken=1, schema=schema)


def answered(stream: FlightStream, events: int) -> Results:
    """Answers that know the outcome; the last event is dead."""
    results = Results(len(stream))
    for number, late in enumerate(stream.late(range(events - 1))):
        results.predicted(number, 0.9 if late else 0.1, 5.0)
    results.died(events - 1, "undecodable")
    return results


def test_whole_run_adds_up_and_is_ranked(stream: FlightStream) -> None:
    text = summary(Sent(300, 2.0, 150.0, 0.0, 1), stream, {1: answered(stream, 300)})
    assert "Sent       300 events in 2.0 s, 150/s, 1 of them broken on purpose\n" in text
    assert "299 predictions + 1 dead letter = 300 of 300 events: adds up\n" in text
    assert "undecodable 1; written twice: 0" in text
    assert "AUC 1.000" in text
    assert "version 1: 90% late; arrived late" in text
    assert "version 1: 10% late; arrived on time" in text


def test_lost_events_are_said_aloud(stream: FlightStream) -> None:
    text = summary(Sent(300, 2.0, 150.0, 0.0, 1), stream, {1: answered(stream, 298)})
    assert "= 298 of 300 events: DOES NOT ADD UP, 2 without a result\n" in text


def test_rate_that_could_not_be_held_is_said_aloud(stream: FlightStream) -> None:
    results = {1: answered(stream, 300)}
    assert "too fast for this machine: for 1.5 s" in summary(Sent(300, 2.0, 150.0, 1.5, 1), stream, results)
    assert "too fast" not in summary(Sent(300, 2.0, 0.0, 1.5, 1), stream, results)


def test_run_of_a_single_event_has_no_ranking(stream: FlightStream) -> None:
    results = Results(len(stream))
    results.predicted(0, 0.5, 1.0)
    assert "AUC unknown" in summary(Sent(1, 0.0, 0.0, 0.0, 0), stream, {1: results})


def test_server_of_the_model_is_named(stream: FlightStream) -> None:
    sent, results = Sent(300, 2.0, 150.0, 0.0, 1), {1: answered(stream, 300)}
    assert "\nModel      on Triton 2.51.0\n" in summary(sent, stream, results, model="on Triton 2.51.0")
    assert "Model" not in summary(sent, stream, results)
