import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumers.batch.batcher import Batcher, Limits
from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.consumers.decode.isolating_decoder import IsolatingDecoder
from millstream.consumers.errors import Abandoned, OffsetsRewound, ReadBelowCommitted
from millstream.consumers.events import Barrier, BatchResult, FetchedBatch, Rejection, ResultQueue
from millstream.consumers.execute.executor_pool import ExecutorPool
from millstream.consumers.execute.reorder_buffer import Ordering
from millstream.consumers.execute.result_buffer import ResultBuffer
from millstream.consumers.execute.runner import Runner
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.flow.in_flight import TopicQuotas
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import BLOCKED, INVALID_DEADLINES, RETRIES, Metrics
from millstream.consumers.record_types import Partition, Record
from millstream.consumers.records import Records
from millstream.consumers.resilience import outage
from millstream.consumers.resilience import retry as waiting
from millstream.consumers.resilience.retry import Retry
from millstream.consumers.resilience.safety_net import MAX_UNPROVEN, SafetyNet
from millstream.consumers.resilience.watchdog import Watchdog
from millstream.consumers.source.offset_order import OffsetOrderCheck
from millstream.consumers.worker import compute
from millstream.consumers.worker.compute import Compute
from millstream.inference.errors import ExecutorUnavailable, ModelRejected
from millstream.inference.executors.interface import Tensors
from millstream.inference.executors.opened import OpenedModel
from millstream.schemas.decoded import Decoded
from millstream.schemas.errors import SchemaUnavailable
from tests.consumers.execute.serving import in_slots
from tests.consumers.in_memory import (
    EPOCHS,
    MODEL,
    SIGNATURE,
    MemoryRecord,
    NegatingExecutor,
    NumberDecoder,
    ended,
    offsets,
    partitions,
    polled,
    running,
)
from tests.consumers.measured import measured

Message = FetchedBatch | Barrier | None
Given = BatchResult | Barrier | OffsetsRewound | None
FOREVER = 1e9  # seconds
WATCHDOG = Watchdog(600)  # each has a thread
NO_FIELDS = EventFields(None, None)
LIMITS = Limits(max_events=4, max_bytes=1_000_000, max_wait=FOREVER)


@pytest.fixture(autouse=True, scope="module")
def short_waits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "BACK_OFF", (0.001, 0.002))
        yield


class Stage:
    """A computing stage with what is around it."""

    def __init__(
        self,
        messages: Sequence[Message],
        limits: Limits = LIMITS,
        before: Callable[[Tensors], None] | None = None,
        *,
        pool: int = 1,
        ahead: int = 0,
        ordering: Ordering = "partition",
        weights: dict[str, float] | None = None,
        fields: EventFields = NO_FIELDS,
        start_offsets: Mapping[Partition, int] | None = None,
    ) -> None:
        self.inbox: SimpleQueue[Message] = SimpleQueue()
        self.answers: ResultQueue = SimpleQueue()
        self._taken: list[Given] = []
        for message in messages:
            self.inbox.put(message)
        self.abandon = threading.Event()
        self.metrics = Metrics("p")
        self.numbers = NumberDecoder()
        self.executor = NegatingExecutor(before) if before else NegatingExecutor()
        self.failure: BaseException | None = None
        self.health = Health(60)
        results = ResultBuffer(self.answers)
        retry = Retry(self.abandon, self.health, self.metrics, before_waiting=results.flush)
        self.window = BatchWindow(limits.max_wait, limits.target_p99, enough=limits.max_events)
        its_pool = ExecutorPool(
            [self._runner(limits, retry) for _ in range(pool)],
            in_slots(pool, max_events=limits.max_events, net=SafetyNet("infer", self.metrics)),
            OpenedModel(MODEL, [self.executor]),
            results,
            ahead=ahead,
            ordering=ordering,
            abandon=self.abandon,
            fail=self._fail,
        )
        decoder = BlockDecoder(self.numbers, fields, SIGNATURE, allow_nan=False)
        self.compute = Compute(
            self.inbox,
            self.answers,
            decoder=IsolatingDecoder(decoder, retry=retry, watchdog=WATCHDOG, metrics=self.metrics),
            batcher=Batcher(limits, weights, window=self.window),
            order=OffsetOrderCheck(dict(start_offsets or {})),
            pool=its_pool,
            metrics=self.metrics,
            quotas=TopicQuotas(weights, 1000) if weights else None,
        )

    def _runner(self, limits: Limits, retry: Retry) -> Runner:
        return Runner(
            max_events=limits.max_events,
            watchdog=WATCHDOG,
            retry=retry,
            admit=lambda _number, batch: batch,
            is_outdated=lambda _batch: False,
            abandon=self.abandon,
            metrics=self.metrics,
        )

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.abandon.set()

    def run(self) -> list[Given]:
        """Run to the end, which the messages hold."""
        self.compute.run()
        return self.given()

    def given(self) -> list[Given]:
        while not self.answers.empty():
            self._take(0)
        given, self._taken = self._taken, []
        return given

    def next(self, timeout: float = 10) -> Given:
        """What is given next, at most so many seconds later. Raises Empty."""
        if not self._taken:
            self._take(timeout)
        return self._taken.pop(0)

    def _take(self, timeout: float) -> None:
        given = self.answers.get(timeout=timeout)
        self._taken += given if isinstance(given, Sequence) else [given]

    def retries(self, what: str) -> float | None:
        return measured(self.metrics, RETRIES, what=what)


