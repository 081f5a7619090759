"""The control topic on a broker."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from millstream.consumers.control.errors import ChangeRefusedError, ControlTopicError
from millstream.consumers.control.reader import ControlReader
from millstream.consumers.control.topic import open_reader, open_writer, require_control_topic
from millstream.consumers.schema_store import open_store
from millstream.pipeline.client_trial import TRANSACTION_TIMEOUT_MS
from millstream.schemas.errors import SchemaUnavailable
from millstream.topics.admin import Admin, cleanup_policy, create, is_embedded, roles, states
from tests.broker.choice import Broker
from tests.broker.clients import create_topic, produce, read_all, wait_until
from tests.broker.maven import MavenKafka, missing_for_maven
from tests.consumers.control.topic_in_memory import PIPELINE, decode, shifted, started
from tests.pipeline.pipeline_files import SMALL, load

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.pipeline.pipeline import Pipeline
    from tests.conftest import MakeTopic

KEY = PIPELINE.encode()


def pipeline_on(folder: Path, kafka: Broker, topic: str) -> Pipeline:
    text = SMALL.replace("127.0.0.1:9092", kafka.bootstrap).replace("name: small", f"name: {PIPELINE}")
    text = text.replace("  name: m\n", "  name: delay\n  version: 1\n").replace("  schema: event\n", "")
    return load(folder, f"{text}rollout: {{strategy: manual, topic: {topic}}}\n")


def compacted_topic(kafka: Broker, make_topic: MakeTopic, **settings: str) -> str:
    return make_topic(1, cleanup_policy="compact", **settings) if kafka.durable else make_topic()


def written_by(pipeline: Pipeline, reader: ControlReader, record: RolloutRecord) -> str:
    """Who won: the writer of the record, or nobody with the refusal's message."""
    try:
        open_writer(pipeline, open_store(pipeline), reader).write(record)
    except ChangeRefusedError as error:
        return str(error)
    return record.by


