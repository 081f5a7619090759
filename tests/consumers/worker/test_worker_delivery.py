"""What a worker makes of a stream: every event, once, right, in order; and what becomes of it when workers come and go."""

from __future__ import annotations

import io
import json
import signal
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import numpy as np
import onnxruntime as ort
import pytest

from benchmarks.load import flights_events, vector_events
from millstream.consumers.demo.example import example_folder
from millstream.consumers.observability import genai_metrics as genai
from millstream.consumers.observability import metrics as m
from tests.broker.clients import Headers, Row, produce, read_all
from tests.consumers.feeder import Feeder
from tests.consumers.processes import Worker
from tests.consumers.service import Service, flights_service, id_of, prediction_of, value_of, vector_service

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Message

    from tests.broker.choice import Broker

EVENTS, TOMBSTONES = 20_000, 40
TRACED: Headers = [("traceparent", b"00-aa-bb-01"), ("secret", b"s"), ("baggage", b"k=v"), ("baggage", b"again")]
FLIGHT = fastavro.schema.load_schema(str(example_folder() / "schemas" / "1-flight-departure.avsc"))
# Counted or set only when something goes wrong, which nothing does here, in transactions, which there are none of, with several
# models, with features from a store, with options that replace values, or while an alias or a rollout is followed.
NOT_HERE = {
    *(genai.REQUEST_SECONDS, genai.FIRST_TOKEN_SECONDS, genai.OUTPUT_TOKEN_SECONDS, genai.TOKEN_USAGE),
    *(m.CASCADE_EVENTS, m.ESCALATED, m.TENANT_MODELS, m.TENANT_MODEL_BYTES, m.TENANT_LOADS, m.TENANT_UNLOADS),
    *(m.FEATURE_LOOKUPS, m.FEATURE_AGE, m.MODEL_RELOADS, m.MODEL_RELOAD_ERROR),
    *(
        m.ROLLOUT_SHARE,
        m.ROLLOUT_LOADED,
        m.ROLLOUT_REVISION,
        m.ROLLOUT_STATE,
        m.ROLLOUT_FALLBACKS,
        m.ROLLOUT_UNREADABLE,
    ),
    m.COMPARISONS,
    m.SHADOW_FAILED,
    m.SHADOW_SKIPPED,
    m.DEAD_LETTERS,
    m.MISSING_EVENT_TIMES,
    m.MISSING_COSTS,
    m.MISSING_INCLUDED,
    m.MISSING_VALUES,
    m.UNKNOWN_VALUES,
    m.REVOKED_DROPPED,
    m.PAUSED,
    m.RETRIES,
    m.BLOCKED,
    m.KAFKA_ERRORS,
    m.TRANSACTIONS,
}


@dataclass(frozen=True, slots=True)
class Run:
    """A worker's whole life: what went in, what came out."""

    service: Service
    events: list[dict[str, Any]]  # decoded, as sent
    read: list[Message]  # the input topic
    written: list[Message]  # the output topic
    metrics: dict[str, float]  # as they were when all was committed
    exposition: str
    exit_code: int
    log: str


@pytest.fixture(scope="module")
def run(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """20,000 flights with tombstones between them, sent to a worker that runs."""
    service = flights_service(tmp_path_factory.mktemp("delivery"), kafka)
    load = flights_events(EVENTS, seed=3)
    with Worker(service.file) as worker:
        worker.wait_ready()
        produce(kafka.bootstrap, service.inputs[0], _rows(load.keys, load.values))
        service.wait_written(EVENTS)
        service.wait_committed()
        worker.wait_for(lambda: _settled(worker.metrics()), 10, "told that it has no lag and holds nothing")
        metrics, exposition = worker.metrics(), worker.get("/metrics")[1]
        exit_code = worker.stop()
    events = [_flight(value) for value in load.values]
    read = read_all(kafka.bootstrap, service.inputs[0])
    return Run(service, events, read, service.predictions(), metrics, exposition, exit_code, worker.log)


def _settled(metrics: dict[str, float]) -> bool:
    """Gauges are set once a second, and what is acknowledged is held for a moment longer."""
    return metrics.get(m.LAG.name) == 0 and metrics.get(m.IN_FLIGHT_EVENTS.name) == 0


def _rows(keys: list[bytes | None], values: list[bytes]) -> Iterable[Row]:
    """Every tenth event is traced; every 500th is followed by a tombstone."""
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        yield (key, value, TRACED) if number % 10 == 0 else (key, value)
        if number % (EVENTS // TOMBSTONES) == 0:
            yield (key, None)


def _flight(value: bytes) -> dict[str, Any]:
    row: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), FLIGHT, None)
    assert isinstance(row, dict)
    return row


