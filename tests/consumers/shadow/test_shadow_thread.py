"""The shadow lane: it compares what is committed, leaves out what it has no time for, and keeps its errors to itself."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from millstream.consumers.execute.bisecting import BisectingExecutor
from millstream.consumers.flow.assignment import Assignment
from millstream.consumers.observability import metrics as m
from millstream.consumers.shadow import shadow_thread as shadow_lane
from millstream.consumers.shadow.shadow_fields import ShadowFields
from millstream.consumers.shadow.shadow_thread import Compared, Shadow, ShadowThread
from millstream.consumers.shadow.shed_warnings import ShedWarnings
from millstream.inference.errors import ModelRejected
from millstream.inference.model_id import ModelId
from millstream.schemas.comparisons import PrimaryRows
from millstream.schemas.json.decoder import JsonDecoder
from tests.consumers.in_memory import SIGNATURE, answered, ended
from tests.consumers.measured import Measured
from tests.schemas.row_models import model_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.consumers.events import BatchResult, NextOffsets
    from millstream.consumers.sink.delivery import BestEffort
    from millstream.inference.executors.interface import Tensors
    from millstream.schemas.comparisons import ComparisonEncoder

ENDS: NextOffsets = {("in", 0): (1, 3)}


class Publisher:
    """Keeps what it is handed."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes, bytes]] = []
        self.served = 0
        self.closed = False

    def produce(self, topic: str, value: bytes, key: bytes) -> None:
        self.records.append((topic, value, key))

    def serve(self) -> None:
        self.served += 1

    def close(self, _timeout: float) -> None:
        self.closed = True


class Comparing:
    """A shadow that compares all it is given, after whatever `before` does."""

    def __init__(self, name: str, before: Callable[[], object], sample_rate: float) -> None:
        self.name = name
        self.sample_rate = sample_rate
        self._before = before

    def comparable(self, one: BatchResult) -> int:
        return len(one.rows)

    def compare(self, one: BatchResult, among: Any) -> Compared:
        self._before()
        return Compared([(event, self.name.encode()) for event in np.array(one.batch.ids())[among].tolist()], 1)


class Committed(Assignment):
    """Says of ends whether they are committed as it is told."""

    def __init__(self, told: Callable[[NextOffsets], bool | None]) -> None:
        super().__init__()
        self.told = told

    def is_committed(self, ends: NextOffsets) -> bool | None:
        return self.told(ends)


class Lane(Measured):
    """A lane with what is around it."""

    def __init__(
        self,
        *,
        before: Callable[[], object] = lambda: None,
        settled: Callable[[NextOffsets], bool | None] = lambda _ends: True,
        names: Sequence[str] = ("v2",),
        shadows: Sequence[Shadow] = (),
        sample_rate: float = 1.0,
        room: int = 100,
        max_load: float = 1.0,
    ) -> None:
        super().__init__()
        self.publisher = Publisher()
        self.busy = False
        self.passed = 0.0  # seconds that pass for the warnings only
        self.lane = ShadowThread(
            shadows or [cast("Shadow", Comparing(name, before, sample_rate)) for name in names],
            cast("BestEffort", self.publisher),
            topic="compared",
            max_load=max_load,
            room=room,
            busy=lambda: self.busy,
            assignment=Committed(settled),
            metrics=self.metrics,
        )
        self.lane.warnings = ShedWarnings(lambda: time.monotonic() + self.passed)

    def offer(self, kinds: str, start: int = 0, ends: NextOffsets = ENDS) -> None:
        self.lane.offer(answered(kinds, start), ends)

    def left_out(self, reason: str) -> float | None:
        return self.value(m.SHADOW_SKIPPED, shadow="v2", reason=reason)


def standing_lane(room: int) -> tuple[Lane, threading.Event]:
    """A lane whose shadow runs the event 0 until the event is set that is returned."""
    go_on, working = threading.Event(), threading.Event()

    def stand() -> None:
        working.set()
        assert go_on.wait(10)

    lane = Lane(before=stand, room=room)
    lane.offer("e")
    assert working.wait(10)
    return lane, go_on


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.001)