def batches(given: Sequence[Given]) -> list[BatchResult]:
    return [one for one in given if isinstance(one, BatchResult)]


def order(given: Sequence[Given]) -> list[int]:
    return [offset for one in batches(given) for offset in offsets(one.batch)]


def predictions(given: Sequence[Given]) -> dict[str, float]:
    """Event id -> its output."""
    found = {}
    for one in batches(given):
        ids = [event for part in one.batch.parts for event in part.block.ids[part.first : part.last]]
        for at, row in enumerate(one.rows.tolist()):
            found[ids[row]] = float(one.outputs["y"][at, 0])
    return found


VALUES = st.sampled_from([b"1", b"2", b"3", b"x", b"nan", None])


@settings(max_examples=60)
@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=7), max_size=6),
    st.integers(1, 6),
    st.sets(st.integers(0, 5)),
    st.sets(st.integers(0, 5)),
)
def test_every_record_is_answered_once_in_order(
    polls: list[list[bytes | None]], most: int, barriers: set[int], moves: set[int]
) -> None:
    """Whatever the polls hold, with barriers and rebalances between them; the model refuses every 3."""

    def before(inputs: Tensors) -> None:
        if 3 in inputs["x"]:
            raise ModelRejected("a 3")

    messages: list[Message] = []
    values: list[bytes | None] = []
    assignment = dict(EPOCHS)
    for at, poll in enumerate(polls):
        if at in moves:
            assignment = dict(EPOCHS)
        messages.append(polled(poll, len(values), epochs=assignment))
        values += poll
        if at in barriers:
            messages.append(Barrier(threading.Event()))
    given = Stage([*messages, None], Limits(most, 1_000_000, FOREVER), before).run()
    assert order(given) == list(range(len(values)))
    expected = {f"in-0-{row}": -float(value) for row, value in enumerate(values) if value in {b"1", b"2"}}
    assert predictions(given) == expected
    rejected = sum(len(one.rejected) for one in batches(given))
    assert rejected == values.count(b"3")
    assert given[-1] is None


def test_barrier_is_passed_on_after_all_before_it_and_before_all_after_it() -> None:
    barrier = Barrier(threading.Event())
    given = Stage([polled([b"1"] * 6), barrier, polled([b"1"] * 3, 6), None]).run()
    at = given.index(barrier)
    assert order(given[:at]) == [0, 1, 2, 3, 4, 5]
    assert order(given[at:]) == [6, 7, 8]
    assert not barrier.done.is_set()


def test_micro_batch_closes_by_time_while_nothing_more_comes() -> None:
    stage = Stage([polled([b"1"])], Limits(4, 1000, 0.01))
    thread = running(stage.compute.run)
    first = stage.next()
    assert isinstance(first, BatchResult)
    assert first.batch.reason == "time"
    stage.inbox.put(None)
    assert ended(thread)


