"""What the sink writes of a batch: predictions in their order in few calls, dead letters for the others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.errors import EventRefused
from millstream.consumers.events import (
    BatchResult,
    BatchSlice,
    DecodedBatch,
    Epochs,
    MicroBatch,
    NextOffsets,
    Rejection,
)
from millstream.consumers.observability.metrics import INTERNAL_ERRORS, PREDICTIONS, TOMBSTONES, Metrics
from millstream.consumers.record_headers import HeaderRows, RecordHeaders
from millstream.consumers.record_types import HeaderList
from millstream.consumers.sink.dead_letter_sink import DeadLetterOutput
from millstream.consumers.sink.delivery import Delivery
from millstream.consumers.sink.result_sink import PREDICTION_OVERHEAD, Outputs, Sink
from millstream.schemas.column import NumberColumn, column_of
from millstream.schemas.dead_letters import (
    DeadLetter,
    DeadLetterColumns,
    DeadLetterEncoder,
    EncodedLetters,
    decode_dead_letter,
)
from millstream.schemas.predictions import JsonPredictionEncoder
from millstream.schemas.row_models import RowModels
from millstream.schemas.table import Table
from tests.consumers.in_memory import EPOCHS, MODELS, GivenAssignment, block
from tests.consumers.measured import measured

LIMIT = 2000  # bytes that the output topic takes
OUTPUTS = Outputs(
    variant="primary",
    predictions=JsonPredictionEncoder(pipeline="p", variant="primary"),
    prediction_topic="out",
    dead_letters=DeadLetterOutput(
        pipeline="p", topic="dead", encoder=DeadLetterEncoder(2), max_bytes=5000, skip=frozenset(), file="p.yaml"
    ),
    prediction_bytes=LIMIT,
    carry_headers=frozenset({"trace"}),
)


class MemoryDelivery:
    """Keeps what it is handed, and in which calls."""

    publishes_at_checkpoint = False

    def __init__(self) -> None:
        self.calls: list[int] = []  # predictions of each
        self.predictions: list[tuple[bytes, bytes | None, HeaderList]] = []
        self.letters: list[DeadLetter] = []

    def checkpoint(self, _ends: NextOffsets) -> None:
        pass

    def produce(self, topic: str, value: bytes, key: bytes | None, headers: HeaderList | None) -> None:
        assert topic == "out"
        size = len(value) + len(key or b"") + sum(len(name) + len(content or b"") for name, content in headers or ())
        assert size <= LIMIT, "the broker would refuse it"
        self.calls.append(1)
        self.predictions.append((value, key, list(headers or ())))

    def produce_all(
        self, topic: str, values: list[bytes], keys: list[bytes | None], headers: HeaderRows | None = None
    ) -> None:
        if topic == "dead":
            assert headers is not None
            self.letters += map(decode_dead_letter, values)
            return
        assert topic == "out"
        self.calls.append(len(values))
        carried = [[]] * len(values) if headers is None else list(headers)
        for value, key, own in zip(values, keys, carried, strict=True):
            size = len(value) + len(key or b"") + sum(len(name) + len(content or b"") for name, content in own)
            assert size <= LIMIT, "the broker would refuse it"
            self.predictions.append((value, key, own))


def answered_of(events: int, **changes: Any) -> BatchResult:
    made = replace(block("e" * events), **changes)
    batch = MicroBatch((BatchSlice(made, 0, events, 0, events),), "size")
    rows = np.arange(events)
    return BatchResult(0, batch, {"y": rows.astype(np.float64)}, rows, {}, np.zeros(events, np.int64), MODELS)


def sink_of(outputs: Outputs = OUTPUTS, epochs: Epochs = EPOCHS) -> tuple[Sink, MemoryDelivery, Metrics]:
    delivery, metrics = MemoryDelivery(), Metrics("p")
    return (
        Sink(cast("Delivery", delivery), outputs, assignment=GivenAssignment(epochs), metrics=metrics),
        delivery,
        metrics,
    )


def test_predictions_without_headers_go_in_one_call() -> None:
    sink, delivery, _ = sink_of()
    assert sink.write([answered_of(5)]) == {("in", 0): (1, 5)}
    assert delivery.calls == [5]


def test_predictions_go_in_one_call_each_with_its_own_headers() -> None:
    each = {1: [("trace", b"a")], 2: [("other", b"b")], 4: [("trace", b"c")]}
    headers = {row: RecordHeaders.of(of_event) for row, of_event in each.items()}
    sink, delivery, _ = sink_of()
    sink.write([answered_of(5, headers=headers)])
    assert delivery.calls == [5]
    assert [carried for _, _, carried in delivery.predictions] == [[], [("trace", b"a")], [], [], [("trace", b"c")]]


@pytest.mark.parametrize(
    "changes",
    [
        {"keys": [b"k", b"x" * LIMIT, b"k"]},
        {"headers": {1: RecordHeaders.of([("trace", b"x" * LIMIT)])}},
        {"headers": {1: RecordHeaders.of([("trace", b"")] * 200)}},
        {"keys": [b"k", b"x" * (LIMIT // 2), b"k"], "headers": {1: RecordHeaders.of([("trace", b"x" * (LIMIT // 2))])}},
    ],
    ids=["key", "header", "many headers", "both"],
)
def test_prediction_that_key_or_headers_make_too_large_is_a_dead_letter(changes: dict[str, Any]) -> None:
    """The broker would refuse it each time: the pipeline would never get past it."""
    sink, delivery, _ = sink_of()
    ends = sink.write([answered_of(3, **changes)])
    assert len(delivery.predictions) == 2
    (letter,) = delivery.letters
    assert (letter.reason, letter.offset) == ("prediction_too_large", 1)
    assert "more than topic out takes" in letter.error
    assert ends == {("in", 0): (1, 3)}


@given(
    st.lists(
        st.tuples(st.integers(0, LIMIT + 100) | st.none(), st.integers(0, LIMIT + 100) | st.none()),
        min_size=1,
        max_size=12,
    ),
    st.sets(st.integers(0, 11)),
    st.sets(st.integers(0, 11)),
)
def test_each_event_has_a_prediction_that_its_topic_takes_or_a_dead_letter(
    sizes: list[tuple[int | None, int | None]], rejected: set[int], foreign: set[int]
) -> None:
    """Keys and headers of any size, events that the model rejected, partitions that went meanwhile: in the records' order."""
    count = len(sizes)
    places = np.array([1 if row in foreign else 0 for row in range(count)])
    one = answered_of(
        count,
        keys=[None if size is None else b"k" * size for size, _ in sizes],
        headers={
            row: RecordHeaders.of([("trace", b"t" * size)]) for row, (_, size) in enumerate(sizes) if size is not None
        },
        places=places,
        partitions={0: ("in", 0), 1: ("in", 1)},
    )
    kept = np.array([row for row in range(count) if row not in rejected], np.int64)
    why = {row: Rejection("model_rejected", "no") for row in rejected if row < count}
    one = one._replace(
        rows=kept,
        outputs={"y": kept.astype(np.float64)},
        rejected=why,
        prediction_times=np.zeros(len(kept), np.int64),
    )
    sink, delivery, _ = sink_of(epochs={("in", 0): 1})
    ends = sink.write([one])
    ours = [row for row in range(count) if row not in foreign]
    ids = [f'"event_id":"{row}"'.encode() for row in range(count)]
    written = [row for value, _, _ in delivery.predictions for row in range(count) if ids[row] in value]
    letters = {letter.offset: letter.reason for letter in delivery.letters}
    assert sorted([*written, *letters]) == ours
    assert written == sorted(written)
    for row in ours:
        large = sum(size or 0 for size in sizes[row]) > LIMIT - PREDICTION_OVERHEAD
        if row in rejected:
            assert letters[row] == "model_rejected"
        elif large:
            assert letters[row] == "prediction_too_large"
    assert ends == ({("in", 0): (1, ours[-1] + 1)} if ours else {})


