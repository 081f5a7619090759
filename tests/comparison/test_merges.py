"""Parts on their way through the job: what is sent, and what merges and table take where somebody writes to fill them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream.consumers.comparison.chunks import COMPARISON_ROW
from millstream.consumers.comparison.job import Joins, Merges, Part, Write
from millstream.consumers.comparison.join import join_settings
from millstream.consumers.comparison.metrics import ComparisonMetrics
from millstream.consumers.comparison.pairs import KnownPairs
from millstream.consumers.comparison.partials import Partial
from millstream.inference.evaluation import Summary
from millstream.schemas.comparisons import Pair
from tests.comparison.test_join import labels
from tests.comparison.test_pairs import PRIMARY, SHADOW, pipeline

PAIR = Pair(PRIMARY, SHADOW)
SOURCES = 4


class World:
    """The merges of partition 0, and their table."""

    def __init__(self, folder: Path) -> None:
        self.pipeline = pipeline(folder, "{name: m, version: 1}")
        self.settings = join_settings(self.pipeline, None)
        self.known = KnownPairs(self.pipeline)
        self.metrics = ComparisonMetrics("p")
        self.table: dict[bytes, bytes] = {}
        self.restart()

    def restart(self) -> None:
        self.merges = Merges(self.pipeline, self.settings, self.table, self.known, self.metrics, sources=SOURCES)

    def write(self, writes: Iterable[Write]) -> None:
        for key, value in writes:
            if value is None:
                self.table.pop(key, None)
            else:
                self.table[key] = value

    def put(self, start: int, source: int = 0, partial: bytes = Partial(Summary(events=1)).pack()) -> None:
        self.write(self.merges.put(0, Part(start, PAIR, source, partial).pack()).items())

    def starts(self) -> list[int]:
        """Of the windows with results."""
        starts = [start for start, _, _ in self.merges.results(0)]
        self.write(self.merges.forget(0))
        return starts

    def parts(self) -> list[bytes]:
        """The keys of the parts in the table. It has one more entry: until which time the windows are gone."""
        return [key for key in self.table if key != b"0/forgotten"]

    def left_out(self, reason: str) -> Any:
        return self.metrics.registry.get_sample_value(
            "millstream_comparison_left_out_total", {"pipeline": "p", "reason": reason}
        )


def test_parts_of_very_many_windows_leave_the_table_before_the_next_update(tmp_path: Path) -> None:
    world = World(tmp_path)
    most = world.settings.most_windows
    for number in range(2 * most + 50):
        world.put(number * world.settings.window)
        assert len(world.parts()) <= 2 * most
    assert world.left_out("late") == 50
    assert world.starts() == [number * world.settings.window for number in range(50, 2 * most + 50)]
    assert len(world.parts()) == most


def test_restored_table_that_is_too_large_is_cut_to_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    for number in range(10):
        world.put(number * world.settings.window)
    size = len(Partial(Summary(events=1)).pack())
    monkeypatch.setattr("millstream.consumers.comparison.partials.MAX_PART_BYTES", 6 * size)
    world.restart()
    world.put(9 * world.settings.window)
    assert world.left_out("late") == 4
    assert world.starts() == [number * world.settings.window for number in range(4, 10)]
    assert len(world.parts()) == 6


def test_part_larger_than_the_changelog_takes_is_damaged(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(world.merges.put(0, Part(0, PAIR, 0, bytes(1_000_000)).pack()).items())
    assert (world.left_out("damaged"), world.table) == (1, {})


def test_summary_larger_than_a_record_takes_is_left_out_and_counted(tmp_path: Path) -> None:
    world = World(tmp_path)
    joins = Joins(world.settings, {}, world.known, world.metrics)
    rng = np.random.default_rng(1)
    rows = np.zeros(100_000, COMPARISON_ROW)
    rows["id"] = rng.integers(0, 2**63, len(rows))
    rows["event_time"] = time.time_ns() // 1_000_000
    for name in ("primary", "shadow", "primary_ms", "shadow_ms"):
        rows[name] = np.exp(rng.uniform(-80, 80, len(rows)))
    joins.comparisons(0, rows, [PAIR])
    assert (list(joins.parts(0)), world.left_out("too_large")) == ([], 1)
    joins.comparisons(1, rows[:100], [PAIR])
    assert len(list(joins.parts(1))) == 1
    assert world.left_out("too_large") == 1


@pytest.mark.parametrize("sampled", [False, True])
def test_labels_without_a_comparison_are_logged_unless_a_sample_is_compared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, sampled: bool
) -> None:
    world = World(tmp_path)
    assert world.settings.all_compared
    joins = Joins(replace(world.settings, early=0, all_compared=not sampled), {}, world.known, world.metrics)
    joins.labels(0, labels([1, 2], 0))
    list(joins.parts(0))
    joins.clean_up(0)
    assert world.left_out("unknown_labels") == 2
    assert ("2 records left out (unknown_labels), such as: a label whose event has no" in caplog.text) != sampled


def test_results_are_computed_one_by_one_while_further_parts_come(tmp_path: Path) -> None:
    world = World(tmp_path)
    window = world.settings.window
    for number in range(4):
        world.put(number * window)
    results = world.merges.results(0)
    assert next(results)[0] == 0
    world.put(0)  # the same part again: its result doesn't change
    world.put(window, source=1)
    world.put(0, source=1)
    assert [(start, record["events"]) for start, _, record in results] == [
        (window, 2),
        (2 * window, 1),
        (3 * window, 1),
    ]
    assert world.starts() == [0]
    assert world.starts() == []


def test_comparisons_of_closed_windows_are_counted_and_said_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    joins = Joins(world.settings, {}, world.known, world.metrics)
    rows = np.zeros(world.settings.most_windows + 36, COMPARISON_ROW)
    rows["id"] = np.arange(len(rows))
    rows["event_time"] = time.time_ns() // 1_000_000 - np.arange(len(rows)) * world.settings.window
    joins.comparisons(0, rows, [PAIR])
    assert world.left_out("late") == 36
    assert "36 records left out (late), such as: a comparison of a closed window." in caplog.text
    assert "`comparison.window`" in caplog.text


@pytest.mark.parametrize("written", range(5))
def test_window_that_goes_to_make_room_never_comes_back_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    world = World(tmp_path)
    window = world.settings.window
    for source in (0, 1):
        world.put(window, source)
    size = len(Partial(Summary(events=1)).pack())
    monkeypatch.setattr("millstream.consumers.comparison.partials.MAX_PART_BYTES", 2 * size)
    part = Part(2 * window, PAIR, 0, Partial(Summary(events=1)).pack()).pack()
    world.write(list(world.merges.put(0, part).items())[:written])  # it is killed after these
    monkeypatch.setattr("millstream.consumers.comparison.partials.MAX_PART_BYTES", 9 * size)
    world.restart()
    world.put(window, source=1)
    assert {record["events"] for start, _, record in world.merges.results(0) if start == window} <= {2}


def test_time_until_which_windows_are_gone_is_written_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    most, window = world.settings.most_windows, world.settings.window
    for number in range(most + 1):
        world.put(number * window)
    assert len(world.starts()) == most + 1
    assert world.table[b"0/forgotten"] == b"1"
    assert world.merges.forget(0) == []
    part = Part(9 * window, PAIR, 1, Partial(Summary(events=1)).pack()).pack()
    assert b"0/forgotten" not in world.merges.put(0, part)