def test_each_shadow_compares_each_batch_and_is_counted() -> None:
    own = Lane(names=("v2", "v3"))
    own.offer("ee")
    own.offer("e", 2)
    own.lane.close()
    assert own.publisher.records == [
        *(("compared", name, event) for name in (b"v2", b"v3") for event in (b"0", b"1")),
        *(("compared", name, b"2") for name in (b"v2", b"v3")),
    ]
    assert own.value(m.COMPARISONS, shadow="v2") == own.value(m.COMPARISONS, shadow="v3") == 3
    assert own.value(m.SHADOW_FAILED, shadow="v2") == 2
    assert own.value(m.SHADOW_SECONDS, "_count") == 2
    assert own.publisher.served == 2
    assert own.publisher.closed


def test_shadow_that_hangs_is_named_and_what_it_left_is_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow_lane, "SHUTDOWN_TIMEOUT", 0.1)
    goes_on, working = threading.Event(), threading.Event()

    def hang() -> None:
        working.set()
        goes_on.wait()

    own = Lane(before=hang, room=3)
    own.offer("ee")
    assert working.wait(10)
    own.offer("eee", 2)
    own.passed += 90
    own.offer("e", 5)
    assert "because shadow v2 has been running one batch for 1 min 30 s and probably hangs" in caplog.text
    own.lane.close()
    assert (own.left_out("shed"), own.left_out("ended")) == (1, 5)
    goes_on.set()


def test_time_that_shadows_took_is_measured() -> None:
    own = Lane(before=lambda: time.sleep(0.05), names=("v2", "v3"))
    own.offer("e")
    own.lane.close()
    took = own.value(m.SHADOW_SECONDS, "_sum")
    assert took is not None
    assert 0.1 <= took < 5


def test_shadows_pause_so_that_they_take_their_share_of_the_time() -> None:
    began: list[float] = []

    def working() -> None:
        began.append(time.monotonic())
        time.sleep(0.02)

    own = Lane(before=working, max_load=0.2)
    own.offer("e")
    own.offer("e", 1)
    until(lambda: len(began) == 2)
    own.lane.close()
    assert began[1] - began[0] >= 0.02 / 0.2


def test_batch_without_answers_is_not_looked_at() -> None:
    own = Lane(before=lambda: pytest.fail("nothing is to be compared"))
    own.offer("tr")
    own.lane.close()
    assert own.value(m.SHADOW_SECONDS, "_count") == 0
    assert own.publisher.records == []


def test_nothing_is_compared_before_its_offsets_are_committed() -> None:
    """What is read again would be compared twice."""
    committed, asked = threading.Event(), []

    def settled(ends: NextOffsets) -> bool:
        asked.append(ends)
        return committed.is_set()

    own = Lane(settled=settled)
    own.offer("e")
    until(lambda: len(asked) > 2)
    assert own.publisher.records == []
    committed.set()
    own.lane.close()
    assert asked[0] == ENDS
    assert len(own.publisher.records) == 1


def test_batch_that_never_will_be_committed_is_let_go_at_once() -> None:
    own = Lane(settled=lambda ends: None if ends == ENDS else True, sample_rate=0.5)
    own.offer("ee")
    own.offer("e", 2, {("in", 0): (2, 3)})
    own.lane.close()
    assert [key for _, _, key in own.publisher.records] == [b"2"]
    assert own.left_out("uncommitted") == 1, "two events, of which a half is in the sample"


def test_batch_that_is_not_committed_for_long_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow_lane, "COMMIT_TIMEOUT", 0.02)
    own = Lane(settled=lambda ends: ends != ENDS)
    own.offer("ee")
    until(lambda: own.left_out("uncommitted") == 2)
    own.lane.close()
    assert own.publisher.records == []


