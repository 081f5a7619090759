"""An unexpected exception of a stage costs the record that raises it; one of the worker's own ends the worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.consumers.errors import Abandoned
from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.observability.metrics import INTERNAL_ERRORS, Metrics
from millstream.consumers.resilience.safety_net import MAX_UNPROVEN, SafetyNet
from millstream.consumers.sink.isolating_encoder import IsolatingEncoder, PredictionColumns
from millstream.inference.errors import ExecutorUnavailable, ModelRejected, OutOfMemory
from millstream.schemas.errors import SchemaUnavailable
from millstream.schemas.packed import Texts
from millstream.schemas.predictions import JsonPredictionEncoder, UnsupportedOutputError
from millstream.schemas.row_models import RowModels
from tests.consumers.in_memory import SIGNATURE, NegatingExecutor, NumberDecoder, polled
from tests.consumers.isolating import isolating_decoder
from tests.consumers.measured import measured
from tests.schemas.row_models import ONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.inference.executors.interface import Tensors
    from millstream.schemas.decoded import Decoded
    from millstream.schemas.table import Table

FIELDS = EventFields(None, None)
ERRORS: list[Callable[[], Exception]] = [
    lambda: KeyError("price"),
    MemoryError,
    lambda: ValueError("x" * 10_000),
]
VALUES = st.lists(st.sampled_from([b"1", b"2", b"x", b"null", b"bug"]), min_size=1, max_size=40)


class BuggyDecoder(NumberDecoder):
    """Raises when any value is `bug`, or always once `broken`."""

    def __init__(self, error: Callable[[], Exception] = ERRORS[0]) -> None:
        super().__init__()
        self.error = error
        self.broken = False

    def decode(self, values: Sequence[bytes]) -> Decoded:
        if self.broken or b"bug" in list(values):
            raise self.error()
        return super().decode(values)


def counted(metrics: Metrics, stage: str) -> float:
    return measured(metrics, INTERNAL_ERRORS, stage=stage) or 0.0


@pytest.mark.parametrize("error", ERRORS)
@given(VALUES, st.booleans())
def test_records_that_break_the_decoder_are_rejected_and_the_others_decoded(
    error: Callable[[], Exception], values: list[bytes], begins_well: bool
) -> None:
    # Before the first good record, a lack of memory may be the worker's.
    assume(begins_well or values.count(b"bug") <= (0 if error is MemoryError else MAX_UNPROVEN))
    values = [b"1" if begins_well else b"null", *values]
    metrics = Metrics("p")
    stage = isolating_decoder(BlockDecoder(BuggyDecoder(error), FIELDS, SIGNATURE, allow_nan=False), metrics)
    blocks = [*stage.blocks(polled(values[:1])), *stage.blocks(polled(values, 1))]
    fate = {int(offset): "" for block in blocks for offset in block.offsets[block.good]}
    for block in blocks:
        fate |= {int(block.offsets[row]): why.reason for row, why in block.rejected.items()}
    reasons = {b"bug": "internal_error", b"x": "undecodable", b"null": "unfit"}
    assert fate == {
        0: reasons.get(values[0], ""),
        **{1 + row: reasons.get(value, "") for row, value in enumerate(values)},
    }
    assert [offset for block in blocks for offset in block.offsets.tolist()] == list(range(1 + len(values)))
    assert counted(metrics, "decode") == values.count(b"bug")


def test_rejection_says_what_broke_where_and_what_to_do() -> None:
    decoder = BlockDecoder(BuggyDecoder(), FIELDS, SIGNATURE, allow_nan=False)
    (block,) = isolating_decoder(decoder).blocks(polled([b"bug"]))
    (refused,) = block.rejected.values()
    assert "the decode stage raised KeyError: 'price'" in refused.error
    assert "test_safety_net.py" in refused.error
    assert "in decode" in refused.error
    assert "report the bug" in refused.error
    assert len(refused.error) < 1500


def test_fault_that_a_good_record_raises_too_ends_the_worker() -> None:
    numbers = BuggyDecoder()
    stage = isolating_decoder(BlockDecoder(numbers, FIELDS, SIGNATURE, allow_nan=False))
    list(stage.blocks(polled([b"1"])))
    numbers.broken = True
    with pytest.raises(KeyError, match="price"):
        list(stage.blocks(polled([b"1", b"2"])))


def test_fault_before_any_good_record_ends_the_worker_after_a_few() -> None:
    class Rejecting(BuggyDecoder):
        def decode(self, values: Sequence[bytes]) -> Decoded:
            return super().decode(values) if len(values) else NumberDecoder.decode(self, values)

    numbers = Rejecting()
    numbers.broken = True
    stage = isolating_decoder(BlockDecoder(numbers, FIELDS, SIGNATURE, allow_nan=False))
    blocks = list(stage.blocks(polled([b"1"] * MAX_UNPROVEN)))
    assert [block.rejected[0].reason for block in blocks] == ["internal_error"] * MAX_UNPROVEN
    with pytest.raises(KeyError):
        list(stage.blocks(polled([b"1"])))


def test_lack_of_memory_before_any_good_record_ends_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    stage = isolating_decoder(BlockDecoder(BuggyDecoder(MemoryError), FIELDS, SIGNATURE, allow_nan=False))
    with pytest.raises(MemoryError):
        list(stage.blocks(polled([b"bug"])))
    assert "memory is short in the decode stage" in caplog.text
    assert "Traceback" not in caplog.text


def test_record_that_alone_lacks_memory_is_rejected_with_what_to_do() -> None:
    stage = isolating_decoder(BlockDecoder(BuggyDecoder(MemoryError), FIELDS, SIGNATURE, allow_nan=False))
    list(stage.blocks(polled([b"1"])))
    (block,) = stage.blocks(polled([b"bug"]))
    (refused,) = block.rejected.values()
    assert "got no memory for this event alone" in refused.error
    assert "Give the worker more memory, and replay the event." in refused.error


def test_flood_of_records_that_break_the_decoder_does_not_end_the_worker() -> None:
    stage = isolating_decoder(BlockDecoder(BuggyDecoder(), FIELDS, SIGNATURE, allow_nan=False))
    list(stage.blocks(polled([b"1"])))
    blocks = list(stage.blocks(polled([b"bug"] * 500, 1)))
    assert sum(len(block.rejected) for block in blocks) == 500


def test_schemas_that_are_away_are_waited_for_and_not_isolated() -> None:
    numbers = NumberDecoder()
    numbers.failures += [SchemaUnavailable("the registry is away")] * 2
    metrics = Metrics("p")
    stage = isolating_decoder(BlockDecoder(numbers, FIELDS, SIGNATURE, allow_nan=False), metrics)
    (block,) = stage.blocks(polled([b"1", b"2"]))
    assert block.good.tolist() == [0, 1]
    assert counted(metrics, "decode") == 0


def isolation_of(before: Any, metrics: Metrics) -> BisectingExecutor:
    executor = NegatingExecutor(before)
    return BisectingExecutor(executor.run, max_events=70, allow_nan_outputs=False, net=SafetyNet("infer", metrics))


def raising(error: Exception, bad: float) -> Any:
    def before(inputs: Tensors) -> None:
        if bad in inputs["x"]:
            raise error

    return before


@given(st.lists(st.integers(0, 9), min_size=1, max_size=70), st.booleans())
def test_events_that_break_the_executor_are_rejected_and_the_others_predicted(
    numbers: list[int], begins_well: bool
) -> None:
    assume(begins_well or numbers.count(7) <= MAX_UNPROVEN)
    metrics = Metrics("p")
    isolation = isolation_of(raising(IndexError("list index out of range"), 7), metrics)
    if begins_well:
        isolation.run({"x": np.ones((1, 1), np.float32)})
    outputs, rows, rejected = isolation.run({"x": np.array(numbers, np.float32).reshape(-1, 1)})
    assert rows.tolist() == [row for row, number in enumerate(numbers) if number != 7]
    assert {row: why.reason for row, why in rejected.items()} == {
        row: "internal_error" for row, number in enumerate(numbers) if number == 7
    }
    if len(rows):
        assert outputs["y"][:, 0].tolist() == [-number for number in numbers if number != 7]
    assert counted(metrics, "infer") == numbers.count(7)


def test_executor_that_breaks_on_a_good_event_too_ends_the_worker() -> None:
    broken = [False]

    def before(_inputs: Tensors) -> None:
        if broken[0]:
            raise IndexError("always")

    isolation = isolation_of(before, Metrics("p"))
    isolation.run({"x": np.ones((2, 1), np.float32)})
    broken[0] = True
    with pytest.raises(IndexError, match="always"):
        isolation.run({"x": np.zeros((2, 1), np.float32)})


def test_good_events_of_the_first_batch_tell_that_the_executor_works() -> None:
    isolation = isolation_of(raising(IndexError("no"), 7), Metrics("p"))
    numbers = [1.0] * 10 + [7.0] * 2 * MAX_UNPROVEN + [1.0] * 10
    _, rows, rejected = isolation.run({"x": np.array(numbers, np.float32).reshape(-1, 1)})
    assert (len(rows), len(rejected)) == (20, 2 * MAX_UNPROVEN)


def second_time(error: Exception) -> Any:
    """Events of 7 raise IndexError; an event of 1 is good once, and raises the error when it runs again."""
    runs: list[float] = []

    def before(inputs: Tensors) -> None:
        if 7 in inputs["x"]:
            raise IndexError("no")
        runs.append(float(inputs["x"][0, 0]))
        if runs.count(1.0) > 1:
            raise error

    return before


def test_good_event_that_the_model_rejects_this_time_says_nothing_against_the_executor() -> None:
    isolation = isolation_of(second_time(ModelRejected("not today")), Metrics("p"))
    isolation.run({"x": np.ones((1, 1), np.float32)})
    _, _, rejected = isolation.run({"x": np.full((1, 1), 7, np.float32)})
    assert rejected[0].reason == "internal_error"


@pytest.mark.parametrize("error", [OutOfMemory("full"), ExecutorUnavailable("away")])
def test_good_event_that_can_not_run_now_makes_the_batch_wait(error: Exception) -> None:
    isolation = isolation_of(second_time(error), Metrics("p"))
    isolation.run({"x": np.ones((1, 1), np.float32)})
    with pytest.raises(ExecutorUnavailable):
        isolation.run({"x": np.full((1, 1), 7, np.float32)})


def test_schemas_that_are_away_while_a_good_record_is_tried_are_waited_for() -> None:
    numbers = BuggyDecoder()
    stage = isolating_decoder(BlockDecoder(numbers, FIELDS, SIGNATURE, allow_nan=False))
    list(stage.blocks(polled([b"1"])))
    decode, away = numbers.decode, [SchemaUnavailable("the registry is away")] * 2

    def interrupted(values: Sequence[bytes]) -> Decoded:
        if away and list(values) == [b"1"]:
            raise away.pop()
        return decode(values)

    numbers.decode = interrupted  # type: ignore[method-assign]
    (block,) = stage.blocks(polled([b"bug"]))
    assert block.rejected[0].reason == "internal_error"
    assert not away


def test_batch_that_fails_as_a_whole_only_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def before(inputs: Tensors) -> None:
        if len(inputs["x"]) > 1:
            raise IndexError("only together")

    metrics = Metrics("p")
    isolation = isolation_of(before, metrics)
    for _ in range(3):
        _, rows, rejected = isolation.run({"x": np.ones((4, 1), np.float32)})
        assert (len(rows), rejected) == (4, {})
    assert caplog.text.count("unexpected error in the infer stage") == 1
    assert counted(metrics, "infer") == 0


@pytest.mark.parametrize("error", [ExecutorUnavailable("away"), Abandoned("told to end")])
def test_net_lets_through_what_says_itself_what_to_do(error: Exception) -> None:
    isolation = isolation_of(raising(error, 7), Metrics("p"))
    with pytest.raises(type(error)):
        isolation.run({"x": np.full((4, 1), 7, np.float32)})


def columns(numbers: Sequence[float]) -> PredictionColumns:
    times = np.arange(len(numbers))
    ids = Texts.of([f"e{number:g}" for number in numbers])
    return PredictionColumns(ids, times, times, times, {"y": np.array(numbers)}, ONE)


class BuggyEncoder(JsonPredictionEncoder):
    """Raises when any output is 7."""

    def __init__(self, error: Exception) -> None:
        super().__init__(pipeline="p", variant="primary")
        self.error = error

    def encode(
        self,
        event_ids: Sequence[str],
        event_times: Any,
        ingest_times: Any,
        prediction_times: Any,
        outputs: Mapping[str, Any],
        event: Table | None = None,
        *,
        models: RowModels,
    ) -> Any:
        if 7 in outputs["y"]:
            raise self.error
        return super().encode(event_ids, event_times, ingest_times, prediction_times, outputs, event, models=models)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(OverflowError("int too large"), "internal_error"), (UnsupportedOutputError("dtype object"), "model_rejected")],
)
@pytest.mark.parametrize("begins_well", [True, False])
def test_predictions_that_break_the_encoder_are_rejected_and_the_others_written(
    error: Exception, reason: str, begins_well: bool
) -> None:
    encoder = IsolatingEncoder(BuggyEncoder(error), Metrics("p"))
    if begins_well:
        encoder.encode(columns([1]))
    values, failed = encoder.encode(columns([1, 7, 2, 7]))
    assert {row: why.reason for row, why in failed.items()} == {1: reason, 3: reason}
    whole, _ = IsolatingEncoder(BuggyEncoder(error), Metrics("p")).encode(columns([1, 2]))
    assert values[0] == whole[0]
    assert len(values) == 2
    assert b'"e2"' in values[1]
