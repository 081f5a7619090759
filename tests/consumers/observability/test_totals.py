"""What a worker has done, in one line that `millstream run` reads again."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest

from millstream.consumers.observability import metrics as m
from millstream.consumers.observability.totals import Totals, total

WORKED = (
    "totals: 4,003 events read, 3,980 predicted, 20 dead letters (12 unfit, 8 undecodable), 3 skipped (3 expired), 4 tombstones, "
    "90 compared by shadows, 4 comparisons with an error of the shadow, 12 not compared by shadows (10 shed, 2 undelivered)"
)


def worked() -> Totals:
    metrics = m.Metrics("p")
    metrics.count(m.RECORDS_READ, 3907, "in")
    metrics.count(m.RECORDS_READ, 100, "also-in")
    metrics.count(m.PREDICTIONS, 3980, "m", "1", "primary")
    metrics.count(m.DEAD_LETTERS, 12, "unfit")
    metrics.count(m.DEAD_LETTERS, 8, "undecodable")
    metrics.count(m.SKIPPED, 3, "expired")
    metrics.count(m.TOMBSTONES, 4)
    metrics.count(m.COMPARISONS, 92, "v2")
    metrics.count(m.SHADOW_FAILED, 4, "v2")
    metrics.count(m.SHADOW_SKIPPED, 9.7, "v2", "shed")
    metrics.count(m.SHADOW_SKIPPED, 2, "v2", "undelivered")  # of the comparisons made
    return Totals.of_metrics(generate_latest(metrics.registry).decode())


def test_totals_of_a_worker_are_one_line() -> None:
    assert str(worked()) == WORKED


def test_replaced_values_are_named_by_field_whatever_is_in_its_path() -> None:
    metrics = m.Metrics("p")
    metrics.count(m.RECORDS_READ, 2000, "in")
    metrics.count(m.PREDICTIONS, 2000, "m", "1", "primary")
    metrics.count(m.MISSING_VALUES, 1500, "m", "customer.age")
    metrics.count(m.MISSING_VALUES, 3, "m", 'tags["a, (b)"]')
    metrics.count(m.MISSING_VALUES, 0, "m", "never")
    metrics.count(m.UNKNOWN_VALUES, 7, "m", "items[].color")
    totals = Totals.of_metrics(generate_latest(metrics.registry).decode())
    assert str(totals) == (
        'totals: 2,000 events read, 2,000 predicted, 1,503 missing values filled (1,500 customer.age, 3 tags["a___b_"]), '
        "7 values outside a vocabulary (7 items[].color)"
    )
    assert Totals.of_line(f"2026-01-01 00:00:00,000 INFO millstream: {totals}") == totals


def test_line_names_a_dozen_fields_at_most() -> None:
    metrics = m.Metrics("p")
    for number in range(40):
        metrics.count(m.MISSING_VALUES, 100 - number, "m", f"f{number}")
    totals = Totals.of_metrics(generate_latest(metrics.registry).decode())
    named = str(totals).partition("filled (")[2]
    assert named.count(" f") == 11
    assert named.startswith("100 f0, ")
    assert sum(totals.counts.values()) == sum(Totals.of_line(f"millstream: {totals}").counts.values())  # type: ignore[union-attr]


def test_worker_without_events_says_so() -> None:
    idle = Totals.of_metrics(generate_latest(m.Metrics("p").registry).decode())
    assert str(idle) == "totals: 0 events read, 0 predicted"
    assert idle.advice(Path("p.yaml")) is None


def test_events_read_without_a_result_are_accounted_for() -> None:
    metrics = m.Metrics("p")
    metrics.count(m.RECORDS_READ, 146_516, "in")
    metrics.count(m.PREDICTIONS, 140_300, "m", "1", "primary")
    metrics.count(m.DEAD_LETTERS, 10, "unfit")
    metrics.count(m.TOMBSTONES, 2)
    text = generate_latest(metrics.registry).decode()
    assert str(Totals.of_metrics(text)).endswith(", 6,204 read again or left to other workers, 2 tombstones")
    assert str(Totals.of_metrics(text, read_below=True)).endswith(", 6,204 not finished, 2 tombstones")
    assert str(Totals.of_metrics(text, predicts=False)).endswith(", 2 tombstones")


def test_command_for_dead_letters_can_be_copied() -> None:
    assert worked().advice(Path("my pipelines/p.yaml")) == (
        "look at the dead letters: millstream dead-letters list 'my pipelines/p.yaml'"
    )


@pytest.mark.parametrize(
    "line",
    [
        "",
        "2026-01-01 00:00:00,000 INFO millstream: ready",
        "Traceback",
        "cart totals: 7 predicted",
        "2026-01-01 00:00:00,000 INFO millstream: totals: 7 predicted of 9",
    ],
)
def test_other_lines_have_no_totals(line: str) -> None:
    assert Totals.of_line(line) is None


def test_one_is_not_several() -> None:
    metrics = m.Metrics("p")
    metrics.count(m.RECORDS_READ, 2, "in")
    metrics.count(m.DEAD_LETTERS, 1, "undecodable")
    metrics.count(m.TOMBSTONES, 1)
    totals = Totals.of_metrics(generate_latest(metrics.registry).decode())
    assert str(totals) == "totals: 1 event read, 0 predicted, 1 dead letter (1 undecodable), 1 tombstone"
    assert Totals.of_line(f"2026-01-01 00:00:00,000 INFO millstream: {totals}") == totals + Totals()


@given(st.lists(st.integers(0, 10**12), min_size=10, max_size=10))
def test_lines_of_workers_add_up(numbers: list[int]) -> None:
    plain = (
        "events read",
        "predicted",
        "tombstones",
        "read again or left to other workers",
        "not finished",
        "compared by shadows",
        "comparisons with an error of the shadow",
    )
    words = (*plain, "dead letters", "skipped", "not compared by shadows")
    made = Totals()
    for word, number in zip(words, numbers, strict=True):
        made.counts[word, "" if word in plain else "unfit"] = number
    line = f"2026-01-01 00:00:00,000 INFO millstream: {made}"
    read = Totals.of_line(line)
    assert read is not None
    assert str(read) == str(made)
    assert str(total([read, made])) == str(total([made, made]))