def test_busy_primary_has_its_events_left_out(caplog: pytest.LogCaptureFixture) -> None:
    own = Lane()
    own.busy = True
    own.offer("ee")
    assert own.left_out("shed") == 2, "counted before it returns"
    own.offer("e", 2)
    (line,) = [record.getMessage() for record in caplog.records]  # at most one a minute
    assert line.startswith(
        "2 events were left out by the shadows, such as: 2 at once, while this worker had a backlog."
    )
    assert "A backlog, as at a start, is the usual cause, and passes by itself." in line
    assert "`dedicated: true`" in line
    own.busy = False
    own.offer("e", 3)
    own.lane.close()
    assert [key for _, _, key in own.publisher.records] == [b"3"]


def test_events_left_out_are_told_once_the_time_has_come_and_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    own = Lane()
    own.busy = True
    own.offer("e")
    own.offer("eee", 1)
    own.lane.catch_up()
    assert len(caplog.records) == 1
    own.passed += 60
    own.lane.catch_up()
    own.offer("ee", 4)
    own.lane.say_all()
    own.lane.close()
    _, second, third = (record.getMessage() for record in caplog.records)
    assert second.startswith("3 events were left out by the shadows, such as: 3 at once,")
    assert third.startswith("2 events were left out by the shadows, such as: 2 at once,")


def test_batches_without_answers_hold_no_warning_back(caplog: pytest.LogCaptureFixture) -> None:
    own = Lane()
    own.busy = True
    own.offer("e")
    own.offer("ee", 1)
    own.passed += 60
    own.offer("r", 3)
    own.lane.close()
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "1 event was left out by the shadows",
        "2 events were left out by the shadows",
    ]


def test_warning_that_comes_again_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    own, go_on = standing_lane(room=1)
    own.offer("e", 1)
    own.offer("e", 2)
    own.offer("e", 3)
    own.lane.say_all()
    own.busy = True
    go_on.set()
    until(lambda: not own.lane.at_work)
    own.offer("e", 4)
    own.lane.say_all()
    own.lane.close()
    first, full, busy = (record.getMessage() for record in caplog.records)
    assert "passes by itself" in first
    assert "while the shadows' queue was full" in full
    assert "The shadows are slower than the load, or pause for their `max_load`" in full
    assert "give the shadows workers of their own (`dedicated: true`), or raise `max_load`" in full
    assert "while this worker had a backlog" in busy
    assert "start more workers" in busy
    assert "passes by itself" not in full + busy
    assert "max_load" not in busy


def test_no_more_events_wait_than_there_is_room_for(caplog: pytest.LogCaptureFixture) -> None:
    own, go_on = standing_lane(room=3)
    own.offer("ee", 1)
    own.offer("e", 3)
    own.offer("e", 4)
    assert own.left_out("shed") == 1
    assert "1 event was left out by the shadows, such as: 1 at once, while the shadows' queue was full." in caplog.text
    go_on.set()
    own.lane.close()
    assert [key for _, _, key in own.publisher.records] == [b"0", b"1", b"2", b"3"]


def test_batch_that_is_larger_than_the_room_is_taken_when_nothing_else_waits() -> None:
    own = Lane(room=2)
    own.offer("eeeee")
    own.lane.close()
    assert len(own.publisher.records) == 5


def test_shadow_that_breaks_costs_its_comparisons_and_nothing_else() -> None:
    failures: list[Exception] = [KeyError("a bug")]

    def once() -> None:
        if failures:
            raise failures.pop()

    own = Lane(before=once)
    own.offer("ee")
    own.offer("e", 2)
    own.lane.close()
    assert own.left_out("failed") == 2
    assert [key for _, _, key in own.publisher.records] == [b"2"]


def test_worker_that_ends_compares_what_waits_for_a_while_and_counts_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadow_lane, "SHUTDOWN_TIMEOUT", 1.0)
    go_on, working, over = threading.Event(), threading.Event(), threading.Event()
    batches: list[threading.Thread] = []

    def slow() -> None:
        working.set()
        assert go_on.wait(10)
        batches.append(threading.current_thread())
        if len(batches) > 2:
            assert over.wait(10)

    own = Lane(before=slow)
    own.offer("e")
    assert working.wait(10)
    for at in range(1, 5):
        own.offer("e", at)
    closing = threading.Thread(target=own.lane.close, daemon=True)
    closing.start()
    go_on.set()
    assert ended(closing)
    assert own.left_out("ended") == 3
    over.set()
    assert ended(batches[0])
    assert own.left_out("ended") == 3
    assert [key for _, _, key in own.publisher.records] == [b"0", b"1"]