class BuggyEncoder(JsonPredictionEncoder):
    """Raises when an output is 2."""

    def encode(self, event_ids: Any, *times: Any, models: RowModels) -> Any:
        outputs = times[3]
        if 2 in outputs["y"]:
            raise KeyError("2")
        return super().encode(event_ids, *times, models=models)


def test_event_that_breaks_the_encoder_is_a_dead_letter_among_predictions() -> None:
    predictions = BuggyEncoder(pipeline="p", variant="primary")
    sink, delivery, metrics = sink_of(replace(OUTPUTS, predictions=predictions))
    sink.write([answered_of(5)])
    assert len(delivery.predictions) == 4
    assert [(letter.reason, letter.offset) for letter in delivery.letters] == [("internal_error", 2)]
    assert measured(metrics, INTERNAL_ERRORS, stage="encode") == 1


def test_pipeline_that_stops_at_an_internal_error_has_written_what_comes_before_it() -> None:
    predictions = BuggyEncoder(pipeline="p", variant="primary")
    sink, delivery, _ = sink_of(replace(OUTPUTS, predictions=predictions, stop_at=frozenset({"internal_error"})))
    with pytest.raises(EventRefused, match=r"offset 2 of in/0 was refused \(internal_error\)"):
        sink.write([answered_of(5)])
    assert len(delivery.predictions) == 2


