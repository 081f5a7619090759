"""Rows joined on disk, against plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from millstream.consumers.comparison.chunks import LABEL_ROW
from millstream.consumers.replay import buckets as module
from millstream.consumers.replay.answers import row_type
from millstream.consumers.replay.buckets import Buckets
from millstream.consumers.replay.evaluated import LABELS, MOST_WINDOWS, OTHER, PRIMARY, Windows, evaluate
from millstream.inference.estimates import estimate
from millstream.pipeline.comparison_sections import Comparison
from tests.comparison.scene import exact_auc

if TYPE_CHECKING:
    from pathlib import Path

SECTION = Comparison.model_validate({"topic": "c", "evaluations": "e"})
HOUR = 3_600_000


def side(ids: np.ndarray, times: np.ndarray, scores: np.ndarray, model: int = 0) -> np.ndarray:
    rows = np.zeros(len(ids), row_type(0))
    rows["id"], rows["time"], rows["score"], rows["model"] = ids, times, scores, model
    rows["segment"] = ids % 3
    return rows


@pytest.mark.parametrize("size", [17, 10_000])
def test_joined_in_pieces_each_event_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(module, "EVENTS", size)
    rng = np.random.default_rng(5)
    ids = rng.permutation(np.arange(1000, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    times = rng.integers(0, 5 * HOUR, 1000)
    first, second, truth = rng.random(1000), rng.random(1000), rng.random(1000) < 0.4
    labels = np.zeros(700, LABEL_ROW)
    labels["id"], labels["value"] = ids[:700], truth[:700]
    windows = Windows.of(times, HOUR)
    with Buckets(1000, tmp_path) as buckets:
        assert buckets.count == max(1, -(-1000 // size))
        for start in range(0, 1000, 300):
            buckets.add(OTHER, side(ids, times, second)[start : start + 300])
        buckets.add(OTHER, side(ids[:50], times[:50], np.zeros(50)))  # the same events again
        buckets.add(PRIMARY, side(ids[100:], times[100:], first[100:]))
        buckets.add(LABELS, labels)
        found = evaluate(SECTION, buckets, windows, models=True, segments=True)
    assert not list(tmp_path.iterdir())
    assert (found.answered, found.repeated, found.missing, found.labels) == (1000, 50, 100, 700)
    assert [start // HOUR for start in found.windows] == [0, 1, 2, 3, 4]
    of_hours = [summary.events for summary in found.windows.values()]
    assert of_hours == np.bincount(times[100:] // HOUR, minlength=5).tolist()
    assert sum(summary.events for summary in found.segments.values()) == 900
    assert found.models[0].events == 900
    whole = estimate(found.whole, task="classification")
    inside = slice(100, 700)
    assert found.whole.labelled == 600
    assert whole.primary.auc == pytest.approx(exact_auc(first[inside], truth[inside]), abs=5e-4)
    assert whole.shadow.auc == pytest.approx(exact_auc(second[inside], truth[inside]), abs=5e-4)
    assert whole.agreement == pytest.approx(((first[100:] >= 0.5) == (second[100:] >= 0.5)).mean())


def test_windows_are_few_however_long_the_time_is() -> None:
    for span in (1, HOUR, 300 * HOUR, 40_000 * HOUR):
        times = np.linspace(10 * HOUR, 10 * HOUR + span, 5000).astype(np.int64)
        windows = Windows.of(times, HOUR)
        assert 1 <= windows.count <= MOST_WINDOWS
        assert windows.width % HOUR == 0
        assert windows.start % windows.width == 0
        places = windows.places(times)
        assert places.min() == 0
        assert places.max() == windows.count - 1
    assert Windows.of(np.zeros(0, np.int64), HOUR).count == 1


def test_times_far_away_make_no_window() -> None:
    times = np.append(np.full(5000, 10 * HOUR), 4_000_000 * HOUR)
    windows = Windows.of(times, HOUR)
    assert windows.count == 1
    assert windows.places(times).tolist() == [0] * 5001
