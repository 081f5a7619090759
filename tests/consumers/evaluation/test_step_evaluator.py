"""The evaluator with a real broker: it reads all topics from the step's begin, again with the same results, and goes on."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from millstream.consumers.evaluation import before, label_reading, step_evaluator
from millstream.consumers.evaluation.figures import idle_figures
from millstream.consumers.evaluation.label_reading import LabelReading
from millstream.consumers.evaluation.records import key_of
from millstream.consumers.evaluation.settings import step_settings
from millstream.consumers.evaluation.step_evaluator import StepEvaluator
from millstream.consumers.evaluation.topic import FiguresPublisher, read_figures
from millstream.consumers.rollout.progress import Progress
from millstream.consumers.rollout.slots import whole
from millstream.consumers.schema_store import open_store
from millstream.pipeline.shares import SLOTS
from millstream.schemas.errors import SchemaUnavailable
from millstream.topics.errors import BrokerUnreachableError, TopicError
from millstream.topics.since_reader import SinceReader
from tests.broker.clients import create_topic, produce, read_all, wait_until
from tests.consumers.evaluation.scene import (
    FILE,
    MINUTE,
    SINCE,
    Topics,
    events_of,
    feed,
    in_order,
    record_of,
    state_of,
)
from tests.pipeline.pipeline_files import load

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.consumers.evaluation.figures import StepFigures
    from millstream.consumers.evaluation.rows import Rows
    from millstream.pipeline.pipeline import Pipeline
    from millstream.topics.since_reader import Fetched
    from tests.broker.choice import Broker
    from tests.conftest import MakeTopic

NOW = SINCE + 40 * MINUTE
TIMEOUT = 60.0  # seconds


@pytest.fixture
def pipeline(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> Pipeline:
    """With topics of its own."""
    text = FILE.replace("FORMAT", "avro").replace("SHARE", "30").replace("127.0.0.1:9092", kafka.bootstrap)
    for role in ("predictions", "labels"):
        text = text.replace(f"topic: {role}", f"topic: {make_topic(3)}")
    text += f"  evaluations: {make_topic(1, cleanup_policy='compact')}\n"
    return load(tmp_path, text + f"dead_letters: {{topic: {make_topic(3)}}}\n")


def write(pipeline: Pipeline, topics: Topics) -> None:
    assert pipeline.labels is not None
    names = {
        "predictions": pipeline.output.topic,
        "letters": pipeline.dead_letters.topic,
        "labels": pipeline.labels.topic,
    }
    producer = Producer(pipeline.client_config())
    for topic, records in topics.records.items():
        for own in records:
            producer.produce(names[topic], own.value, own.key, own.partition, timestamp=own.timestamp)
    assert producer.flush(30) == 0


def read(evaluator: StepEvaluator, now: int = NOW) -> StepFigures:
    """Read to the end."""
    until = time.monotonic() + TIMEOUT
    while evaluator.advance(5.0) or evaluator.behind:
        assert time.monotonic() < until, f"{evaluator.behind} records are left"
    return evaluator.figures(now)


def expected(pipeline: Pipeline, topics: Topics) -> StepFigures:
    return feed(state_of(pipeline), pipeline, in_order(topics)).figures(NOW)


def test_topics_are_read_from_the_steps_begin_and_again_with_the_same_results(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = Topics()
    topics.write(replace(own, time=own.time - 60 * MINUTE) for own in events_of(200, seed=2))  # before the step
    events = events_of(900)
    topics.write(events[:600])
    write(pipeline, topics)
    produce(str(pipeline.client_config()["bootstrap.servers"]), pipeline.output.topic, [(b"k", b"\0no prediction")])
    with StepEvaluator(pipeline, record_of()) as evaluator:
        assert read(evaluator).to_json() == expected(pipeline, topics).to_json()
        more = Topics()
        more.write(events[600:])
        write(pipeline, more)
        for topic, records in more.records.items():
            topics.records[topic] += [replace(own, offset=own.offset + 10_000) for own in records]
        whole = read(evaluator)
        assert whole.to_json() == expected(pipeline, topics).to_json()
    monkeypatch.setattr(step_evaluator, "MOST_RECORDS", 37)
    with StepEvaluator(pipeline, record_of()) as evaluator:  # as after a kill
        assert read(evaluator).to_json() == whole.to_json()
        assert evaluator.evaluation(NOW) == evaluator.state.evaluation(NOW, 1)


def test_as_much_of_the_last_step_is_read_at_100_percent_as_has_enough_events(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline answered nearly all events of the last step at its beginning, so its mean rate says little."""
    monkeypatch.setattr(before, "ENOUGH", 80)
    topics, hour = Topics(share=50), 60 * MINUTE
    for count, hours in ((300, 5), (40, 1)):
        topics.write(replace(own, time=own.time - hours * hour) for own in events_of(count, share=50, seed=hours))
    write(pipeline, topics)
    earlier = feed(state_of(pipeline), pipeline, []).figures(SINCE)
    variants = replace(earlier.variants[0], events=10_000), earlier.variants[1]
    earlier = replace(earlier, since=SINCE - 24 * hour, epoch=2, variants=variants)
    FiguresPublisher(pipeline, open_store(pipeline)).publish(earlier)
    progress = Progress("m:2", "watching", step=2, share=SLOTS, since=SINCE, epoch=3, attempts=(1, 1, 1))
    with StepEvaluator(pipeline, record_of(ranges=whole(1), strategy_state=progress.to_json())) as evaluator:
        read(evaluator)
        assert evaluator.state.events_before >= 80
        assert evaluator.settings.before == 8 * hour
        assert evaluator.settings.last_shared == earlier.since
    outages = iter([None, SchemaUnavailable("the registry is away")])

    def labels(*given: Any) -> LabelReading:
        if (outage := next(outages, None)) is not None:
            raise outage
        return LabelReading(*given)

    monkeypatch.setattr(step_evaluator, "LabelReading", labels)
    with StepEvaluator(pipeline, record_of(ranges=whole(1), strategy_state=progress.to_json())) as evaluator:
        with pytest.raises(SchemaUnavailable):
            read(evaluator)
        read(evaluator)  # it goes on where it was
        assert evaluator.settings.before == 8 * hour


