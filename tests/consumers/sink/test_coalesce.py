"""Results written together are the records that they are when written one by one."""

from dataclasses import replace
from itertools import accumulate
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.batch.batcher import Batcher, Limits
from millstream.consumers.events import BatchResult, NextOffsets, Rejection
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.record_headers import HeaderRows, RecordHeaders
from millstream.consumers.record_types import HeaderList
from millstream.consumers.sink.coalesce import coalesce
from millstream.consumers.sink.dead_letter_sink import DeadLetterOutput
from millstream.consumers.sink.delivery import Delivery
from millstream.consumers.sink.result_sink import Outputs, Sink
from millstream.schemas.avro.write import text
from millstream.schemas.dead_letters import DeadLetter, DeadLetterEncoder, decode_dead_letter
from millstream.schemas.predictions import PredictionEncoder
from tests.consumers.in_memory import EPOCHS, GivenAssignment, answered, block

OUTPUTS = Outputs(
    model="m",
    version=1,
    variant="primary",
    predictions=PredictionEncoder(1, pipeline="p", model="m", version=1, variant="primary"),
    prediction_topic="out",
    dead_letters=DeadLetterOutput(
        pipeline="p", topic="dead", encoder=DeadLetterEncoder(2), max_bytes=1 << 20, skip=frozenset(), file="p.yaml"
    ),
    prediction_bytes=1 << 20,
    carry_headers=frozenset({"trace"}),
)


class MemoryDelivery:
    """Keeps the records by topic; of dead letters not when they were written."""

    publishes_at_checkpoint = False

    def __init__(self) -> None:
        self.predictions: list[tuple[bytes, bytes | None, HeaderList | None]] = []
        self.letters: list[tuple[DeadLetter, bytes | None]] = []

    def produce(self, topic: str, value: bytes, key: bytes | None, headers: HeaderList | None) -> None:
        if topic == OUTPUTS.dead_letters.topic:
            self.letters.append((decode_dead_letter(value)._replace(failed_at=0), key))
        else:
            self.predictions.append((value, key, headers or None))

    def produce_all(
        self,
        topic: str,
        values: list[bytes],
        keys: list[bytes | None],
        headers: HeaderRows | None = None,  # noqa: ARG002
    ) -> None:
        for value, key in zip(values, keys, strict=True):
            self.produce(topic, value, key, None)


@st.composite
def results(draw: st.DrawFn) -> list[BatchResult]:
    """What a model said of the batches of some blocks: refused events, several outputs, other widths, other times."""
    kinds = draw(st.lists(st.text("eeert", min_size=1, max_size=9), min_size=1, max_size=4))
    batcher = Batcher(Limits(draw(st.integers(1, 5)), 1 << 20, 1.0))
    for letters, start in zip(kinds, accumulate(map(len, kinds), initial=0), strict=False):
        made = block(letters, start)
        named = draw(st.booleans())
        headers = {row: RecordHeaders.of([("trace", str(row).encode())]) for row in range(len(letters))}
        batcher.add(
            replace(
                made,
                keys=[str(offset).encode() if named else None for offset in made.offsets],
                headers=headers if draw(st.integers(0, 3)) == 0 else {},
            )
        )
    found: list[BatchResult] = []
    while batch := batcher.drain():
        bad = draw(st.sets(st.integers(0, max(batch.events - 1, 0)), max_size=2)) if batch.events else set()
        rows = np.array([row for row in range(batch.events) if row not in bad], np.int64)
        x = batch.tensors()["x"] if batch.events else np.zeros((0, 1), np.float32)
        width = draw(st.sampled_from([1, 1, 2]))
        outputs = {"y": -x[rows].repeat(width, axis=1), "n": rows * 7} if len(rows) else {}
        rejected = {row: Rejection("model_rejected", f"event {row} is bad") for row in bad}
        time = 1_700_000_000_000 + draw(st.sampled_from([0, 0, 0, 1]))
        found.append(BatchResult(len(found), batch, outputs, rows, rejected, np.full(len(rows), time)))
    return found


def written(groups: list[list[BatchResult]]) -> tuple[MemoryDelivery, NextOffsets]:
    delivery = MemoryDelivery()
    sink = Sink(cast("Delivery", delivery), OUTPUTS, assignment=GivenAssignment(EPOCHS), metrics=Metrics("p"))
    ends: NextOffsets = {}
    for group in groups:
        ends |= sink.write(group)
    return delivery, ends


@given(results())
def test_written_together_they_are_the_same_records_and_bring_partitions_as_far(made: list[BatchResult]) -> None:
    together, ends = written([made])
    alone, ends_alone = written([[one] for one in made])
    assert together.predictions == alone.predictions
    assert all(key is None or value[5:].startswith(text(key.decode())) for value, key, _ in together.predictions)
    assert together.letters == alone.letters
    assert ends == ends_alone


def test_results_of_one_kind_are_one_and_ranges_of_a_block_too() -> None:
    batcher = Batcher(Limits(2, 1 << 20, 1.0))
    batcher.add(block("eereeee"))
    batches = [batcher.drain() for _ in range(3)]
    made = [replace(answered("ee"), batch=batch, number=number) for number, batch in enumerate(batches) if batch]
    (one,) = coalesce(made)
    assert [(part.start, part.stop, part.first, part.last) for part in one.batch.parts] == [(0, 7, 0, 6)]


@pytest.mark.parametrize(
    "other",
    [
        {"outputs": {"y": np.zeros((2, 2))}},
        {"outputs": {"y": np.zeros((2, 1), np.float32)}},
        {"outputs": {"z": np.zeros((2, 1))}},
    ],
)
def test_results_that_differ_in_kind_are_not_joined(other: dict[str, Any]) -> None:
    made = [answered("ee"), answered("ee", 2), replace(answered("ee", 4), **other)]
    assert [one.batch.events for one in coalesce(made)] == [4, 2]