def test_micro_batch_whose_results_nobody_can_read_sooner_stays_open() -> None:
    """Its window is over at once; it closes by what comes while it waits for the next publication."""
    stage = Stage([], Limits(2, 1000, 0.0))
    stage.window.note_publication(time.monotonic(), FOREVER)
    thread = running(stage.compute.run)
    stage.inbox.put(polled([b"1"]))
    with pytest.raises(Empty):
        stage.next(0.1)
    stage.inbox.put(polled([b"1"], 1))
    both = stage.next()
    assert order([both]) == [0, 1]
    stage.inbox.put(None)
    assert ended(thread)


def test_micro_batch_goes_once_the_publication_that_it_waited_for_is_past() -> None:
    stage = Stage([polled([b"1"])], Limits(2, 1000, 0.0))
    stage.window.note_publication(time.monotonic(), 0.05)
    began = time.monotonic()
    thread = running(stage.compute.run)
    assert order([stage.next()]) == [0]
    assert time.monotonic() >= began + 0.04
    stage.inbox.put(None)
    assert ended(thread)


def test_lone_events_do_not_wait_for_others_that_seldom_come() -> None:
    now = time.monotonic()
    seldom = [polled([b"1"], at, arrived=now - 10 * FOREVER + 2 * FOREVER * at) for at in range(5)]
    stage = Stage(seldom, Limits(1000, 1000, FOREVER))
    for one in seldom:
        stage.window.note(one.arrived, 1)  # as the reader does
    thread = running(stage.compute.run)
    first = stage.next()
    stage.inbox.put(polled([b"1"], 5))
    last = stage.next()
    assert order([first, last]) == [0, 1, 2, 3, 4, 5]
    stage.inbox.put(None)
    assert ended(thread)


def test_events_that_come_while_every_lane_is_busy_go_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is due and can't run yet stays open."""
    busy, free, waits = threading.Semaphore(0), threading.Event(), threading.Event()
    wait_for_one = ExecutorPool.wait_for_one

    def before(_inputs: Tensors) -> None:
        busy.release()
        assert free.wait(10)

    def noted(pool: ExecutorPool) -> bool:
        waits.set()
        return wait_for_one(pool)

    monkeypatch.setattr(ExecutorPool, "wait_for_one", noted)
    stage = Stage([polled([b"1"])], Limits(100, 1000, 0.0), before, pool=2)
    thread = running(stage.compute.run)
    assert busy.acquire(timeout=10)
    stage.inbox.put(polled([b"1"], 1))
    assert busy.acquire(timeout=10)
    waits.clear()
    stage.inbox.put(polled([b"1"], 2))
    assert waits.wait(10)
    for at in range(3, 5):
        stage.inbox.put(polled([b"1"], at))
    free.set()
    stage.inbox.put(None)
    assert ended(thread)
    assert order(stage.given()) == [0, 1, 2, 3, 4]
    assert stage.executor.sizes == [1, 1, 3]


def test_full_micro_batches_do_not_wait() -> None:
    stage = Stage([polled([b"1"] * 9)])
    thread = running(stage.compute.run)
    full = [stage.next() for _ in range(2)]
    assert order(full) == list(range(8))
    assert {one.batch.reason for one in batches(full)} == {"size"}
    stage.inbox.put(None)
    assert ended(thread)


def test_full_micro_batches_run_as_one_where_the_pool_wants_them_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExecutorPool, "together", 3)
    given = Stage([polled([b"1"] * 30), None]).run()  # 4 events fill a batch
    assert order(given) == list(range(30))
    assert [one.batch.events for one in batches(given)] == [12, 12, 4, 2], "the last one is not full"
    assert [len(one.batch.parts) for one in batches(given)] == [1, 1, 1, 1], "neighbours in a block are one range"


def test_polls_of_one_assignment_are_decoded_together() -> None:
    given = Stage([polled([b"1"]), polled([b"1"] * 3, 1), None]).run()
    assert [len(one.batch.parts) for one in batches(given)] == [1]