def test_one_of_two_writers_wins_and_followers_see_it(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> None:
    pipeline = pipeline_on(tmp_path, kafka, compacted_topic(kafka, make_topic))
    store = open_store(pipeline)
    require_control_topic(Admin(pipeline.client_config()), pipeline)
    told: list[str] = []
    with open_reader(pipeline, store, told.append) as follower, open_reader(pipeline, store) as reader:
        assert follower.read_to_end() == []
        open_writer(pipeline, store, reader).write(started())
        wait_until(lambda: bool(follower.poll(0.1)), 10, "the follower to see the start")
        current = follower.record
        assert current == started()
        answers = dict[str, str]()

        def write(by: str) -> None:
            with open_reader(pipeline, store) as own:
                answers[by] = written_by(pipeline, own, shifted(current, f"by {by}", by=by))

        both = [threading.Thread(target=write, args=(by,)) for by in ("alice", "bob")]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        winner, loser = sorted(answers, key=lambda by: answers[by] != by)
        assert answers[winner] == winner
        assert answers[loser].startswith(f"rollout of {PIPELINE}: ")
        assert winner in answers[loser]
        wait_until(lambda: bool(follower.poll(0.1)), 10, "the follower to see the winner")
        assert follower.record is not None
        assert (follower.record.by, follower.record.revision) == (winner, 2)

        produce(kafka.bootstrap, pipeline_topic(pipeline), [(KEY, b"hello"), (b"other", b"hello")], partition=0)
        wait_until(lambda: bool(follower.poll(0.1)), 10, "the follower to see the foreign record")
        assert follower.record.by == winner
        told = told[-1:] if not kafka.durable else told  # there, the loser's record is in the topic, too
        assert len(told) == 1
        assert "can't be read: expected a record of the schema rollout-v1" in told[0]
        reader.read_to_end()
        assert (reader.record, reader.problem) == (follower.record, follower.problem)


def pipeline_topic(pipeline: Pipeline) -> str:
    assert pipeline.rollout is not None
    return pipeline.rollout.topic


def test_record_whose_schema_is_away_is_read_later(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> None:
    pipeline = pipeline_on(tmp_path, kafka, compacted_topic(kafka, make_topic))
    store = open_store(pipeline)
    with open_reader(pipeline, store) as reader:
        open_writer(pipeline, store, reader).write(started())
    away = 3  # times that the registry does not answer

    def flaky(value: bytes) -> RolloutRecord:
        nonlocal away
        if away:
            away -= 1
            raise SchemaUnavailable("the registry does not answer")
        return decode(value)

    told: list[str] = []
    with ControlReader(pipeline.client_config(), pipeline_topic(pipeline), PIPELINE, flaky, told.append) as reader:
        with pytest.raises(SchemaUnavailable):
            reader.read_to_end()
        assert reader.poll(0.01) == reader.poll(0.01) == []
        assert reader.problem == told[0] == "a record's schema can't be had at the moment: the registry does not answer"
        [seen] = reader.poll(0.01)
        assert (seen.counts, reader.record, reader.problem) == (True, started(), "")
        assert len(told) == 1


def test_records_that_were_read_before_an_error_are_not_lost(
    tmp_path: Path, kafka: Broker, make_topic: MakeTopic
) -> None:
    pipeline = pipeline_on(tmp_path, kafka, compacted_topic(kafka, make_topic))
    store, first, second = open_store(pipeline), started(), shifted(started(), "c2")
    with open_reader(pipeline, store) as reader:
        writer = open_writer(pipeline, store, reader)
        writer.write(first)
        writer.write(second)
    away = True

    def knows_the_first(value: bytes) -> RolloutRecord:
        found = decode(value)
        if away and found == second:
            raise SchemaUnavailable("the registry does not answer")
        return found

    settings = pipeline.client_config(), pipeline_topic(pipeline), PIPELINE, knows_the_first
    with ControlReader(*settings) as reader, ControlReader(*settings) as follower:
        for own in (reader, follower):
            with pytest.raises(SchemaUnavailable):
                own.read_to_end()
        assert [seen.record for seen in follower.poll(0.01)] == [first]
        away = False
        assert [seen.record for seen in reader.read_to_end()] == [first, second]
        assert [seen.record for seen in follower.read_to_end()] == [second]
        assert reader.read_to_end() == []


def test_missing_topic_is_named_and_created(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> None:
    other = make_topic()
    pipeline = pipeline_on(tmp_path, kafka, f"{other}-control")
    config = {name: f"{other}-{name}" for name in ("input", "output", "letters", "evaluations")}
    text = pipeline.path.read_text(encoding="utf-8").replace("topic: events", f"topic: {config['input']}")
    text = text.replace("topic: predictions", f"topic: {config['output']}").replace(
        "{strategy: manual", f"{{strategy: manual, evaluations: {config['evaluations']}"
    )
    pipeline = load(tmp_path, f"{text}dead_letters: {{topic: {config['letters']}}}\n")
    admin = Admin(pipeline.client_config())
    with (
        open_reader(pipeline, open_store(pipeline)) as reader,
        pytest.raises(ControlTopicError, match="does not exist on"),
    ):
        reader.read_to_end()
    with pytest.raises(ControlTopicError, match="Create it: millstream topics create PIPELINE"):
        require_control_topic(admin, pipeline)
    create(admin, pipeline, partitions=3)
    require_control_topic(admin, pipeline)
    if not is_embedded(admin):
        assert {state.role: state.partitions for state in states(admin, roles(pipeline))} == {
            "input": 3, "output": 3, "dead letters": 3, "rollout": 1, "rollout evaluations": 3,
        }  # fmt: skip
        assert cleanup_policy(admin, pipeline_topic(pipeline)) == "compact"
        asked = ConfigResource(ResourceType.TOPIC, config["evaluations"])
        found = admin.describe_configs([asked])[asked].result(30)
        # The same keys come all the time, and a segment is compacted only when it is full.
        assert (found["cleanup.policy"].value, found["segment.bytes"].value) == ("compact", "67108864")


@pytest.mark.durable
@pytest.mark.parametrize(
    ("partitions", "policy", "says"),
    [
        (1, "delete", "expected cleanup.policy=compact, found delete: the broker would delete the rollout's state"),
        (1, "compact,delete", "expected cleanup.policy=compact, found compact,delete"),
        (2, "compact", "expected 1 partition, found 2"),
    ],
)
def test_unfit_topic_is_refused(
    tmp_path: Path, kafka: Broker, make_topic: MakeTopic, partitions: int, policy: str, says: str
) -> None:
    pipeline = pipeline_on(tmp_path, kafka, make_topic(partitions, cleanup_policy=policy))
    with pytest.raises(ControlTopicError, match=says):
        require_control_topic(Admin(pipeline.client_config()), pipeline)


@pytest.mark.full
@pytest.mark.durable
def test_many_writers_at_once_lose_no_change(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> None:
    pipeline = pipeline_on(tmp_path, kafka, compacted_topic(kafka, make_topic))
    store = open_store(pipeline)
    answers = list[tuple[str, str]]()

    def write(by: str) -> None:
        with open_reader(pipeline, store) as own:
            for number in range(5):
                own.read_to_end()
                assert own.record is not None
                record = shifted(own.record, f"{by} {number}", share=number, by=by)
                answers.append((record.change_id, written_by(pipeline, own, record)))

    with open_reader(pipeline, store) as follower:
        follower.read_to_end()
        open_writer(pipeline, store, follower).write(started())
        writers = [threading.Thread(target=write, args=(f"writer {number}",)) for number in range(4)]
        for thread in writers:
            thread.start()
        for thread in writers:
            thread.join()
        follower.read_to_end()
        seen = follower.record
    with open_reader(pipeline, store) as fresh:
        records = [own for own in fresh.read_to_end() if own.record is not None]
    assert len(answers) == 20
    assert all(own.counts for own in records)
    won = {change for change, answer in answers if change.startswith(answer)}
    assert {own.record.change_id for own in records[1:] if own.record is not None} == won
    assert seen == records[-1].record


@pytest.mark.full
@pytest.mark.durable
def test_follower_goes_over_to_a_topic_that_was_created_anew(
    tmp_path: Path, kafka: Broker, make_topic: MakeTopic
) -> None:
    topic = compacted_topic(kafka, make_topic)
    pipeline = pipeline_on(tmp_path, kafka, topic)
    store, first = open_store(pipeline), started()
    with open_reader(pipeline, store) as follower, open_reader(pipeline, store) as reader:
        follower.read_to_end()
        writer = open_writer(pipeline, store, reader)
        writer.write(first)
        writer.write(shifted(first, "c2"))
        wait_until(lambda: follower.poll(0.1) is not None and follower.record is not None, 10, "the rollout")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([topic])[topic].result()
        wait_until(lambda: bool(follower.poll(0.5) or follower.problem), 60, "the follower to miss the topic")
        assert follower.record == shifted(first, "c2")
        create_topic(kafka.bootstrap, topic, 1, {"cleanup.policy": "compact"})
        with open_reader(pipeline, store) as other:
            open_writer(pipeline, store, other).write(started("c3"))
        wait_until(lambda: bool(follower.poll(0.5)), 60, "the follower to see the new topic")
        assert (follower.record, follower.problem) == (started("c3"), "")


@pytest.mark.full
@pytest.mark.skipif(missing_for_maven() is not None, reason="restarts a broker of its own, which needs Java and Maven")
@pytest.mark.parametrize("changes", [0, 1, 3])
def test_follower_goes_over_to_a_topic_that_was_created_anew_on_a_cluster_of_some_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    """The new topic has a lower leader epoch than the old one, for which a Kafka client reads nothing from it."""
    monkeypatch.setattr("millstream.consumers.control.reader.CHECK_EVERY", 5.0)
    with MavenKafka() as own:
        kafka, topic = Broker(own.bootstrap, durable=True, kind="maven"), "flights-rollout"
        create_topic(own.bootstrap, topic, 1, {"cleanup.policy": "compact"})
        own.restart()  # raises the partition's epoch
        pipeline = pipeline_on(tmp_path, kafka, topic)
        store = open_store(pipeline)
        with open_reader(pipeline, store) as follower:
            with open_reader(pipeline, store) as other:
                writer, last = open_writer(pipeline, store, other), started()
                for number in range(changes):
                    writer.write(last)
                    last = shifted(last, f"c{number}", share=number + 1)
            follower.read_to_end()
            assert (follower.record is None) == (changes == 0)
            admin = AdminClient({"bootstrap.servers": own.bootstrap})
            admin.delete_topics([topic])[topic].result()
            wait_until(lambda: bool(follower.poll(0.5) or follower.problem), 60, "the follower to miss the topic")
            create_topic(own.bootstrap, topic, 1, {"cleanup.policy": "compact"})
            with open_reader(pipeline, store) as other:
                open_writer(pipeline, store, other).write(started("d1"))
            wait_until(lambda: bool(follower.poll(0.5)), 60, "the follower to see the new topic")
            assert (follower.record, follower.problem) == (started("d1"), "")


@pytest.mark.full
@pytest.mark.durable
def test_writer_that_is_stopped_just_before_its_commit_does_not_write(
    tmp_path: Path, kafka: Broker, make_topic: MakeTopic
) -> None:
    pipeline = pipeline_on(tmp_path, kafka, compacted_topic(kafka, make_topic))
    store, checks = open_store(pipeline), list[float]()

    def check() -> None:
        checks.append(time.monotonic())
        if len(checks) > 1:
            raise ChangeRefusedError("decided too long ago")
        time.sleep(2 * TRANSACTION_TIMEOUT_MS / 1000 + 10)  # the broker looks every 10 s for what is too old

    with open_reader(pipeline, store) as reader:
        with pytest.raises(ChangeRefusedError, match="decided too long ago"):
            open_writer(pipeline, store, reader).write(started(), check)
        reader.read_to_end()
        assert reader.record is None
    assert len(checks) == 2


@pytest.mark.full
@pytest.mark.durable
def test_follower_notices_a_topic_that_was_created_anew_with_as_many_records(
    tmp_path: Path, kafka: Broker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.consumers.control.reader.CHECK_EVERY", 2.0)
    topic = compacted_topic(kafka, make_topic)
    pipeline = pipeline_on(tmp_path, kafka, topic)
    store, first = open_store(pipeline), started()
    with open_reader(pipeline, store) as follower, open_reader(pipeline, store) as reader:
        follower.read_to_end()
        writer = open_writer(pipeline, store, reader)
        for record in (first, shifted(first, "c2")):
            writer.write(record)
        wait_until(
            lambda: follower.poll(0.1) is not None and follower.record == shifted(first, "c2"), 10, "the rollout"
        )
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([topic])[topic].result()
        follower.poll(0.1)
        create_topic(kafka.bootstrap, topic, 1, {"cleanup.policy": "compact"})
        with open_reader(pipeline, store) as other:
            writer, anew = open_writer(pipeline, store, other), started("d1")
            for record in (anew, shifted(anew, "d2", share=4000)):
                writer.write(record)

        def follows() -> bool:
            follower.poll(0.5)
            return follower.record == shifted(anew, "d2", share=4000)

        wait_until(follows, 60, "the follower to see the new topic")


def test_look_at_whether_the_topic_is_the_same_changes_nothing_if_it_is(
    tmp_path: Path, kafka: Broker, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.consumers.control.reader.CHECK_EVERY", 0.0)
    topic = compacted_topic(kafka, make_topic)
    pipeline = pipeline_on(tmp_path, kafka, topic)
    store, first = open_store(pipeline), started()
    with open_reader(pipeline, store) as follower, open_reader(pipeline, store) as reader:
        follower.read_to_end()
        writer = open_writer(pipeline, store, reader)
        for record in (first, shifted(first, "c2")):
            writer.write(record)
        produce(kafka.bootstrap, topic, [(KEY, b"foreign"), (b"other", b"foreign")])
        seen = follower.read_to_end()
        assert [own.offset for own in seen if own.counts] == [own.offset for own in seen][:2]
        newest, problem = follower.record, follower.problem
        assert newest == shifted(first, "c2")
        for _ in range(5):
            assert (follower.poll(0.3), follower.read_to_end()) == ([], [])
        assert (follower.record, follower.problem) == (newest, problem)
        assert follower.record is newest
        # Reading that goes back at each poll may never come to the next record.
        monkeypatch.setattr("millstream.consumers.control.reader.CHECK_EVERY", 60.0)
        third = shifted(shifted(first, "c2"), "c3", share=7)
        writer.write(third)
        wait_until(lambda: follower.poll(0.3) is not None and follower.record == third, 10, "the next change")


@pytest.mark.full
@pytest.mark.durable
def test_compaction_keeps_the_state(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> None:
    settings = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.01", "max_compaction_lag_ms": "100"}
    pipeline = pipeline_on(tmp_path, kafka, compacted_topic(kafka, make_topic, **settings))
    store, record = open_store(pipeline), started()
    with open_reader(pipeline, store) as reader:
        writer = open_writer(pipeline, store, reader)
        writer.write(record)

        def compacted() -> bool:
            """Each change makes a new segment, so that the ones before may be compacted."""
            nonlocal record
            record = shifted(record, f"c{record.revision + 1}", share=record.revision)
            writer.write(record)
            return len(read_all(kafka.bootstrap, pipeline_topic(pipeline))) < record.revision

        wait_until(compacted, 120, "the cleaner to compact the topic")
    with open_reader(pipeline, store) as fresh:
        assert len(fresh.read_to_end()) < record.revision
        assert fresh.record == record
