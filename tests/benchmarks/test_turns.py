"""Peers in turns: figures of a turn, and ratios of rounds."""

import pytest

from benchmarks.latency import Latency
from benchmarks.progress import Sample
from benchmarks.turns import Steady, Turn, latency_table, table, turn_of


def test_turn_ends_with_the_last_prediction_that_could_be_read() -> None:
    before = Sample(10.0, 5.0, {0: 7, 1: 3})
    samples = [Sample(10.5, 5.2, {0: 9, 1: 3}), Sample(11.0, 5.4, {0: 9, 1: 6}), Sample(12.0, 5.5, {0: 9, 1: 6})]
    turn = turn_of(before, samples, 4)
    assert turn.rate == 4
    assert turn.cpu_us == pytest.approx(0.4 / 4 * 1e6)


def test_ratios_are_those_of_the_rounds() -> None:
    """A machine that gets slower changes the figures, and not how they compare."""
    slower = [Turn(400_000.0, 2.0), Turn(200_000.0, 4.0)]
    quicker = [Turn(800_000.0, 1.0), Turn(400_000.0, 2.0)]
    lines = table(["one", "other"], [slower, quicker]).splitlines()
    assert lines[2:] == [
        "| one | 300,000 | 1.000 ± 0.000 | 3.00 | 1.000 ± 0.000 |",
        "| other | 600,000 | 2.000 ± 0.000 | 1.50 | 0.500 ± 0.000 |",
    ]


def test_error_of_the_ratio_is_that_of_its_mean() -> None:
    rounds = [Turn(100.0, 1.0)] * 4
    other = [Turn(100.0 * factor, 1.0) for factor in (0.9, 1 / 0.9, 0.9, 1 / 0.9)]
    assert "| other | 101 | 1.000 ± 0.061 |" in table(["one", "other"], [rounds, other])


def test_latencies_are_compared_round_by_round() -> None:
    one = [Steady(Latency(9, 10.0, 20.0, 30.0, 90.0), 200.0), Steady(Latency(9, 20.0, 40.0, 60.0, 90.0), 400.0)]
    other = [Steady(Latency(9, 5.0, 10.0, 15.0, 90.0), 300.0), Steady(Latency(9, 10.0, 20.0, 30.0, 90.0), 600.0)]
    assert latency_table(["one", "other"], [one, other]).splitlines()[2:] == [
        "| one | 15.0 | 30.0 | 45.0 | 1.000 ± 0.000 | 300 | 1.000 ± 0.000 |",
        "| other | 7.5 | 15.0 | 22.5 | 0.500 ± 0.000 | 450 | 1.500 ± 0.000 |",
    ]
