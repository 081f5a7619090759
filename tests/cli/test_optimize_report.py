"""The verdict of `millstream optimize` in words."""

from __future__ import annotations

import pytest

from millstream.consumers.cli.optimize_report import Report, verdict
from millstream.inference.profiling.size_profile import SizeProfile


def profile(version: int, events: int, p50: float) -> SizeProfile:
    return SizeProfile(str(version), events, 100, events / p50, p50, 2 * p50, None, None, None)


def report(times: dict[int, float]) -> Report:
    """Events of a call -> how many times as long it takes with the new version."""
    old = [profile(1, events, 0.001) for events in times]
    new = [profile(2, events, 0.001 * factor) for events, factor in times.items()]
    return Report("m", 1, 2, "fp32", "cpu", [], (1, 1), [*old, *new], "some", 0, None)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({256: 0.8}, "faster: a call with 256 events takes 0.80 times as long"),
        ({1: 0.9, 16: 0.7, 256: 0.8}, "faster: a call with 256 events takes 0.80 times as long"),
        (
            {1: 1.3, 16: 1.01, 256: 0.8},
            "faster: a call with 256 events takes 0.80 times as long, but slower with 1 event (1.30 times), and about as fast "
            "with 16 events (1.01 times)",
        ),
        (
            {1: 1.12, 16: 1.14, 256: 1.0},
            "about as fast: a call with 256 events takes 1.00 times as long, but slower with 1 event (1.12 times) and 16 events "
            "(1.14 times)",
        ),
        (
            {1: 1.13, 256: 1.01},
            "about as fast: a call with 256 events takes 1.01 times as long, but slower with 1 event (1.13 times)",
        ),
    ],
)
def test_verdict_names_the_sizes_that_differ_from_the_full_batch(times: dict[int, float], expected: str) -> None:
    assert verdict(report(times)) == f"{expected}; its answers were compared on no event (--blind)."
