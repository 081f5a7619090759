"""The end of the reload demo: when it is as it should be, and when not."""

from __future__ import annotations

import json
from io import StringIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from rich.console import Console

from millstream.consumers.demo.example import example_folder
from millstream.consumers.demo.flights import departures
from millstream.consumers.demo.reload import Progress
from millstream.consumers.demo.results import Results
from millstream.consumers.demo.stream import FlightStream
from millstream.schemas.store import Schema

if TYPE_CHECKING:
    from millstream.consumers.demo.collector import Collector
    from millstream.consumers.demo.feeder import Feeder

EVENTS = 2000
GOOD, GUESS, WRONG = 0.9, 0.5, 0.1  # what a version says of a flight that arrived late


@pytest.fixture(scope="module")
def stream() -> FlightStream:
    definition = json.loads((example_folder() / "schemas" / "1-flight-departure.avsc").read_text())
    schema = Schema(1, "flight-departure", definition)
    return FlightStream(departures([9]).head(EVENTS), events=EVENTS, broken=0, schema=schema)


def concluded(
    stream: FlightStream, first: float, second: float, *, answered: int = EVENTS, switch: int = EVENTS // 2
) -> tuple[bool, str]:
    """What the demo says if its versions say this of late flights, and the opposite of punctual ones."""
    results = Results(EVENTS)
    for number, late in enumerate(stream.late(range(answered))):
        version, said = (1, first) if number < switch else (2, second)
        results.predicted(number, said if late else 1 - said, 5.0, version)
    out = StringIO()
    feeder, collector = SimpleNamespace(sent=EVENTS), SimpleNamespace(results={1: results}, answered=lambda: answered)
    progress = Progress(stream, cast("Feeder", feeder), cast("Collector", collector), Console(file=out, width=200))
    progress.added()
    progress.show()
    return progress.conclude(), out.getvalue()


def test_better_version_without_a_lost_event_is_as_it_should_be(stream: FlightStream) -> None:
    good, said = concluded(stream, GUESS, GOOD)
    assert good
    assert "--> version 2 answers" in said
    assert (
        "2,000 predictions for 2,000 events: 1,000 by version 1, 1,000 by version 2, 0 without a result, 0 twice"
        in said
    )
    assert "version 1: AUC 0.500" in said
    assert "version 2: AUC 1.000" in said
    assert said.endswith("No event was lost, and the AUC went up.\n")


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": GUESS, "second": GOOD, "answered": EVENTS - 1},
        {"first": GOOD, "second": WRONG},
        {"first": GUESS, "second": GOOD, "switch": EVENTS},
    ],
    ids=["an event is lost", "the AUC fell", "version 2 never answered"],
)
def test_demo_that_shows_something_else_says_so(stream: FlightStream, wrong: dict[str, float]) -> None:
    good, said = concluded(stream, **wrong)  # type: ignore[arg-type]
    assert not good
    assert said.endswith("This is not as it should be.\n")


def test_outcome_is_known_once_a_flight_has_landed(stream: FlightStream) -> None:
    numbers = np.arange(EVENTS)
    known = [int(stream.landed(numbers, now).sum()) for now in (0, EVENTS // 2, EVENTS - 1)]
    assert known[0] == 0
    assert known[0] < known[1] < known[2] < EVENTS
    assert not stream.landed(np.array([EVENTS - 1]), EVENTS - 1)[0], "it is in the air"