# One shadow.


class Encoded:
    """In place of the encoder: keeps what it was told; fails on outputs where it is to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.told: list[Any] = []

    def encode(
        self,
        ids: Sequence[str],
        keys: Sequence[bytes | None],
        times: Any,
        primary: PrimaryRows,
        outputs: Any,
        took: float,
        errors: Any,
    ) -> list[bytes]:
        if self.fails and outputs is not None:
            raise ValueError("no such type")
        assert 0 <= took < 10_000, "milliseconds"
        self.told = [
            list(ids),
            list(keys),
            times.tolist(),
            {name: array.ravel().tolist() for name, array in primary.outputs.items()},
            primary.latency_ms,
            None if outputs is None else {name: array.ravel().tolist() for name, array in outputs.items()},
            dict(errors),
        ]
        self.models = [model_of(primary.models, row) for row in range(len(ids))]
        return [event.encode() for event in ids]


def doubled(inputs: Tensors) -> dict[str, Any]:
    if 7 in inputs["x"]:
        raise ModelRejected("a 7")
    return {"y": inputs["x"] * 2}


def shadow_of(encoder: Encoded, *, sample_rate: float = 1.0, run: Callable[[Tensors], Any] = doubled) -> Shadow:
    isolation = BisectingExecutor(run, max_events=16, allow_nan_outputs=False)
    return Shadow(
        "v2",
        isolation,
        ModelId("m", 9),
        ShadowFields(JsonDecoder.of_types({"number": "float64"}), []),
        SIGNATURE.inputs,
        cast("ComparisonEncoder", encoder),
        sample_rate=sample_rate,
        allow_nan=False,
    )


def with_numbers(*numbers: float | str | None) -> BatchResult:
    """The primary's answers to events that hold these, 10 times as much each."""
    one = answered("e" * len(numbers))
    (part,) = one.batch.parts
    values = [json.dumps({"number": number}).encode() for number in numbers]
    block = replace(part.block, values=values, keys=[b"k%d" % row for row in range(len(numbers))])
    outputs = {"y": np.array([10 * number if isinstance(number, int) else -1.0 for number in numbers]).reshape(-1, 1)}
    batch = one.batch._replace(parts=(part._replace(block=block),))
    return one._replace(batch=batch, outputs=outputs, seconds=0.25)


def test_shadow_answers_what_the_primary_has_answered() -> None:
    encoder = Encoded()
    compared = shadow_of(encoder).compare(with_numbers(1, 2, 3), np.array([0, 2]))
    assert compared == ([("0", b"0"), ("2", b"2")], 0)
    assert encoder.told == [["0", "2"], [b"k0", b"k2"], [0, 2], {"y": [10, 30]}, 250, {"y": [2, 6]}, {}]


def test_comparison_names_the_models_that_answered_its_events() -> None:
    encoder, models = Encoded(), (ModelId("m", 1), ModelId("m", 2), ModelId("n", 1))
    several = with_numbers(1, 2, 3, 4)._replace(models=models, answered_by=np.array([0, 2, 1, 0]))
    shadow_of(encoder).compare(several, np.array([1, 2, 3]))
    assert encoder.models == [("n", 1), ("m", 2), ("m", 1)]
    shadow_of(encoder).compare(with_numbers(1, 2), np.array([1]))
    assert encoder.models == [("m", 1)]


def test_events_that_the_shadows_own_version_answered_are_not_compared() -> None:
    encoder, models = Encoded(), (ModelId("m", 1), ModelId("m", 9))
    during = with_numbers(1, 2, 3, 4)._replace(models=models, answered_by=np.array([1, 0, 1, 0]))
    compared = shadow_of(encoder).compare(during, np.array([0, 1, 2, 3]))
    assert compared.comparisons == [("1", b"1"), ("3", b"3")]
    assert encoder.models == [("m", 1), ("m", 1)]
    promoted = with_numbers(1, 2)._replace(models=(ModelId("m", 9),), answered_by=None)
    assert shadow_of(encoder).compare(promoted, np.arange(2)) == ([], 0)