def test_figures_are_published_and_the_next_step_goes_on_with_the_sample_ratio(pipeline: Pipeline) -> None:
    topics, store = Topics(), open_store(pipeline)
    topics.write(events_of(500))
    write(pipeline, topics)
    with StepEvaluator(pipeline, record_of()) as evaluator:
        figures = read(evaluator)
    publisher = FiguresPublisher(pipeline, store)
    publisher.publish(replace(figures, now=figures.now - 1, notes=("older",)))
    publisher.publish(figures)
    assert read_figures(pipeline, store).steps == [figures]
    assert pipeline.rollout is not None
    written = read_all(str(pipeline.client_config()["bootstrap.servers"]), pipeline.rollout.evaluations)
    places = [None, *range(len(figures.windows))]
    assert {message.key() for message in written} == {key_of("shop-2", 1, place) for place in places}
    later = Progress("m:2", step=1, share=6000, since=NOW, epoch=2, attempts=(1, 1))
    second = record_of(60, strategy_state=later.to_json(), at=NOW)
    after = Topics(share=60)
    after.write(replace(own, time=own.time + NOW - SINCE, id=f"later-{own.id}") for own in events_of(300, share=60))
    write(pipeline, after)
    with StepEvaluator(pipeline, second) as evaluator:
        found = read(evaluator, NOW + 40 * MINUTE)
    [before], [now] = figures.ratios, found.ratios
    events = sum(own.events for own in found.variants)
    assert sum(now.expected) == pytest.approx(sum(before.expected) + 0.6 * events)
    assert sum(now.found) == sum(before.found) + found.variants[1].events


@pytest.mark.durable
def test_figures_are_published_again_after_a_record_was_refused(pipeline: Pipeline, make_topic: MakeTopic) -> None:
    """A writer whose record has failed writes nothing any more. The figures of the next look must not fail because of that."""
    assert pipeline.rollout is not None
    small = make_topic(1, cleanup_policy="compact", max_message_bytes="50000")
    pipeline = pipeline.model_copy(update={"rollout": pipeline.rollout.model_copy(update={"evaluations": small})})
    store, figures = open_store(pipeline), state_of(pipeline).figures(NOW)
    publisher = FiguresPublisher(pipeline, store)
    with pytest.raises(TopicError, match=rf"could not be written to topic {small}"):
        publisher.publish(replace(figures, notes=tuple(f"{number:0>100000}" for number in range(2))))
    publisher.publish(figures)
    assert read_figures(pipeline, store).steps == [figures]


def test_what_autopilot_says_without_a_rollout_is_no_step(pipeline: Pipeline) -> None:
    store = open_store(pipeline)
    assert read_figures(pipeline, store).idle is None
    publisher = FiguresPublisher(pipeline, store)
    publisher.publish(idle_figures("other", 0, NOW, "of another pipeline on the same topic"))
    for minute, note in enumerate(("would start version 2", "nothing to do")):
        publisher.publish(idle_figures(pipeline.name, 7, NOW + minute * MINUTE, note))
    found = read_figures(pipeline, store).idle
    assert found is not None
    assert (found.notes, found.revision, found.now) == (("nothing to do",), 7, NOW + MINUTE)
    assert read_figures(pipeline, store).steps == []