def test_dead_letter_that_cannot_be_written_whole_is_written_without_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = DeadLetterEncoder.encode

    def buggy(self: DeadLetterEncoder, letters: DeadLetterColumns) -> EncodedLetters:
        if any(value is not None for value in letters.values):
            raise KeyError("value")
        return encode(self, letters)

    monkeypatch.setattr(DeadLetterEncoder, "encode", buggy)
    sink, delivery, _ = sink_of()
    one = answered_of(2)._replace(
        rows=np.array([0]), outputs={"y": np.zeros(1)}, prediction_times=np.zeros(1, np.int64)
    )
    sink.write([one._replace(rejected={1: Rejection("model_rejected", "no")})])
    (letter,) = delivery.letters
    assert (letter.reason, letter.offset, letter.value) == ("model_rejected", 1, None)
    assert "it can't be written: KeyError" in letter.error


def parts_of(*blocks: DecodedBatch) -> MicroBatch:
    """A batch of whole blocks."""
    return MicroBatch(tuple(BatchSlice(one, 0, len(one.offsets), 0, len(one.good)) for one in blocks), "size")


def test_each_event_of_a_batch_of_several_blocks_has_its_own_result() -> None:
    """Outputs and rejections count through the batch, records through their block."""
    first, second, third = (
        replace(block("eert"), ingest_time=1),
        replace(block("ereee", 2), ingest_time=2),
        block("e", 7),
    )
    parts = (
        BatchSlice(first, 0, 4, 0, 2),
        BatchSlice(second, 2, 5, 1, 4),
        BatchSlice(third, 0, 1, 0, 1),
    )  # the second from amid its block
    batch = MicroBatch(parts, "size")
    kept = np.array([0, 3, 5])
    one = BatchResult(
        *(0, batch, {"y": kept.astype(np.float64)}, kept),
        {row: Rejection("model_rejected", f"event {row}") for row in (1, 2, 4)},
        *(np.full(3, 9), MODELS),
    )
    sink, delivery, metrics = sink_of()
    assert sink.write([one]) == {("in", 0): (1, 8)}
    sink.checkpoint({})
    written = [json.loads(value) for value, _, _ in delivery.predictions]
    assert [(row["event_id"], row["outputs"]["y"]) for row in written] == [("0", 0), ("5", 3), ("7", 5)]
    letters = [(letter.offset, letter.error) for letter in delivery.letters]
    assert letters == [(1, "event 1"), (2, "no"), (4, "event 2"), (6, "event 4")]
    assert measured(metrics, TOMBSTONES) == 1
    assert [row["ingest_time"] for row in written] == [1, 2, third.ingest_time]


def test_predictions_include_each_events_own_fields() -> None:
    def with_fields(one: DecodedBatch) -> DecodedBatch:
        offsets = one.offsets[one.good]
        other = column_of([0] * len(offsets), "int64")  # a shadow's
        names = column_of([None if offset == 5 else f"n{offset}" for offset in offsets.tolist()], "string")
        return replace(one, features=Table({"other": other, "name": names, "offset": NumberColumn(offsets)}))

    first, second, third = map(with_fields, (block("eert"), block("ereee", 4), block("e", 9)))
    parts = (BatchSlice(first, 0, 4, 0, 2), BatchSlice(second, 2, 5, 1, 4), BatchSlice(third, 0, 1, 0, 1))
    kept = np.array([1, 2, 3, 5])
    why = {row: Rejection("model_rejected", "no") for row in (0, 4)}
    one = BatchResult(0, MicroBatch(parts, "size"), {"y": kept.astype(np.float64)}, kept, why, np.full(4, 9), MODELS)
    sink, delivery, _ = sink_of(replace(OUTPUTS, include=("offset", "name")))
    sink.write([one])
    assert [json.loads(value)["event"] for value, _, _ in delivery.predictions] == [
        {"offset": 1, "name": "n1"},
        {"offset": 6, "name": "n6"},
        {"offset": 7, "name": "n7"},
        {"offset": 9, "name": "n9"},
    ]


def test_event_that_breaks_the_encoder_leaves_the_others_their_fields() -> None:
    predictions = BuggyEncoder(pipeline="p", variant="primary")
    sink, delivery, _ = sink_of(replace(OUTPUTS, predictions=predictions, include=("offset",)))
    sink.write([answered_of(5, features=Table({"offset": NumberColumn(np.arange(5))}))])
    assert [json.loads(value)["event"]["offset"] for value, _, _ in delivery.predictions] == [0, 1, 3, 4]


