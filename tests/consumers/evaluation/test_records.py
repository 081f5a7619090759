"""The records of `rollout.evaluations`: what is read is what was written, and a step has only so many keys."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.evaluation.figures import Figure, StepFigures, WindowFigures
from millstream.consumers.evaluation.records import figures_datums, joined, records_of
from millstream.consumers.evaluation.step_figures import MOST_WINDOWS
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.errors import SchemaError
from millstream.schemas.records import OWN_SCHEMAS_FOLDER, ROLLOUT_EVALUATION

if TYPE_CHECKING:
    from millstream.schemas.store import Schema

LENGTH = 300_000


def figures_of(first: int) -> StepFigures:
    """The newest windows of a step, from the one of this number on."""
    numbers = range(first, first + MOST_WINDOWS)
    windows = tuple(
        WindowFigures(number * LENGTH, (number + 1) * LENGTH, (Figure("canary", "events", None, 1, float(number)),))
        for number in numbers
    )
    total = WindowFigures(None, None, ())
    return StepFigures("shop", "shop-2", 1, 1, 0, numbers[-1] * LENGTH, 0.0, 0, (), (), (), (), total, windows)


class CountingStore(DirectoryStore):
    """Counts how often each schema is asked for."""

    def __init__(self) -> None:
        super().__init__(OWN_SCHEMAS_FOLDER)
        self.asked = Counter[int]()

    def by_id(self, schema_id: int) -> Schema:
        self.asked[schema_id] += 1
        return super().by_id(schema_id)


def test_step_of_many_windows_keeps_the_records_of_the_newest_ones_only() -> None:
    topic: dict[bytes, bytes] = {}  # as compaction leaves it
    for first in range(100):
        topic.update(records_of(figures_of(first), ROLLOUT_EVALUATION.reserved_id))
    assert len(topic) == 1 + MOST_WINDOWS
    store = CountingStore()
    decoder = figures_datums(store)
    found = [decoder.one(value) for value in topic.values()]
    [total] = [own for own in found if own["window_start"] is None]
    assert joined(total, [own for own in found if own is not total]) == figures_of(99)
    assert store.asked == {ROLLOUT_EVALUATION.reserved_id: 1}  # a schema is parsed once


@pytest.mark.parametrize("value", [b"", b"text", b"\x00\x00\x0f\x42\x4a", b"\x00\x00\x00\x00\x07a"])
def test_other_values_are_refused(value: bytes) -> None:
    with pytest.raises(SchemaError):
        figures_datums(DirectoryStore(OWN_SCHEMAS_FOLDER)).one(value)