@pytest.mark.full
def test_new_partitions_are_read_too(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_evaluator, "REFRESH_EVERY", 0.0)
    events = [replace(own, dead=False) for own in events_of(100)]
    topics = Topics()
    topics.write(events[:50])
    write(pipeline, topics)
    with StepEvaluator(pipeline, record_of()) as evaluator:
        read(evaluator)
        admin = AdminClient({"bootstrap.servers": str(pipeline.client_config()["bootstrap.servers"])})
        admin.create_partitions([NewPartitions(pipeline.output.topic, 4)])[pipeline.output.topic].result(30)
        more = Topics()
        more.write(events[50:])
        more.records["predictions"] = [replace(own, partition=3) for own in more.records["predictions"]]
        wait_until(lambda: _written(pipeline, more), 30, "the new partition")
        wait_until(
            lambda: sum(own.events for own in read(evaluator).variants) == sum(own.randomised for own in events),
            30,
            "the events of the new partition",
        )


def _written(pipeline: Pipeline, topics: Topics) -> bool:
    try:
        write(pipeline, topics)
    except KafkaException:  # the client doesn't know the partition yet
        return False
    return True


def test_missing_topic_is_one_clear_message(pipeline: Pipeline, tmp_path: Path) -> None:
    text = pipeline.path.read_text(encoding="utf-8").replace(pipeline.output.topic, "missing-predictions")
    (tmp_path / "other").mkdir()
    with pytest.raises(TopicError, match=r"topic missing-predictions: .*millstream topics create"):
        StepEvaluator(load(tmp_path / "other", text), record_of())


