"""The values of fields by which events are divided: a field of many values, such as a customer's ID, takes no more memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from millstream.consumers.evaluation import segments
from millstream.consumers.evaluation.rows import empty_events, event_row
from millstream.consumers.evaluation.segments import Segments


def test_values_that_are_too_many_are_one_and_their_texts_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MOST_VALUES", 3)
    found = Segments(["customer"])
    first = found.codes([["a", "b", "c", "d", "a"]], 5)
    assert first[:, 0].tolist() == [1, 2, 3, 0, 1]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for start in range(0, 20_000, 1000):
            assert not found.codes([[f"customer-{start + number}" for number in range(1000)]], 1000).any()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000  # the texts alone would take 1 MB
    rows = empty_events(event_row(1, 0), 5)
    rows["segments"] = first
    assert [own.name for own in found.most_frequent(rows)] == ["customer=a", "customer=b", "customer=c"]
    assert np.count_nonzero(rows["segments"] == 0) == 1