def test_each_event_has_exactly_one_prediction(run: Run) -> None:
    assert Counter(map(id_of, run.written)) == Counter(event["id"] for event in run.events)
    assert run.exit_code == 0


def test_predictions_are_what_the_model_says(run: Run) -> None:
    model = example_folder() / "models" / "flights-delay" / "1" / "model.onnx"
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    rows = {row["event_id"]: row for row in map(prediction_of, run.written)}
    for event in run.events[::97]:
        numbers = [event[name] for name in ("day_of_week", "scheduled_departure", "scheduled_arrival", "distance")]
        route = [event[name] for name in ("carrier", "origin", "dest")]
        [said] = session.run(
            ["late_probability"], {"numbers": np.array([numbers], np.float32), "route": np.array([route], object)}
        )
        row = rows[event["id"]]
        assert row["outputs"] == {"late_probability": pytest.approx(float(said.reshape(())), rel=1e-5)}
        assert row["event_time"] == event["departed_at"]
        assert (row["pipeline"], row["model"], row["version"]) == (run.service.group, "flights-delay", 1)


def test_keys_and_trace_headers_are_carried_and_no_others(run: Run) -> None:
    keys = {_flight(value_of(m))["id"]: (m.key(), m.headers()) for m in run.read if m.value() is not None}
    carried = [header for header in TRACED if header[0] != "secret"]
    traced = 0
    for message in run.written:
        key, headers = keys[id_of(message)]
        assert message.key() == key
        assert (message.headers() or []) == (carried if headers else [])
        traced += bool(headers)
    assert traced == EVENTS / 10


def test_order_of_each_key_is_kept(run: Run) -> None:
    before: dict[bytes, list[str]] = defaultdict(list)
    for message in run.read:
        if message.key() is not None and message.value() is not None:
            before[_key(message)].append(_flight(value_of(message))["id"])
    after: dict[bytes, list[str]] = defaultdict(list)
    partitions: dict[bytes, set[int | None]] = defaultdict(set)
    for message in run.written:
        if message.key() is not None:
            after[_key(message)].append(id_of(message))
            partitions[_key(message)].add(message.partition())
    assert after == before
    assert {len(found) for found in partitions.values()} == {1}


def test_all_offsets_are_committed(run: Run) -> None:
    assert run.service.committed() == run.service.input_ends()


def test_tombstones_are_passed_by_and_counted(run: Run) -> None:
    assert sum(message.value() is None for message in run.read) == TOMBSTONES
    assert run.metrics[m.TOMBSTONES.name] == TOMBSTONES
    assert f"totals: {EVENTS:,} events read, {EVENTS:,} predicted, {TOMBSTONES:,} tombstones\n" in run.log
    assert run.service.dead_letters() == []


def test_metrics_add_up_with_what_was_sent(run: Run) -> None:
    found = run.metrics
    assert found[m.RECORDS_READ.name] == EVENTS + TOMBSTONES
    assert found[f"{m.PREDICTIONS.name}{{model=flights-delay,variant=primary,version=1}}"] == EVENTS
    assert found[f"{m.BATCH_EVENTS.name}_sum"] == EVENTS
    assert found[f"{m.BATCH_EVENTS.name}_count"] <= found[m.BATCHES.name]
    assert found[f"{m.END_TO_END.name}_count"] == EVENTS
    assert (found[m.IN_FLIGHT_EVENTS.name], found[m.IN_FLIGHT_BYTES.name], found[m.OLDEST_UNCOMMITTED.name]) == (
        0,
        0,
        0,
    )
    assert (found[m.ASSIGNED.name], found[m.READY.name]) == (4, 1)
    stages = {name for name in found if name.startswith(f"{m.STAGE_SECONDS.name}_count{{")}
    names = ("poll", "decode", "queue", "infer", "encode", "produce", "commit")
    assert stages == {f"{m.STAGE_SECONDS.name}_count{{stage={stage}}}" for stage in names}


def test_every_declared_metric_is_served(run: Run) -> None:
    described = {metric for metric in m.ALL if f"# HELP {metric.name} " in run.exposition}
    assert described == set(m.ALL)
    silent = {metric for metric in m.ALL if not any(name.startswith(metric.name) for name in run.metrics)}
    assert silent <= NOT_HERE


