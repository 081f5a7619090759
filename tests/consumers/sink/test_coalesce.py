"""Results written together are the records that they are when written one by one."""

import json
from collections import Counter
from dataclasses import replace
from io import BytesIO
from itertools import accumulate
from typing import Any, cast

import fastavro
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.batch.batcher import Batcher, Limits
from millstream.consumers.events import BatchResult, NextOffsets, Rejection
from millstream.consumers.observability.metrics import PREDICTIONS, Metrics
from millstream.consumers.record_headers import HeaderRows, RecordHeaders
from millstream.consumers.record_types import HeaderList
from millstream.consumers.sink.coalesce import coalesce
from millstream.consumers.sink.dead_letter_sink import DeadLetterOutput
from millstream.consumers.sink.delivery import Delivery
from millstream.consumers.sink.result_sink import Outputs, Sink
from millstream.inference.model_id import ModelId
from millstream.schemas.avro.write import text
from millstream.schemas.dead_letters import DeadLetter, DeadLetterEncoder, LetterModel, decode_dead_letter
from millstream.schemas.predictions import JsonPredictionEncoder, PredictionEncoder
from millstream.schemas.records import PREDICTION, ROLLOUT_DEAD_LETTER
from millstream.schemas.rollout_choices import RolloutChoice, RowChoices
from millstream.schemas.wire import HEAD_BYTES
from tests.consumers.in_memory import EPOCHS, MODELS, GivenAssignment, answered, batch_of, block
from tests.consumers.measured import measured

