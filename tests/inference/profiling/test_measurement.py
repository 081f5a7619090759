"""Measuring real executors, and the figures of their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from millstream.inference.executors.choice import open_executor
from millstream.inference.profiling.measurement import Candidate, measure, sizes_to_compare, sizes_to_measure
from millstream.inference.profiling.size_profile import figures
from millstream.inference.ragged import Ragged
from tests.inference.models import doubling, looking_up, tensor, write_model

if TYPE_CHECKING:
    from pathlib import Path

SHORT = 0.05  # seconds


@pytest.mark.parametrize(
    ("smallest", "largest", "sizes"),
    [(1, 256, [1, 16, 256]), (1, 1000, [1, 32, 1000]), (1, 1, [1]), (1, 2, [1, 2]), (48, 50, [48, 50]), (7, 7, [7])],
)
def test_compared_sizes_have_one_in_the_middle(smallest: int, largest: int, sizes: list[int]) -> None:
    assert sizes_to_compare(smallest, largest) == sizes


@given(st.integers(1, 5000), st.lists(st.integers(1, 5000)))
def test_sizes_are_powers_of_two_the_largest_and_the_preferred(most: int, preferred: list[int]) -> None:
    sizes = sizes_to_measure(most, preferred)
    assert sizes == sorted(set(sizes))
    assert {1, most, *preferred} <= set(sizes)
    others = set(sizes) - {most, *preferred}
    assert all(size & (size - 1) == 0 and size < most for size in others)


def test_rate_is_the_median_of_the_turns_and_the_percentiles_are_of_all_calls() -> None:
    calls, rate, p50, p99 = figures([[0.1, 0.1], [0.2], [10.0]], events=10)
    assert calls == 4
    assert rate == pytest.approx(50)  # of 100, 50 and 1
    assert (p50, p99) == (0.1, 10.0)


@given(st.lists(st.lists(st.floats(1e-6, 10), min_size=1), min_size=1))
def test_percentiles_are_measured_calls_in_order(turns: list[list[float]]) -> None:
    calls, rate, p50, p99 = figures(turns, events=1)
    all_calls = [call for turn in turns for call in turn]
    assert calls == len(all_calls)
    assert {p50, p99} <= set(all_calls)
    assert min(all_calls) <= p50 <= p99 <= max(all_calls)
    assert rate > 0


def test_each_size_is_measured_even_with_few_events_and_little_time(tmp_path: Path) -> None:
    executor = open_executor(doubling(tmp_path), max_events=64)
    candidates = [Candidate("1", executor, size) for size in (1, 5, 64)]
    turns: list[int] = []
    events = {"x": np.arange(6, dtype=np.float32).reshape(3, 2)}
    measure(candidates, events, seconds=1e-6, after_turn=lambda: turns.append(1))
    assert len(turns) == 3
    for candidate in candidates:
        found = candidate.profile()
        assert found.calls >= 1
        assert 0 < found.p50 <= found.p99
        assert found.us_per_event == pytest.approx(1e6 / found.rate)
        assert found.padding is None
        assert found.gpu_memory is None


def test_sizes_take_turns_until_the_time_is_over(tmp_path: Path) -> None:
    executor = open_executor(doubling(tmp_path), max_events=4)
    candidates = [Candidate("1", executor, size) for size in (1, 2, 4)]
    measure(candidates, {"x": np.ones((8, 2), np.float32)}, seconds=SHORT)
    counts = [len(candidate.turns) for candidate in candidates]
    assert min(counts) >= 1
    assert max(counts) - min(counts) <= 1


def test_size_that_the_model_refuses_has_the_reason(tmp_path: Path) -> None:
    executor = open_executor(looking_up(tmp_path), max_events=4)
    candidates = [Candidate("1", executor, size) for size in (1, 2)]
    measure(candidates, {"x": np.array([[9]], np.int64)}, seconds=SHORT)
    assert all(candidate.refused and not candidate.turns for candidate in candidates)


def test_padding_is_the_share_of_items_that_no_event_has(tmp_path: Path) -> None:
    config = "inputs: [{tensor: x, field: f, dtype: float32, max_length: 64}]\noutputs: [{tensor: y}]\n"
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    model = write_model(
        tmp_path,
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)],
        [tensor("x", ["N", "L"])],
        [tensor("y", ["N"])],
        constants=[axes],
        config=config,
    )
    executor = open_executor(model, max_events=4)
    candidate = Candidate("1", executor, 4)
    events = Ragged.of_lengths(np.ones(32, np.float32), np.array([8, 8, 8, 8]))
    measure([candidate], {"x": events}, seconds=SHORT)
    assert candidate.profile().padding == pytest.approx(0.5)  # the shortest length that the model runs at is 16