def test_stop_names_the_first_event_that_was_refused_whoever_refused_it() -> None:
    stop_at = frozenset({"undecodable", "nan_output"})
    batch = parts_of(block("ee"), block("er", 2), block("re", 4))
    why = {2: Rejection("nan_output", "NaN"), 1: Rejection("model_rejected", "no"), 3: Rejection("nan_output", "NaN")}
    one = BatchResult(0, batch, {"y": np.zeros(1)}, np.array([0]), why, np.zeros(1, np.int64), MODELS)
    sink, delivery, _ = sink_of(replace(OUTPUTS, stop_at=stop_at))
    with pytest.raises(EventRefused, match=r"offset 2 of in/0 was refused \(nan_output\)") as stopped:
        sink.write([one])
    assert [json.loads(value)["event_id"] for value, _, _ in delivery.predictions] == ["0"], (
        "what comes before it is written"
    )
    assert [letter.offset for letter in delivery.letters] == [1]
    assert (stopped.value.ends, stopped.value.batches) == ({("in", 0): (1, 2)}, 1)


def test_prediction_as_large_as_its_topic_takes_is_written_and_one_byte_more_is_a_dead_letter() -> None:
    def sizes(key: int) -> tuple[int, int, float | None]:
        sink, delivery, metrics = sink_of()
        sink.write([answered_of(1, keys=[b"k" * key])])
        sink.checkpoint({})
        counted = measured(metrics, PREDICTIONS, model="m", version="1", variant="primary")
        return len(delivery.predictions), len(delivery.letters), counted

    sink, delivery, _ = sink_of()
    sink.write([answered_of(1, keys=[b""])])
    room = LIMIT - PREDICTION_OVERHEAD - len(delivery.predictions[0][0])
    assert sizes(room) == (1, 0, 1)
    assert sizes(room + 1) == (0, 1, 0)


def test_what_was_read_before_an_abort_is_not_written_and_what_is_read_again_is() -> None:
    epochs: Epochs = EPOCHS
    metrics, delivery = Metrics("p"), MemoryDelivery()
    delivery.abort = lambda: None  # type: ignore[attr-defined]
    assignment = GivenAssignment(EPOCHS)
    sink = Sink(cast("Delivery", delivery), OUTPUTS, assignment=assignment, metrics=metrics)
    assert assignment.kept({("in", 0): (1, 5)}) == {("in", 0): (1, 5)}
    sink.abort()
    assert sink.write([answered_of(2)]) == {}, "it is read again, though its partition is not gone"
    assert delivery.predictions == []
    assert assignment.kept({("in", 0): (1, 5), ("in", 1): (2, 5)}) == {("in", 1): (2, 5)}
    epochs = {("in", 0): 2, ("in", 1): 2}
    assignment.given = epochs
    assert sink.write([answered_of(2, epochs=epochs)]) == {("in", 0): (2, 2)}
    assert len(delivery.predictions) == 2


def test_refused_events_of_partitions_that_went_have_no_dead_letter() -> None:
    """Their new owner writes them."""
    made = block("erer", places=[0, 0, 1, 1])
    one = BatchResult(
        *(0, parts_of(made), {"y": np.zeros(0)}, np.empty(0, np.int64)),
        {0: Rejection("model_rejected", "no"), 1: Rejection("model_rejected", "no")},
        *(np.empty(0, np.int64), MODELS),
    )
    sink, delivery, _ = sink_of(epochs={("in", 1): 1})
    assert sink.write([one]) == {("in", 1): (1, 4)}
    assert [letter.offset for letter in delivery.letters] == [2, 3]


def test_refused_event_of_a_partition_that_went_stops_nothing_and_the_next_of_ours_does() -> None:
    """It is its new owner's to stop at."""
    made = block("eeee", places=[0, 0, 1, 1])
    why = {1: Rejection("nan_output", "NaN"), 3: Rejection("nan_output", "NaN")}
    one = BatchResult(0, parts_of(made), {"y": np.zeros(2)}, np.array([0, 2]), why, np.zeros(2, np.int64), MODELS)
    outputs = replace(OUTPUTS, stop_at=frozenset({"nan_output"}))
    with pytest.raises(EventRefused, match="offset 3 of in/1"):
        sink_of(outputs, epochs={("in", 1): 1})[0].write([one])
    assert sink_of(outputs, epochs={})[0].write([one]) == {}