OUTPUTS = Outputs(
    variant="primary",
    predictions=PredictionEncoder(1, pipeline="p", variant="primary"),
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

    def checkpoint(self, _ends: NextOffsets) -> None:
        pass

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
    """What models said of the batches of some blocks: refused events, several outputs, other widths, other times.

    As after a reload, or from a pipeline of several models.
    """
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
        models = draw(st.sampled_from([MODELS, MODELS, (ModelId("m", 2), ModelId("other", 1))]))
        by = draw(st.none() | st.lists(st.integers(0, len(models) - 1), min_size=len(rows), max_size=len(rows)))
        answered_by = None if by is None else np.array(by, np.int64)
        found.append(
            BatchResult(len(found), batch, outputs, rows, rejected, np.full(len(rows), time), models, answered_by)
        )
    return found


ROLLOUT_OUTPUTS = replace(
    OUTPUTS,
    predictions=PredictionEncoder(1, pipeline="p", variant="unused", rollout=True),
    dead_letters=replace(
        OUTPUTS.dead_letters, encoder=DeadLetterEncoder(ROLLOUT_DEAD_LETTER.reserved_id, rollout=True)
    ),
)
CHOICES = [None, *(RolloutChoice("r1", revision, name, 0.5, True, 1.5) for revision in (1, 2) for name in "ab")]


@st.composite
def rollout_results(draw: st.DrawFn) -> list[BatchResult]:
    """The results with what a rollout chose for each event, of several revisions."""
    found = []
    for one in draw(results()):
        of_rows = draw(st.lists(st.sampled_from(range(len(CHOICES))), min_size=len(one.rows), max_size=len(one.rows)))
        variants = tuple("ab"[: len(one.models)])
        model = LetterModel("m", 2, "b", CHOICES[draw(st.sampled_from(range(len(CHOICES))))])
        rejected = {row: why._replace(model=model) for row, why in one.rejected.items()}
        choices = RowChoices(CHOICES, np.array(of_rows, np.int64))
        found.append(one._replace(variants=variants, choices=choices, rejected=rejected))
    return found


@given(rollout_results())
def test_results_of_a_rollout_written_together_are_the_same_records(made: list[BatchResult]) -> None:
    together, ends = written([made], outputs=ROLLOUT_OUTPUTS)
    alone, ends_alone = written([[one] for one in made], outputs=ROLLOUT_OUTPUTS)
    assert together.predictions == alone.predictions
    assert together.letters == alone.letters
    assert ends == ends_alone
    rejected = [why.model for one in made for why in one.rejected.values()]
    found = [letter for letter, _ in together.letters if letter.model is not None]
    assert Counter((letter.version, letter.variant, letter.rollout) for letter in found) == Counter(
        (model.version, model.variant, model.choice) for model in rejected if model is not None
    )


def test_prediction_of_a_rollout_that_is_too_large_names_its_model_in_the_dead_letter() -> None:
    choices = RowChoices(CHOICES, np.array([1, 3, 2], np.int64))
    models = (ModelId("m", 1), ModelId("m", 2))
    made = answered("eee")._replace(
        models=models, answered_by=np.array([0, 1, 1]), variants=("a", "b"), choices=choices
    )
    outputs = replace(ROLLOUT_OUTPUTS, prediction_bytes=10)
    delivery, _ = written([[made]], outputs=outputs)
    assert delivery.predictions == []
    assert [(letter.version, letter.variant, letter.rollout) for letter, _ in delivery.letters] == [
        (1, "a", CHOICES[1]),
        (2, "b", CHOICES[3]),
        (2, "b", CHOICES[2]),
    ]


def written(
    groups: list[list[BatchResult]], metrics: Metrics | None = None, outputs: Outputs = OUTPUTS
) -> tuple[MemoryDelivery, NextOffsets]:
    delivery = MemoryDelivery()
    sink = Sink(
        cast("Delivery", delivery), outputs, assignment=GivenAssignment(EPOCHS), metrics=metrics or Metrics("p")
    )
    ends: NextOffsets = {}
    for group in groups:
        ends |= sink.write(group)
    sink.checkpoint(ends)
    return delivery, ends


@given(results())
def test_written_together_they_are_the_same_records_and_bring_partitions_as_far(made: list[BatchResult]) -> None:
    together, ends = written([made])
    alone, ends_alone = written([[one] for one in made])
    assert together.predictions == alone.predictions
    assert all(key is None or value[5:].startswith(text(key.decode())) for value, key, _ in together.predictions)
    assert together.letters == alone.letters
    assert ends == ends_alone


@given(results(), st.booleans())
def test_each_record_names_the_model_that_answered_it_and_the_metric_counts_it(
    made: list[BatchResult],
    json_format: bool,
) -> None:
    right: dict[str, ModelId] = {}
    for one in made:
        by = np.zeros(len(one.rows), np.int64) if one.answered_by is None else one.answered_by
        ids = list(one.batch.ids())
        right |= {ids[row]: one.models[place] for row, place in zip(one.rows.tolist(), by.tolist(), strict=True)}
    metrics = Metrics("p")
    encoder = JsonPredictionEncoder(pipeline="p", variant="primary") if json_format else OUTPUTS.predictions
    delivery, _ = written([made], metrics, replace(OUTPUTS, predictions=encoder))
    read = json.loads if json_format else avro_prediction
    records = [read(value) for value, _, _ in delivery.predictions]
    assert {row["event_id"]: (row["model"], row["version"]) for row in records} == right
    for (name, version), count in Counter(right.values()).items():
        labels = {"model": name, "version": str(version), "variant": "primary"}
        assert measured(metrics, PREDICTIONS, **labels) == count


def avro_prediction(value: bytes) -> Any:
    return fastavro.schemaless_reader(
        BytesIO(value[HEAD_BYTES:]), fastavro.parse_schema(PREDICTION.definition), PREDICTION.definition
    )


def test_prediction_that_is_too_large_or_breaks_the_encoder_is_not_counted_for_its_model() -> None:
    texts = np.array(["a", "b" * 5000, "\ud800", "c"], object)
    models = (ModelId("m", 1), ModelId("m", 2))
    batch = batch_of("eeee")
    one = BatchResult(
        *(0, batch, {"y": texts}, np.arange(4), {}, np.zeros(4, np.int64)), models, np.array([0, 0, 0, 1])
    )
    metrics = Metrics("p")
    delivery, _ = written([[one]], metrics, replace(OUTPUTS, prediction_bytes=1000))
    records = [avro_prediction(value) for value, _, _ in delivery.predictions]
    assert [(row["event_id"], row["version"]) for row in records] == [("0", 1), ("3", 2)]
    counts = [measured(metrics, PREDICTIONS, model="m", version=v, variant="primary") for v in ("1", "2")]
    assert counts == [1, 1]
    assert {letter.offset: letter.reason for letter, _ in delivery.letters} == {
        1: "prediction_too_large",
        2: "model_rejected",
    }


def test_results_of_one_kind_are_one_and_ranges_of_a_block_too() -> None:
    batcher = Batcher(Limits(2, 1 << 20, 1.0))
    batcher.add(block("eereeee"))
    batches = [batcher.drain() for _ in range(3)]
    made = [answered("ee")._replace(batch=batch, number=number) for number, batch in enumerate(batches) if batch]
    (one,) = coalesce(made)
    assert [(part.start, part.stop, part.first, part.last) for part in one.batch.parts] == [(0, 7, 0, 6)]


@pytest.mark.parametrize(
    "other",
    [
        {"outputs": {"y": np.zeros((2, 2))}},
        {"outputs": {"y": np.zeros((2, 1), np.float32)}},
        {"outputs": {"z": np.zeros((2, 1))}},
        {"models": (ModelId("m", 2),)},
    ],
)
def test_results_that_differ_in_kind_are_not_joined(other: dict[str, Any]) -> None:
    made = [answered("ee"), answered("ee", 2), answered("ee", 4)._replace(**other)]
    assert [one.batch.events for one in coalesce(made)] == [4, 2]
