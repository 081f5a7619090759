"""How much memory a process has, and had at its peak."""

from __future__ import annotations

import numpy as np
import pytest

from millstream.inference.profiling.memory import MemoryPeak, gpu_memory, resident_memory

MUCH = 200_000_000  # bytes


def test_peak_is_told_after_the_memory_is_freed() -> None:
    before, peak = resident_memory(), MemoryPeak()
    if before is None or peak.bytes() is None:
        pytest.skip("this system doesn't tell")
    np.ones(MUCH, np.uint8)
    after = peak.bytes()
    assert after is not None
    assert after - before > MUCH * 0.9


def test_new_peak_forgets_the_one_before() -> None:
    np.ones(MUCH, np.uint8)
    now, new = resident_memory(), MemoryPeak().bytes()
    if now is None or new is None:
        pytest.skip("this system doesn't tell")
    assert abs(new - now) < MUCH / 2


def test_gpus_memory_is_known_or_there_is_none() -> None:
    found = gpu_memory()
    assert found is None or found > 0