def test_records_of_many_partitions_fill_one_micro_batch() -> None:
    places = [0, 1, 2, 3, 1, 0, 3, 2]
    records: list[Record] = [MemoryRecord(at, b"1", ("in", place)) for at, place in enumerate(places)]
    epochs = {("in", place): 1 for place in places}
    stage = Stage(
        [
            FetchedBatch(Records.of(records[:3]), epochs, 0.0, 0),
            FetchedBatch(Records.of(records[3:]), epochs, 0.0, 0),
            None,
        ]
    )
    given = batches(stage.run())
    assert stage.executor.sizes == [4, 4]
    found = [
        (offset, part.block.partition(part.start + at))
        for one in given
        for part in one.batch.parts
        for at, offset in enumerate(part.block.offsets[part.start : part.stop].tolist())
    ]
    assert found == [(at, ("in", place)) for at, place in enumerate(places)]


def test_micro_batch_closes_by_what_its_events_cost() -> None:
    limits = Limits(100, 1_000_000, FOREVER, max_cost=10)
    stage = Stage([polled([b"4"] * 5), None], limits, fields=EventFields(None, None, cost="number"))
    assert [one.batch.reason for one in batches(stage.run())] == ["cost", "cost", "drain"]
    assert stage.executor.sizes == [2, 2, 1]


def test_rebalance_splits_blocks_and_each_keeps_its_assignment() -> None:
    later = {("in", 0): 2}
    given = Stage([polled([b"1"] * 2), polled([b"1"] * 2, 2, epochs=later), None]).run()
    (one,) = batches(given)
    assert [part.block.epochs for part in one.batch.parts] == [EPOCHS, later]
    assert order(given) == [0, 1, 2, 3]


def test_joined_polls_have_the_time_of_the_oldest() -> None:
    given = Stage([polled([b"1"], arrived=5.0), polled([b"1"], 1, arrived=6.0), None]).run()
    (one,) = batches(given)
    assert one.batch.arrived == 5.0


def test_word_of_records_given_twice_goes_ahead_of_them() -> None:
    again = {place: epoch + 1 for place, epoch in EPOCHS.items()}
    stage = Stage(
        [
            polled([b"1"] * 4),
            Barrier(threading.Event()),
            polled([b"1"] * 4, 2),
            polled([b"1"] * 4, 6, epochs=again),
            None,
        ]
    )
    given = stage.run()
    kinds = [type(one) for one in given]
    assert kinds == [BatchResult, Barrier, OffsetsRewound, BatchResult, BatchResult, type(None)]
    assert order(given) == [0, 1, 2, 3, 2, 3, 4, 5, 6, 7, 8, 9]


def test_records_from_before_the_beginning_end_the_stage() -> None:
    stage = Stage([polled([b"1"] * 4), None], start_offsets={("in", 0): 1})
    with pytest.raises(ReadBelowCommitted, match="everything below 1 was committed"):
        stage.run()


def test_blocks_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "DECODE_RECORDS", 3)
    given = Stage([*(polled([b"1"], at) for at in range(7)), None]).run()
    assert order(given) == list(range(7))
    assert max(len(part.block.offsets) for one in batches(given) for part in one.batch.parts) == 3


def test_micro_batch_without_events_does_not_run_the_model() -> None:
    stage = Stage([polled([None, b"x"]), None])
    (one,) = batches(stage.run())
    assert (one.batch.records, one.batch.events, one.outputs, one.rejected) == (2, 0, {}, {})
    assert stage.executor.sizes == []


def test_outage_of_the_executor_is_waited_out_and_loses_nothing() -> None:
    failures = [ExecutorUnavailable("the GPU is away")] * 5

    def before(_inputs: Tensors) -> None:
        if failures:
            raise failures.pop()

    stage = Stage([polled([b"1"] * 6), None], before=before)
    given = stage.run()
    assert order(given) == list(range(6))
    assert len(predictions(given)) == 6
    assert stage.executor.sizes == [4] * 6 + [2]
    assert stage.retries("executor") == 5


def test_outage_of_the_schemas_is_waited_out_and_loses_nothing() -> None:
    stage = Stage([polled([b"1"] * 2), None])
    stage.numbers.failures += [SchemaUnavailable("the registry is away")] * 3
    assert len(predictions(stage.run())) == 2
    assert stage.retries("schemas") == 3