@pytest.mark.full
def test_record_that_breaks_the_decoder_is_left_out_alone(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    events = events_of(200)
    topics = Topics()
    topics.write(events)
    write(pipeline, topics)
    with StepEvaluator(pipeline, record_of()) as evaluator:
        broken = topics.records["predictions"][70].value
        intake = evaluator.intakes[pipeline.output.topic]

        def breaks(fetched: Fetched) -> Rows:
            if broken in fetched.values:
                raise RuntimeError("broken")
            return intake(fetched)

        monkeypatch.setitem(evaluator.intakes, pipeline.output.topic, breaks)
        found = read(evaluator)
    about = [note for note in found.notes if "decoder" in note]  # others say that the events are few
    assert about == ["records that break the decoder, and are left out: 1 (the log says why)"]
    lost = next(own for own in events if own.id.encode() in broken)
    assert sum(own.events for own in found.variants) == sum(own.randomised for own in events) - lost.randomised


@pytest.mark.full
def test_bug_that_breaks_every_record_is_logged_once_per_read(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topics = Topics()
    topics.write(replace(own, dead=False) for own in events_of(200))
    write(pipeline, topics)

    def breaks(_fetched: Fetched) -> Rows:
        raise RuntimeError("broken")

    with StepEvaluator(pipeline, record_of()) as evaluator:
        monkeypatch.setitem(evaluator.intakes, pipeline.output.topic, breaks)
        found = read(evaluator)
    assert found.notes == ("records that break the decoder, and are left out: 200 (the log says why)",)
    logged = [record.message for record in caplog.records if "break the decoder" in record.message]
    assert 1 <= len(logged) < 20
    assert f"records of topic {pipeline.output.topic} break the decoder; the first one at partition " in logged[0]


@pytest.mark.durable
def test_events_are_read_on_while_labels_can_not_be_read(
    pipeline: Pipeline, kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all were read anew at each attempt, a long step would never come to its newest events."""
    monkeypatch.setattr(label_reading, "RETRY", 0.0)
    assert pipeline.labels is not None
    name = f"{pipeline.labels.topic}-later"
    pipeline = pipeline.model_copy(update={"labels": pipeline.labels.model_copy(update={"topic": name})})
    topics = Topics()
    topics.write(events_of(300))
    labels = topics.records.pop("labels")
    write(pipeline, topics)
    with StepEvaluator(pipeline, record_of()) as evaluator:
        found = read(evaluator)
        assert sum(own.events for own in found.variants) == len(
            evaluator.state.rows[evaluator.state.rows["randomised"]]
        )
        assert (found.value("canary", "labelled"), evaluator.read_until > NOW) == (0, True)
        assert evaluator.label_problem.startswith(f"topic {name}: ")
        create_topic(kafka.bootstrap, name, 3, {})
        topics.records = {"labels": labels}
        write(pipeline, topics)
        wait_until(lambda: evaluator.advance(1.0) >= 0 and not evaluator.label_problem, 30, "labels to be read")
        whole = Topics()
        whole.write(events_of(300))
        assert read(evaluator).to_json() == expected(pipeline, whole).to_json()


def test_labels_that_stall_without_an_error_do_not_stop_the_events(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a partition of the labels had lost its leader: the client asks again, and reports nothing."""
    leader = threading.Event()

    class Stalling(SinceReader):
        def read(self, limit: int, timeout: float) -> dict[str, Fetched]:
            return super().read(limit, timeout) if leader.is_set() else {}

    monkeypatch.setattr(label_reading, "SinceReader", Stalling)
    topics = Topics()
    topics.write(events_of(300))
    write(pipeline, topics)
    with StepEvaluator(pipeline, record_of()) as evaluator:
        evaluator.advance(1.0)
        assert (evaluator.label_problem, evaluator.read_until) == ("", 0)
        monkeypatch.setattr(label_reading, "STALLED", 0.0)
        wait_until(lambda: evaluator.advance(1.0) >= 0 and evaluator.read_until > NOW, 30, "the events")
        assert "nothing was read for " in evaluator.label_problem
        monkeypatch.setattr(label_reading, "STALLED", 60.0)
        leader.set()
        wait_until(lambda: evaluator.advance(1.0) >= 0 and not evaluator.label_problem, 30, "the labels")
        assert read(evaluator).to_json() == expected(pipeline, topics).to_json()


def test_labels_without_a_leader_do_not_keep_the_events_from_being_read(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaderless(*_: object) -> SinceReader:
        raise BrokerUnreachableError("No broker answers.")

    topics = Topics()
    topics.write(events_of(300))
    write(pipeline, topics)
    with monkeypatch.context() as patch:
        patch.setattr(label_reading, "SinceReader", leaderless)
        patch.setattr(label_reading, "RETRY", 0.0)
        evaluator = StepEvaluator(pipeline, record_of())
    with evaluator:
        assert evaluator.label_problem == "No broker answers"
        assert read(evaluator).to_json() == expected(pipeline, topics).to_json()


def test_labels_that_pause_are_read_on_although_events_never_end(pipeline: Pipeline) -> None:
    """Labels wait for the events of their time. Once all were read, nothing says of which time the next ones are."""
    assert pipeline.labels is not None
    topics = Topics()
    topics.write(events_of(100))
    topics.records = {"labels": topics.records["labels"]}
    settings = step_settings(pipeline, record_of())
    with closing(LabelReading(pipeline, settings, open_store(pipeline))) as labels:
        assert (labels.is_at_end, labels.read(100, 0.1, NOW)) == (True, [])
        write(pipeline, topics)
        found: list[Fetched] = []

        def all_are_read() -> bool:
            found.extend(labels.read(100, 0.1, NOW))
            return sum(map(len, found)) == len(topics.records["labels"])

        wait_until(
            all_are_read,
            30,
            "the labels",
        )


@pytest.mark.full
def test_inputs_are_compared_with_events_of_before_the_step(pipeline: Pipeline, tmp_path: Path) -> None:
    text = pipeline.path.read_text(encoding="utf-8")
    drift = "    score_drift: {at_most: 0.25}\n    input_drift: {fields: [amount, country], reference: 1h}\n"
    text = text.replace("    score_drift: {at_most: 0.25}\n", drift)
    (tmp_path / "other").mkdir()
    drifting = load(tmp_path / "other", text)
    events = events_of(900)
    before = [replace(own, dead=False, time=own.time - 50 * MINUTE, id=f"early-{own.id}") for own in events]
    old = [replace(own, dead=False, time=own.time - 120 * MINUTE, id=f"old-{own.id}") for own in events]
    topics = Topics()
    topics.write([*old, *before, *(replace(own, amount=own.amount + 100) for own in events)])
    write(pipeline, topics)
    found = []
    for _ in range(2):
        with StepEvaluator(drifting, record_of()) as evaluator:
            read(evaluator)
            reference = evaluator.state.reference
            assert reference is not None
            found.append(reference.values)
            [why] = [why for why in evaluator.evaluation(NOW).invalid if "field" in why]
            assert "the field amount has changed" in why
    amounts = sorted(own.amount for own in before)
    assert [sorted(values[:, 0].tolist()) for values in found] == [amounts, amounts]


def test_traffic_that_never_ends_does_not_keep_the_evaluator(pipeline: Pipeline) -> None:
    """A look decides on what was there. What comes meanwhile waits for the next one."""
    topics = Topics()
    topics.write(events_of(300))
    write(pipeline, topics)
    assert pipeline.labels is not None
    names, stop = (pipeline.output.topic, pipeline.labels.topic), threading.Event()

    def keep_writing() -> None:
        producer = Producer(pipeline.client_config())
        while not stop.wait(0.01):
            for name in names:
                for partition in range(3):
                    producer.produce(name, b"", partition=partition)
            producer.poll(0)
        producer.flush(30)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        with StepEvaluator(pipeline, record_of()) as evaluator:
            while evaluator.read_until < NOW:
                evaluator.advance(3600.0)
            assert len(evaluator.state.rows) == 300
    finally:
        stop.set()
        writer.join()
