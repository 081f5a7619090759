"""From looks at a running peer to its figures."""

import numpy as np
import pytest

from benchmarks.progress import Sample, throughput

# Two partitions with 3 + 2 predictions; a transaction's marker lies at offset 1 of the first.
OFFSETS = {0: np.array([0, 2, 3]), 1: np.array([0, 1])}


def test_counts_from_the_first_look_to_the_first_that_shows_all() -> None:
    samples = [
        Sample(10.0, 5.0, {0: 1, 1: 0}),
        Sample(10.5, 5.3, {0: 2, 1: 1}),
        Sample(11.0, 5.4, {0: 4, 1: 2}),
        Sample(20.0, 9.0, {0: 4, 1: 2}),
    ]
    found = throughput(0.5, samples, OFFSETS, 100)
    assert found.events == 4
    assert found.rate == 4
    assert found.cpu_us == pytest.approx(0.4 / 4 * 1e6)


def test_a_marker_is_no_prediction() -> None:
    samples = [Sample(0.0, 0.0, {0: 2, 1: 0}), Sample(1.0, 1.0, {0: 4, 1: 2})]
    assert throughput(0.5, samples, OFFSETS, 100).events == 4


@pytest.mark.parametrize("ends", [{0: 4, 1: 2}, {0: 3, 1: 2}])
def test_a_run_without_a_start_or_an_end_has_no_figures(ends: dict[int, int]) -> None:
    with pytest.raises(ValueError, match="predictions were seen"):
        throughput(0.5, [Sample(0.0, 0.0, ends), Sample(1.0, 1.0, ends)], OFFSETS, 100)