def test_outage_is_given_up_when_told_and_nothing_of_it_is_answered() -> None:
    def before(_inputs: Tensors) -> None:
        if len(stage.executor.sizes) > 1:
            stage.abandon.set()
            raise ExecutorUnavailable("the GPU is away")

    stage = Stage([polled([b"1"] * 8), Barrier(threading.Event()), None], before=before)
    with pytest.raises(Abandoned, match="gave up waiting: the GPU is away"):
        stage.compute.run()
    given = stage.given()
    assert order(given) == [0, 1, 2, 3]
    assert len(given) == 1


def abandoned(stage: Stage) -> None:
    with pytest.raises(Abandoned):
        stage.compute.run()


def test_what_is_answered_does_not_wait_along_in_an_outage() -> None:
    def before(inputs: Tensors) -> None:
        if 5 in inputs["x"]:
            raise ExecutorUnavailable("the GPU is away")

    stage = Stage([polled([b"1"] * 4 + [b"5"] * 4), None], before=before)
    thread = running(lambda: abandoned(stage))
    assert order([stage.next()]) == [0, 1, 2, 3]
    stage.abandon.set()
    assert ended(thread)


def test_rejected_event_is_not_waited_for() -> None:
    def before(inputs: Tensors) -> None:
        if 3 in inputs["x"]:
            raise ModelRejected("no 3 please")

    stage = Stage([polled([b"1", b"3", b"2"]), None], before=before)
    (one,) = batches(stage.run())
    assert one.rejected == {1: Rejection("model_rejected", "no 3 please")}
    assert one.rows.tolist() == [0, 2]
    assert stage.retries("executor") is None


def test_fault_of_our_own_ends_the_stage() -> None:
    def before(_inputs: Tensors) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Stage([polled([b"1"] * (MAX_UNPROVEN + 1)), None], before=before).run()


class Jumble:
    """Lets the batches that run at the same time answer in another order: the first one out waits for a later one."""

    def __init__(self, pool: int) -> None:
        self._later = threading.Semaphore(0)
        self._calls = iter(range(10**9))
        self._pool = pool

    def __call__(self, _inputs: Tensors) -> None:
        if next(self._calls) % self._pool == 0:
            self._later.acquire(timeout=0.05)  # there may be no later one
        else:
            self._later.release()


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=7), max_size=6),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sets(st.integers(0, 5)),
)
def test_several_batches_in_flight_are_answered_once_in_order(
    polls: list[list[bytes | None]], lanes: int, ahead: int, barriers: set[int]
) -> None:
    messages: list[Message] = []
    values: list[bytes | None] = []
    for at, poll in enumerate(polls):
        messages.append(polled(poll, len(values)))
        values += poll
        if at in barriers:
            messages.append(Barrier(threading.Event()))
    stage = Stage([*messages, None], Limits(2, 1_000_000, FOREVER), Jumble(lanes), pool=lanes, ahead=ahead)
    given = stage.run()
    assert stage.failure is None
    assert order(given) == list(range(len(values)))
    assert [one.number for one in batches(given)] == list(range(len(batches(given))))
    assert len(predictions(given)) == sum(value in {b"1", b"2", b"3"} for value in values)
    assert given[-1] is None


def test_next_polls_are_decoded_and_batched_while_a_device_computes() -> None:
    decoded = threading.Event()
    seen: list[bool] = []

    def before(inputs: Tensors) -> None:
        if 1 in inputs["x"]:
            seen.append(decoded.wait(10))

    stage = Stage([polled([b"1"])], Limits(1, 1000, FOREVER), before, ahead=2)
    decode = stage.numbers.decode

    def noted(values: Sequence[bytes]) -> Decoded:
        if b"3" in values:
            decoded.set()
        return decode(values)

    stage.numbers.decode = noted  # type: ignore[method-assign]
    thread = running(stage.compute.run)
    for at, value in enumerate((b"2", b"3"), start=1):
        stage.inbox.put(polled([value], at))
    stage.inbox.put(None)
    assert ended(thread)
    assert seen == [True]
    assert order(stage.given()) == [0, 1, 2]


def test_results_pass_a_slow_batch_where_the_order_allows_it() -> None:
    slow = threading.Event()

    def before(inputs: Tensors) -> None:
        if 1 in inputs["x"]:
            assert slow.wait(10)

    for ordering, first in (("none", [1]), ("partition", [0])):
        slow.clear()
        stage = Stage([polled([b"1", b"2"])], Limits(1, 1000, FOREVER), before, pool=2, ordering=ordering)  # type: ignore[arg-type]
        thread = running(stage.compute.run)
        if ordering == "none":
            fast = stage.next()
            assert isinstance(fast, BatchResult)
            assert offsets(fast.batch) == first
        slow.set()
        stage.inbox.put(None)
        assert ended(thread)
        assert stage.given()[-1] is None