def test_events_that_the_shadows_own_version_answered_are_not_counted_as_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    models = (ModelId("m", 1), ModelId("m", 9))
    during = with_numbers(1, 2, 3, 4)._replace(models=models, answered_by=np.array([1, 0, 1, 1]))
    promoted = with_numbers(1, 2)._replace(models=models[1:], answered_by=None)
    own = Lane(shadows=[shadow_of(Encoded(), sample_rate=0.5)], settled=lambda _ends: None)
    own.lane.offer(during, ENDS)
    until(lambda: not own.lane.at_work)
    own.busy = True
    own.lane.offer(during, ENDS)
    own.lane.offer(promoted, ENDS)
    own.lane.say_all()
    own.lane.close()
    assert own.left_out("uncommitted") == own.left_out("shed") == 0.5, "one event, of which a half is in the sample"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("1 event was left out by the shadows, such as: 1 at once,")


def test_features_of_several_blocks_are_taken_in_their_order() -> None:
    encoder = Encoded()
    one, other = with_numbers(1, 2), with_numbers(3)
    batch = one.batch._replace(parts=(*one.batch.parts, *other.batch.parts))
    outputs = {"y": np.array([[10.0], [20.0], [30.0]])}
    both = one._replace(batch=batch, outputs=outputs, rows=np.arange(3))
    shadow_of(encoder).compare(both, np.array([1, 2]))
    assert encoder.told[3:6] == [{"y": [20, 30]}, 250, {"y": [4, 6]}]


def test_events_that_the_shadow_cannot_answer_are_compared_with_their_errors() -> None:
    encoder = Encoded()
    compared = shadow_of(encoder).compare(with_numbers("one", 1, None, 7, 4), np.arange(5))
    assert encoder.told[5] == {"y": [2, 8]}
    assert encoder.told[6] == {
        0: "number: expected a number that fits into a double, found text 'one'",
        2: "field `number` is absent or null, but tensor `x` needs a value",
        3: "a 7",
    }
    assert (len(compared.comparisons), compared.failed) == (5, 3)


def test_shadow_that_answers_none_of_them_says_why_of_each() -> None:
    encoder = Encoded()
    shadow_of(encoder).compare(with_numbers(None, None), np.arange(2))
    assert encoder.told[5] is None
    assert encoder.told[6].keys() == {0, 1}
    shadow_of(encoder).compare(with_numbers(7, 7), np.arange(2))
    assert (encoder.told[5], encoder.told[6]) == (None, {0: "a 7", 1: "a 7"})
    shadow_of(encoder).compare(with_numbers("one", "two"), np.arange(2))
    assert encoder.told[5] is None
    assert encoder.told[6].keys() == {0, 1}


def test_shadow_that_breaks_is_compared_as_such() -> None:
    def broken(_inputs: Tensors) -> Any:
        raise KeyError("weights")

    encoder = Encoded()
    shadow_of(encoder, run=broken).compare(with_numbers(1, 2), np.arange(2))
    assert (encoder.told[5], encoder.told[6]) == (None, dict.fromkeys((0, 1), "KeyError: 'weights'"))


def test_outputs_that_no_comparison_can_hold_are_an_error_of_the_shadows() -> None:
    encoder = Encoded(fails=True)
    compared = shadow_of(encoder).compare(with_numbers(1, 2), np.arange(2))
    assert (len(compared.comparisons), compared.failed) == (2, 2)
    assert (encoder.told[5], encoder.told[6]) == (None, dict.fromkeys((0, 1), "no such type"))


def test_events_outside_of_the_sample_are_not_run() -> None:
    encoder = Encoded()

    def never(_inputs: Tensors) -> Any:
        pytest.fail("none of them is in the sample")

    assert shadow_of(encoder, sample_rate=0.0, run=never).compare(with_numbers(1, 2), np.arange(2)) == ([], 0)
    assert encoder.told == []
