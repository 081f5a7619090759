"""Reading a dead-letter topic and replaying from it, on a broker."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer

from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.dead_letters import DeadLetter, decode_dead_letter
from millstream.topics import dead_letter_reader, records
from millstream.topics.dead_letter_reader import DeadLetterReader
from millstream.topics.dead_letters import NoLetter, Position, Replay, Stays, StoredLetter, Unread, marker
from millstream.topics.errors import BrokerUnreachableError, TopicError
from millstream.topics.replay import Replayer, batches, plan
from tests.broker.choice import Broker
from tests.broker.clients import produce, read_all
from tests.broker.raw_batch import send_batch
from tests.conftest import MakeTopic
from tests.schemas.letters import encoded
from tests.topics.letters import a_letter, write_letters

pytestmark = pytest.mark.durable  # transactions


@pytest.fixture
def letters(make_topic: MakeTopic) -> str:
    return make_topic(partitions=2)


@pytest.fixture
def events(make_topic: MakeTopic) -> str:
    return make_topic(partitions=2)


@pytest.fixture
def reader(kafka: Broker, letters: str) -> Iterator[DeadLetterReader]:
    with DeadLetterReader(client(kafka), letters, decode_dead_letter) as opened:
        yield opened


def client(kafka: Broker) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap}


def pipeline_of(folder: Path, kafka: Broker, events: str, letters: str, input_options: str = "") -> Pipeline:
    file = folder / "pipeline.yaml"
    file.write_text(
        f"name: p\nkafka: {{bootstrap: '{kafka.bootstrap}'}}\n"
        f"input: {{topics: [{events}], format: json, schema: s{input_options}}}\n"
        f"output: {{topic: out}}\ndead_letters: {{topic: {letters}}}\nmodel: {{name: m}}\n"
    )
    return load_pipeline(file, {})


def stored(found: Iterator[StoredLetter | NoLetter | Unread]) -> list[StoredLetter]:
    each = list(found)
    assert not [item for item in each if isinstance(item, NoLetter | Unread)]
    return [item for item in each if isinstance(item, StoredLetter)]


def an_event(topic: str, letter: Position, value: bytes = b"v", **fields: object) -> Replay:
    bare: dict[str, object] = {"partition": 1, "key": b"k", "headers": (("a", None),), "timestamp": None}
    return Replay(letter, topic, value=value, **{**bare, **fields})  # type: ignore[arg-type]


def replay(kafka: Broker, letters: str, found: list[Replay], group: str | None = None) -> dict[Position, str]:
    with Replayer(client(kafka), group or letters, letters) as replayer:
        replayer.start()
        return replayer.replay(found)


def open_transaction(kafka: Broker, letters: str) -> Producer:
    """A worker that has written a letter into partition 0, and has not committed."""
    worker = Producer({**client(kafka), "transactional.id": f"{letters}-worker"})
    worker.init_transactions(30)
    worker.begin_transaction()
    worker.produce(letters, encoded(a_letter(offset=99)), partition=0)
    assert worker.flush(30) == 0
    return worker


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def test_letters_are_read_by_partition_and_offset_and_strangers_told(
    kafka: Broker, letters: str, reader: DeadLetterReader
) -> None:
    assert list(reader.letters(replayed=True)) == []
    first, second, third = a_letter(offset=1), a_letter(offset=2, value=None), a_letter(offset=3, key=None)
    write_letters(kafka.bootstrap, letters, [third], partition=1)
    write_letters(kafka.bootstrap, letters, [first, second])
    produce(kafka.bootstrap, letters, [(None, b"junk"), (b"k", None)], partition=0)
    found = list(reader.letters(replayed=False))
    stranger = found.pop(2)
    assert found == [
        StoredLetter(Position(0, 0), first),
        StoredLetter(Position(0, 1), second),
        StoredLetter(Position(1, 0), third),
    ]
    assert isinstance(stranger, NoLetter)
    assert stranger.position == Position(0, 2)
    assert "no dead letter: expected the wire format" in stranger.error


def test_replayed_event_and_marker_are_seen_together_and_its_letter_no_more(
    kafka: Broker, letters: str, events: str, reader: DeadLetterReader
) -> None:
    write_letters(kafka.bootstrap, letters, [a_letter(offset=offset) for offset in range(3)])
    assert replay(kafka, letters, [an_event(events, Position(0, 1), b"", key=b"", timestamp=1234)]) == {}
    [message] = read_all(kafka.bootstrap, events)
    assert (message.partition(), message.key(), message.value()) == (1, b"", b"")
    assert (message.headers(), message.timestamp()[1]) == ([("a", None)], 1234)
    assert [item.position.offset for item in stored(reader.letters(replayed=False))] == [0, 2]
    everything = stored(reader.letters(replayed=True))
    assert [item.replayed_at is not None for item in everything] == [False, True, False]
    assert reader.letter(Position(0, 1)) == everything[1]
    assert reader.letter(Position(0, 2)) == everything[2]


@pytest.mark.parametrize("position", [Position(0, 1), Position(0, 9), Position(1, 0), Position(7, 0)])
def test_position_without_a_letter_is_told(
    kafka: Broker, letters: str, reader: DeadLetterReader, position: Position
) -> None:
    write_letters(kafka.bootstrap, letters, [a_letter()])
    produce(
        kafka.bootstrap, letters, [(None, None, [(name, value) for name, value in marker(Position(0, 0))])], partition=0
    )
    with pytest.raises(TopicError, match=f"no dead letter at {position} of "):
        reader.letter(position)


def test_event_that_the_topic_refuses_stays_and_the_others_of_its_batch_are_replayed(
    kafka: Broker, letters: str, make_topic: MakeTopic
) -> None:
    events = make_topic(partitions=2, max_message_bytes="1000", message_timestamp_before_max_ms="3600000")
    found = [an_event(events, Position(0, offset), b"%d" % offset) for offset in range(6)]
    found[2] = an_event(events, Position(0, 2), bytes(5000))
    found[4] = an_event(events, Position(0, 4), timestamp=1000)
    found[5] = an_event(events, Position(0, 5), partition=9)
    refused = replay(kafka, letters, found)
    assert sorted(refused) == [Position(0, 2), Position(0, 4), Position(0, 5)]
    assert "raise its `max.message.bytes`" in refused[Position(0, 2)]
    assert "raise its `message.timestamp.before.max.ms`" in refused[Position(0, 4)]
    assert "no such partition" in refused[Position(0, 5)]
    assert values(read_all(kafka.bootstrap, events)) == [b"0", b"1", b"3"]
    marks = [message.headers() for message in read_all(kafka.bootstrap, letters)]
    assert marks == [[("millstream.replayed", b"0@%d" % offset)] for offset in (0, 1, 3)]


def test_event_with_two_letters_is_written_once_and_both_are_marked(
    kafka: Broker, letters: str, events: str, reader: DeadLetterReader, tmp_path: Path
) -> None:
    twice, other = (a_letter(topic=events, offset=offset, value=b"v%d" % offset) for offset in (3, 4))
    anew = twice._replace(value=b"another event of a topic that was created anew")
    write_letters(kafka.bootstrap, letters, [twice, other, twice, anew])
    pipeline = pipeline_of(tmp_path, kafka, events, letters)
    found = [
        each for each in plan(stored(reader.letters(replayed=False)), reader, pipeline) if isinstance(each, Replay)
    ]
    assert [each.copy_of for each in found] == [None, None, Position(0, 0), None]
    assert replay(kafka, letters, found) == {}
    written = values(read_all(kafka.bootstrap, events))
    assert (len(written), set(written)) == (3, {anew.value, b"v3", b"v4"})
    assert stored(reader.letters(replayed=False)) == []


def test_copy_of_a_letter_whose_event_is_refused_stays_too(kafka: Broker, letters: str, make_topic: MakeTopic) -> None:
    events = make_topic(max_message_bytes="1000")
    large = an_event(events, Position(0, 0), b"x" * 5000, partition=0)
    copy = replace(large, position=Position(0, 1), copy_of=Position(0, 0))
    good = an_event(events, Position(0, 2), partition=0)
    with Replayer(client(kafka), letters, letters) as replayer:
        replayer.start()
        refused = replayer.replay([large, good])
        assert refused.keys() == {Position(0, 0)}
        assert replayer.replay([copy]) == {Position(0, 1): refused[Position(0, 0)]}
    assert values(read_all(kafka.bootstrap, events)) == [b"v"]


def test_compacted_dead_letter_topic_refuses_the_marker_and_nothing_is_replayed(
    kafka: Broker, events: str, make_topic: MakeTopic
) -> None:
    letters = make_topic(partitions=2, cleanup_policy="compact")
    with pytest.raises(TopicError, match=r"set its `cleanup\.policy` to `delete`"):
        replay(kafka, letters, [an_event(events, Position(0, 0))])
    assert read_all(kafka.bootstrap, events) == []


def test_later_replay_takes_over_and_the_earlier_writes_nothing_more(kafka: Broker, letters: str, events: str) -> None:
    with Replayer(client(kafka), letters, letters) as earlier, Replayer(client(kafka), letters, letters) as later:
        earlier.start()
        assert earlier.replay([an_event(events, Position(0, 0), b"earlier")]) == {}
        later.start()
        with pytest.raises(TopicError, match="another replay of this pipeline's dead letters has started"):
            earlier.replay([an_event(events, Position(0, 1), b"too late")])
        assert later.replay([an_event(events, Position(0, 1), b"later")]) == {}
    assert values(read_all(kafka.bootstrap, events)) == [b"earlier", b"later"]


def test_marker_above_a_workers_open_transaction_is_waited_for(
    kafka: Broker, letters: str, events: str, reader: DeadLetterReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_letters(kafka.bootstrap, letters, [a_letter()])
    worker = open_transaction(kafka, letters)
    # Readers of committed records see nothing of this marker until the worker's transaction ends.
    assert replay(kafka, letters, [an_event(events, Position(0, 0))]) == {}
    asked = threading.Semaphore(0)
    bounds = records.bounds

    def spied(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
        found = bounds(consumer, topic, partition)
        asked.release()
        return found

    monkeypatch.setattr(dead_letter_reader, "bounds", spied)
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(lambda: stored(reader.letters(replayed=False)))
        for _ in range(2):  # partitions
            assert asked.acquire(timeout=20)
        worker.abort_transaction(30)
        assert reading.result(20) == []
    worker.close()


def test_partition_whose_end_stays_out_of_reach_is_told_and_the_others_are_read(
    kafka: Broker, letters: str, reader: DeadLetterReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.topics.dead_letter_reader.IDLE_TIMEOUT", 0.5)
    worker = open_transaction(kafka, letters)
    write_letters(kafka.bootstrap, letters, [a_letter(offset=7)], partition=1)
    unread, readable = reader.letters(replayed=False)
    assert isinstance(unread, Unread)
    assert unread.position == Position(0, 0)
    assert (
        "/0 can't be read from offset 0 to its end at 1: a transaction that writes there is still open" in unread.error
    )
    assert isinstance(readable, StoredLetter)
    assert (readable.position.partition, readable.letter.offset) == (1, 7)
    worker.abort_transaction(30)
    worker.close()


def test_plan_writes_to_this_pipelines_input_only(
    kafka: Broker, letters: str, events: str, reader: DeadLetterReader, tmp_path: Path
) -> None:
    found = [
        a_letter(topic=events),
        a_letter(topic=events, pipeline="other"),
        a_letter(topic="elsewhere"),
        a_letter(topic=events, partition=2),
        a_letter(topic=events, value=None),
    ]
    each = [StoredLetter(Position(0, offset), letter) for offset, letter in enumerate(found)]
    good, *bad = plan(each, reader, pipeline_of(tmp_path, kafka, events, letters))
    assert isinstance(good, Replay)
    assert (good.topic, good.partition, good.position) == (events, 0, Position(0, 0))
    assert [(item.position.offset, item.why) for item in bad if isinstance(item, Stays)] == [
        (1, "it is pipeline other's"),
        (2, "its topic elsewhere is no input of this pipeline (any more)"),
        (3, f"topic {events} has no partition 2 (any more)"),
        (4, f"its value was left out, and the event is gone from {events}/0@0"),
    ]


@pytest.mark.parametrize(("options", "timestamp"), [("", 1_700_000_000_000), (", event_time: t", None)])
def test_plan_keeps_the_timestamp_where_it_is_the_events_time(
    kafka: Broker,
    letters: str,
    events: str,
    reader: DeadLetterReader,
    tmp_path: Path,
    options: str,
    timestamp: int | None,
) -> None:
    letter = StoredLetter(Position(0, 0), a_letter(topic=events, timestamp=1_700_000_000_000))
    [planned] = plan([letter], reader, pipeline_of(tmp_path, kafka, events, letters, options))
    assert isinstance(planned, Replay)
    assert planned.timestamp == timestamp


def test_value_left_out_is_read_from_the_events_topic_if_it_is_still_the_same_event(
    kafka: Broker, events: str, reader: DeadLetterReader
) -> None:
    produce(kafka.bootstrap, events, [(b"k", b"first"), (b"k", b"large", [("a", b"1")]), (b"k", b"last")], partition=1)
    timestamp = read_all(kafka.bootstrap, events)[1].timestamp()[1]
    left_out = a_letter(topic=events, partition=1, offset=1, timestamp=timestamp, value=None)
    found = reader.original(left_out)
    assert found is not None
    assert (found.value, found.headers) == (b"large", (("a", b"1"),))

    def changed(**fields: object) -> DeadLetter:
        return a_letter(
            **{"topic": events, "partition": 1, "offset": 1, "timestamp": timestamp, "value": None, **fields}
        )

    for other in (
        changed(key=b"other"),
        changed(timestamp=timestamp + 1),
        changed(offset=3),
        changed(topic="no-topic"),
    ):
        assert reader.original(other) is None


@pytest.mark.parametrize("key", [b"k", None])
@pytest.mark.parametrize("is_kept", [True, False])
def test_keyed_event_whose_key_and_value_were_left_out_is_replayed(
    kafka: Broker, letters: str, events: str, reader: DeadLetterReader, tmp_path: Path, key: bytes | None, is_kept: bool
) -> None:
    produce(kafka.bootstrap, events, [(key, b"large", [("a", b"1")])], partition=0)
    timestamp = read_all(kafka.bootstrap, events)[0].timestamp()[1]
    letter = a_letter(topic=events, timestamp=timestamp, key=None, value=None)
    # A worker gives the record the event's key, unless that itself is too large.
    produce(kafka.bootstrap, letters, [(key if is_kept else None, encoded(letter))], partition=0)
    [found] = stored(reader.letters(replayed=False))
    [planned] = plan([found], reader, pipeline_of(tmp_path, kafka, events, letters))
    assert isinstance(planned, Replay)
    assert (planned.key, planned.value, planned.headers[0]) == (key, b"large", ("a", b"1"))


def test_letter_whose_records_key_is_another_events_stays(
    kafka: Broker, letters: str, events: str, reader: DeadLetterReader, tmp_path: Path
) -> None:
    produce(kafka.bootstrap, events, [(b"another", b"v")], partition=0)
    timestamp = read_all(kafka.bootstrap, events)[0].timestamp()[1]
    letter = a_letter(topic=events, timestamp=timestamp, key=None, value=None)
    produce(kafka.bootstrap, letters, [(b"k", encoded(letter))], partition=0)
    [planned] = plan(stored(reader.letters(replayed=False)), reader, pipeline_of(tmp_path, kafka, events, letters))
    assert isinstance(planned, Stays)
    assert "the event is gone" in planned.why


def test_originals_are_read_while_letters_are(
    kafka: Broker, letters: str, events: str, reader: DeadLetterReader
) -> None:
    produce(kafka.bootstrap, events, [(b"k", b"%d" % number) for number in range(20)], partition=0)
    times = [message.timestamp()[1] for message in read_all(kafka.bootstrap, events)]
    found = [a_letter(topic=events, offset=offset, timestamp=time, value=None) for offset, time in enumerate(times)]
    write_letters(kafka.bootstrap, letters, found)
    originals = [reader.original(item.letter) for item in stored(reader.letters(replayed=False))]
    assert [original and original.value for original in originals] == [b"%d" % number for number in range(20)]


def test_batches_are_cut_by_events_and_by_bytes() -> None:
    small = [an_event("in", Position(0, offset)) for offset in range(250)]
    assert [len(batch) for batch in batches(small)] == [100, 100, 50]
    large = [an_event("in", Position(0, offset), bytes(3_000_000)) for offset in range(3)]
    assert [len(batch) for batch in batches(large)] == [2, 1]
    assert list(batches([])) == []


def test_missing_topic_and_broker_are_told(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TopicError, match=r"topic not-there: .* Create it"):
        DeadLetterReader(client(kafka), "not-there", decode_dead_letter)
    monkeypatch.setattr("millstream.topics.dead_letter_reader.ANSWER_TIMEOUT", 0.5)
    with pytest.raises(BrokerUnreachableError, match=r"no Kafka broker answers at 127\.0\.0\.1:9 "):
        DeadLetterReader({"bootstrap.servers": "127.0.0.1:9"}, "t", decode_dead_letter)


def test_time_of_the_future_is_not_kept(
    kafka: Broker, letters: str, events: str, reader: DeadLetterReader, tmp_path: Path
) -> None:
    letter = StoredLetter(Position(0, 0), a_letter(topic=events, timestamp=2**62))
    [planned] = plan([letter], reader, pipeline_of(tmp_path, kafka, events, letters))
    assert isinstance(planned, Replay)
    assert planned.timestamp is None


def test_original_whose_headers_can_not_be_read_stays(
    kafka: Broker, letters: str, events: str, reader: DeadLetterReader, tmp_path: Path
) -> None:
    pytest.importorskip("aiokafka", reason="the comparison job's packages: make .venv/.comparison")
    send_batch(kafka.bootstrap, events, [b"large"], name=b"\xff", timestamp=1_700_000_000_000)
    letter = a_letter(topic=events, timestamp=1_700_000_000_000, value=None)
    [planned] = plan([StoredLetter(Position(0, 0), letter)], reader, pipeline_of(tmp_path, kafka, events, letters))
    assert isinstance(planned, Stays)
    assert "the event has headers that can not be read in" in planned.why


def test_markers_that_stand_before_their_letter_or_elsewhere_mark_nothing(
    kafka: Broker, letters: str, reader: DeadLetterReader
) -> None:
    for at in (Position(0, 5), Position(1, 0)):
        produce(kafka.bootstrap, letters, [(None, None, [(name, value) for name, value in marker(at)])], partition=0)
    write_letters(kafka.bootstrap, letters, [a_letter()] * 4)
    write_letters(kafka.bootstrap, letters, [a_letter()], partition=1)
    assert len(stored(reader.letters(replayed=False))) == 5