def test_failure_in_a_lane_ends_the_stage() -> None:
    def before(_inputs: Tensors) -> None:
        raise ZeroDivisionError

    events = polled([b"1"] * 2 * (MAX_UNPROVEN + 1) * LIMITS.max_events)  # each lane has enough of them to end
    stage = Stage([events, Barrier(threading.Event()), None], before=before, pool=2)
    with pytest.raises(Abandoned, match="in flight were not answered"):
        stage.run()
    assert isinstance(stage.failure, ZeroDivisionError)


def test_worker_is_not_ready_while_its_executor_is_away() -> None:
    waiting_for: list[str | None] = []

    def before(_inputs: Tensors) -> None:
        waiting_for.append(stage.health.outage)
        if len(waiting_for) < 3:
            raise ExecutorUnavailable("the GPU is away")

    stage = Stage([polled([b"1"]), None], before=before)
    stage.run()
    assert waiting_for == [None, "the GPU is away", "the GPU is away"]
    assert stage.health.outage is None


def blocked(stage: Stage) -> list[dict[str, str]]:
    """The labels of each series that says what waits."""
    families = {family.name: family for family in stage.metrics.registry.collect()}
    return [sample.labels for sample in families[BLOCKED.name].samples]


def test_event_that_waits_for_its_executor_is_named_for_as_long(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[list[dict[str, str]]] = []

    def before(_inputs: Tensors) -> None:
        seen.append(blocked(stage))
        if len(seen) < 3:
            raise ExecutorUnavailable("the GPU is away")

    stage = Stage([polled([b"1"], 41), None], before=before)
    stage.run()
    named = {"pipeline": "p", "what": "executor", "topic": "in", "partition": "0", "offset": "41"}
    assert seen == [[], [named], [named]]
    assert blocked(stage) == []
    assert "The first event that waits is at offset 41 of in/0." in caplog.text


def test_record_that_waits_for_its_schema_is_named(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage([polled([None, b"1", b"2", b"3"], 7), None])
    away = SchemaUnavailable("the registry is away")
    away.row = 1  # the second value: tombstones are none
    stage.numbers.failures.append(away)
    stage.run()
    assert "the registry is away; trying again in up to" in caplog.text
    assert "The first event that waits is at offset 9 of in/0." in caplog.text


def test_next_record_that_waits_is_named_in_its_turn() -> None:
    stage = Stage([polled([b"1", b"2", b"3"], 7), None])
    seen: list[list[str]] = []

    class Away(SchemaUnavailable):
        def __str__(self) -> str:
            seen.append([labels["offset"] for labels in blocked(stage)])
            return "away"

    for row in (0, 0, 2):
        away = Away()
        away.row = row
        stage.numbers.failures.append(away)
    stage.run()
    assert seen[-1] == ["9"]
    assert ["7"] in seen
    assert blocked(stage) == []


@pytest.mark.parametrize(("waited", "level"), [(0.0, "WARNING"), (-1.0, "ERROR")])
def test_long_wait_is_logged_as_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, waited: float, level: str
) -> None:
    monkeypatch.setattr(outage, "LOG_INTERVAL", waited or 60.0)
    stage = Stage([polled([b"1"], 7), None])
    stage.numbers.failures.append(SchemaUnavailable("the registry is away"))
    stage.run()
    assert [record.levelname for record in caplog.records if "the registry is away" in record.message] == [level]


def test_outage_is_a_line_at_its_start_and_one_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    stage = Stage([polled([b"1"], 7), None])
    stage.numbers.failures += [SchemaUnavailable("the registry is away") for _ in range(4)]
    stage.run()
    away, again = (record for record in caplog.records if record.name == outage.__name__)
    assert away.message.startswith("the registry is away; trying again in up to")
    assert again.message.startswith("schemas: works again, after")
    assert (away.levelname, again.levelname) == ("WARNING", "INFO")


def test_deadline_headers_that_are_no_time_are_counted() -> None:
    records: list[Record] = [MemoryRecord(at, b"1", heads=[("until", b"9" * 5000)]) for at in range(3)]
    stage = Stage(
        [FetchedBatch(Records.of(records), EPOCHS, 0.0, 0), None],
        fields=EventFields(None, None, deadline_header="until"),
    )
    (one,) = batches(stage.run())
    assert one.rows.tolist() == [0, 1, 2]
    assert measured(stage.metrics, INVALID_DEADLINES) == 3


def test_events_past_their_deadline_do_not_run() -> None:
    stage = Stage([polled([b"1", b"2"], 0), polled([b"2"], 2), None], fields=EventFields(None, None, max_age=1000))
    (one,) = batches(stage.run())
    assert {row: why.reason for row, why in one.rejected.items()} == {0: "expired", 1: "expired", 2: "expired"}
    assert stage.executor.sizes == []


def test_deadline_header_counts_by_event() -> None:
    def record(at: int, deadline: bytes | None) -> Record:
        return MemoryRecord(at, b"1", heads=None if deadline is None else [("until", deadline)])

    late, never, wrong = b"1000", b"99999999999999", b"soon"
    records = [record(0, late), record(1, None), record(2, never), record(3, wrong), record(4, late)]
    stage = Stage(
        [FetchedBatch(Records.of(records), EPOCHS, 0.0, 0), None],
        Limits(8, 1000, FOREVER),
        fields=EventFields(None, None, deadline_header="until"),
    )
    (one,) = batches(stage.run())
    assert {row: why.reason for row, why in one.rejected.items()} == {0: "expired", 4: "expired"}
    assert one.rows.tolist() == [1, 2, 3]
    assert stage.executor.sizes == [3]


def test_rejections_keep_their_events_beside_expired_ones() -> None:
    def before(inputs: Tensors) -> None:
        if 3 in inputs["x"]:
            raise ModelRejected("no 3 please")

    records: list[Record] = [
        MemoryRecord(0, b"1", heads=[("until", b"1")]),
        MemoryRecord(1, b"3"),
        MemoryRecord(2, b"2"),
    ]
    stage = Stage(
        [FetchedBatch(Records.of(records), EPOCHS, 0.0, 0), None],
        before=before,
        fields=EventFields(None, None, deadline_header="until"),
    )
    (one,) = batches(stage.run())
    assert {row: why.reason for row, why in one.rejected.items()} == {0: "expired", 1: "model_rejected"}
    assert one.rows.tolist() == [2]
    assert one.outputs["y"][:, 0].tolist() == [-2]


def test_topics_share_the_executor_by_their_weights() -> None:
    def of(topic: str, start: int, count: int) -> FetchedBatch:
        epochs = {("much", 0): 1, ("little", 0): 1}
        records: list[Record] = [MemoryRecord(start + at, b"1", (topic, 0)) for at in range(count)]
        return FetchedBatch(Records.of(records), epochs, 0.0, 0)

    polls = [of("little", 0, 400), of("much", 0, 400)]
    stage = Stage([*polls, None], Limits(16, 100_000, FOREVER), weights={"much": 3, "little": 1})
    given = batches(stage.run())
    topics = [
        topic
        for one in given
        for part in one.batch.parts
        for topic, _ in partitions(part.block)[part.start : part.stop]
    ]
    first = topics[:400]
    assert first.count("much") == 300
    for topic in ("much", "little"):
        found = [
            offset
            for one in given
            for part in one.batch.parts
            for (name, _), offset in list(zip(partitions(part.block), part.block.offsets.tolist(), strict=True))[
                part.start : part.stop
            ]
            if name == topic
        ]
        assert found == list(range(400))


def test_refused_records_are_not_decoded() -> None:
    refused = replace(polled([b"1"], 7), rejection=Rejection("crashed", "it takes workers down"))
    stage = Stage([polled([b"2"]), refused, polled([b"2"], 8), None])
    given = batches(stage.run())
    assert [(row, why.reason) for one in given for part in one.batch.parts for row, why in part.rejected().items()] == [
        (0, "crashed")
    ]
    assert stage.executor.sizes == [2]
    assert order(given) == [0, 7, 8]