def test_json_events_of_two_topics_become_json_predictions(kafka: Broker, tmp_path: Path) -> None:
    service = flights_service(
        tmp_path,
        kafka,
        inputs=2,
        input={"format": "json", "schema": "flight-departure", "event_id": "id", "event_time": "departed_at"},
        output={"format": "json"},
    )
    events = [json.loads(line) for line in (example_folder() / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    with Worker(service.file) as worker:
        worker.wait_ready()
        for number, topic in enumerate(service.inputs):
            produce(
                kafka.bootstrap, topic, [(e["carrier"].encode(), json.dumps(e).encode()) for e in events[number::2]]
            )
        service.wait_written(len(events))
        service.wait_committed()
        read = worker.metrics()
        assert worker.stop() == 0
    rows = [json.loads(value_of(message)) for message in service.predictions()]
    assert Counter(row["event_id"] for row in rows) == Counter(event["id"] for event in events)
    times = {event["id"]: event["departed_at"] for event in events}
    assert all(row["event_time"] == times[row["event_id"]] for row in rows)
    assert all(0 <= row["outputs"]["late_probability"] <= 1 for row in rows)
    by_topic = [read[f"{m.RECORDS_READ.name}{{topic={topic}}}"] for topic in service.inputs]
    assert by_topic == [len(events[0::2]), len(events[1::2])]


@pytest.mark.durable
def test_workers_that_join_and_leave_under_load_lose_and_double_nothing(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    load = vector_events(200_000, seed=5)
    with Worker(service.file) as first:
        first.wait_ready()
        with Feeder(kafka.bootstrap, service.inputs[0], load, rate=4000) as feeder, Worker(service.file) as second:
            second.wait_ready()
            for worker in (first, second):
                _wait_assigned(worker, 2)
            feeder.wait_for_more(4000)
            assert first.stop() == 0
            _wait_assigned(second, 4)
            sent = feeder.stop()
            service.wait_committed()
            assert second.metrics()[m.PREDICTIONS.name] > 0
            assert second.stop() == 0
    assert Counter(map(id_of, service.predictions())) == Counter(f"event-{number:010d}" for number in range(sent))


@pytest.mark.durable
@pytest.mark.full
def test_killed_worker_loses_nothing(kafka: Broker, tmp_path: Path) -> None:
    """SIGKILL under load: what was committed has its result; what has none is read again by those who stay."""
    service = vector_service(tmp_path, kafka)
    load = vector_events(200_000, seed=7)
    with Worker(service.file) as victim, Worker(service.file) as survivor:
        victim.wait_ready()
        survivor.wait_ready()
        for worker in (victim, survivor):
            _wait_assigned(worker, 2)
        with Feeder(kafka.bootstrap, service.inputs[0], load, rate=8000) as feeder:
            service.wait_written(8000)
            assert victim.stop(signal.SIGKILL) == -signal.SIGKILL
            _assert_committed_events_have_results(service)
            sent = feeder.stop()
        service.wait_committed(timeout=60)
        assert survivor.stop() == 0
    counts = Counter(map(id_of, service.predictions()))
    assert counts.keys() == {f"event-{number:010d}" for number in range(sent)}
    doubled = sum(count - 1 for count in counts.values())
    assert doubled < 8000  # a second of events is far more than a checkpoint and what was in flight


def _assert_committed_events_have_results(service: Service) -> None:
    committed = service.committed()
    assert committed
    answered = set(map(id_of, service.predictions()))
    for message in read_all(service.bootstrap, service.inputs[0]):
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        if offset < committed.get((service.inputs[0], partition), 0):
            assert value_of(message)[6:22].decode() in answered  # its id: 16 characters after the head and a length


def _wait_assigned(worker: Worker, partitions: int) -> None:
    worker.wait_for(
        lambda: worker.metrics().get(m.ASSIGNED.name) == partitions, 30, f"given {partitions} partitions of the topic"
    )


def _key(message: Message) -> bytes:
    key = message.key()
    assert isinstance(key, bytes)
    return key


@pytest.mark.full
@pytest.mark.durable
def test_longest_time_between_two_commits_is_shorter_than_a_transaction_may_last(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka, delivery="exactly_once", commit_every="5s")
    with Worker(service.file) as worker:
        worker.wait_ready()
        with Feeder(kafka.bootstrap, service.inputs[0], vector_events(1200, seed=9), rate=100) as feeder:
            feeder.wait_for_more(1200)  # in 12 s: three commits
        service.wait_committed()
        assert worker.stop() == 0
    assert "aborted" not in worker.log
    assert len(service.predictions()) == 1200
