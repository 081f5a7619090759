import csv
import io
import json
import re
import shutil
import signal
import subprocess
import uuid
from collections import Counter
from pathlib import Path
from threading import Thread

import pytest
import yaml

from millstream.consumers.cli import main as cli
from millstream.consumers.demo.example import example_folder
from millstream.schemas.rows import decode_row
from tests.broker.choice import Broker
from tests.broker.clients import create_topic, read_all, wait_until
from tests.broker.maven import MavenKafka, missing_for_maven
from tests.cli.command import COMMAND, ENVIRON, flights_pipeline, millstream, millstream_here
from tests.conftest import MakeTopic
from tests.consumers.python_service import python_service

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
EVENTS = example_folder() / "events.jsonl"
ROWS = [json.loads(line) for line in EVENTS.read_text().splitlines()]
SCHEMA = json.loads((example_folder() / "schemas" / "1-flight-departure.avsc").read_text())


@pytest.fixture
def topic(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> str:
    """The input topic of the pipeline in `tmp_path`."""
    return flights_pipeline(tmp_path, kafka.bootstrap, make_topic)["departures"]


def ids(kafka: Broker, topic: str, count: int) -> list[str]:
    values = [message.value() for message in read_all(kafka.bootstrap, topic, count)]
    return sorted(decode_row(value or b"", SCHEMA)["id"] for value in values)


def test_json_lines_become_keyed_avro_events(tmp_path: Path, kafka: Broker, topic: str) -> None:
    done = millstream("produce", tmp_path, EVENTS)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"20 events written to {topic}\n", "")
    messages = read_all(kafka.bootstrap, topic, len(ROWS))
    found = {}
    for message in messages:
        row = decode_row(message.value() or b"", SCHEMA)
        found[row["id"]] = (row["carrier"], row["distance"], message.key())
    assert len(messages) == len(ROWS)
    assert found == {
        row["id"]: (row["carrier"], row["distance"], row["tail_number"] and row["tail_number"].encode()) for row in ROWS
    }


@pytest.mark.usefixtures("topic")
def test_labels_are_written_as_the_label_topic_has_them(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> None:
    labels = make_topic()
    section = {"topic": labels, "format": "json", "event_id": "event", "value": "late"}
    file = tmp_path / "pipeline.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"labels": section}))
    row = '{"event":"e1","late":true}'
    done = millstream_here("produce", tmp_path, "--topic", labels, stdin=row.encode())
    assert (done.returncode, done.stdout, done.stderr) == (0, f"1 label written to {labels}\n", "")
    [message] = read_all(kafka.bootstrap, labels, 1)
    assert (message.key(), message.value()) == (b"e1", row.encode())


def test_csv_and_json_lines_give_the_same_bytes(
    tmp_path: Path, kafka: Broker, topic: str, make_topic: MakeTopic
) -> None:
    other = make_topic()
    text = io.StringIO()
    writer = csv.DictWriter(text, list(ROWS[0]))
    writer.writeheader()
    writer.writerows(ROWS)
    (tmp_path / "events.csv").write_text(text.getvalue())
    assert millstream_here("produce", tmp_path, tmp_path / "events.csv", "--topic", other).returncode == 0
    assert millstream_here("produce", tmp_path, EVENTS).returncode == 0
    by_csv, by_json = (
        sorted((message.partition(), message.key(), message.value()) for message in read_all(kafka.bootstrap, t, 20))
        for t in (other, topic)
    )
    assert by_csv == by_json


def test_bad_row_stops_after_the_rows_before_it(tmp_path: Path, kafka: Broker, topic: str) -> None:
    lines = EVENTS.read_text().splitlines()[:5]
    lines[2] = lines[2].replace('"month":9', '"month":"September"')
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    done = millstream_here("produce", tmp_path, tmp_path / "events.jsonl")
    assert (done.returncode, done.stdout) == (1, f"2 events written to {topic}\n")
    assert done.stderr.startswith(f"{tmp_path / 'events.jsonl'}:3: field 'month'")
    assert ids(kafka, topic, 2) == sorted(row["id"] for row in ROWS[:2])


def test_skip_bad_writes_all_others_and_tells_each(tmp_path: Path, kafka: Broker, topic: str) -> None:
    good = [line.encode() for line in EVENTS.read_text().splitlines()[:3]]
    bad = [b"{", b"[1]", b'{"id": "x"}', b'{"id": "\xff"}', b'{"id": ' + b"9" * 5000 + b"}"]
    done = millstream_here("produce", tmp_path, "--skip-bad", stdin=b"\n".join([*bad, b"", *good]))
    assert (done.returncode, done.stdout) == (0, f"3 events written to {topic}, 5 bad rows skipped\n")
    told = done.stderr.splitlines()
    assert [line.split(":")[1] for line in told] == ["1", "2", "3", "4", "5"]
    assert all(line.startswith("standard input:") for line in told)
    assert ids(kafka, topic, 3) == sorted(row["id"] for row in ROWS[:3])


def test_carriage_return_inside_a_row_is_white_space(tmp_path: Path, kafka: Broker, topic: str) -> None:
    rows = [json.dumps(row).replace(", ", ",\r") for row in ROWS[:2]]
    done = millstream_here("produce", tmp_path, stdin="\r\n".join(rows).encode())
    assert (done.returncode, done.stdout, done.stderr) == (0, f"2 events written to {topic}\n", "")
    assert ids(kafka, topic, 2) == sorted(row["id"] for row in ROWS[:2])


@pytest.mark.parametrize("rows", ['[{"id": 1}, {"id": 2}]', '[{"id": 1},\n{"id": 2}]', '[\n{"id": 1}\n]'])
@pytest.mark.usefixtures("topic")
def test_list_of_events_is_refused_before_its_first_row(tmp_path: Path, rows: str) -> None:
    done = millstream_here("produce", tmp_path, "--skip-bad", stdin=rows.encode())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("standard input:1: expected one JSON object per line, found a l")
    assert "rite them as lines: jq -c '.[]' FILE" in done.stderr
    assert "--skip" not in done.stderr


@pytest.mark.usefixtures("topic")
def test_lines_that_end_with_a_bare_carriage_return_are_refused_before_the_first_row(tmp_path: Path) -> None:
    done = millstream_here("produce", tmp_path, "--skip-bad", stdin=b'{"id": 1}\r{"id": 2}\r')
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "standard input:1: expected one JSON object per line, found lines that end with a bare carriage return. Convert the "
        "file: tr '\\r' '\\n' < FILE > NEW.\n"
    )


def test_limit_ends_in_the_middle_of_endless_input(tmp_path: Path, kafka: Broker, topic: str) -> None:
    done = millstream_here("produce", tmp_path, EVENTS, "--limit", "7", "--rate", "1000")
    assert (done.returncode, done.stdout) == (0, f"7 events written to {topic}\n")
    assert len(read_all(kafka.bootstrap, topic, 7)) == 7


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id,id\n1,2\n", ":1: expected each column name once"),
        ("id,carrier\n1,UA\n2\n", ":2: "),
        ('id\n"a\nb",c\n', ":2: expected 1 cells as in the header row, found 2."),
        ('id\n"never closed\n', ":2: expected CSV"),
    ],
)
def test_bad_csv_is_told_by_its_line(tmp_path: Path, topic: str, text: str, told: str) -> None:
    done = millstream_here("produce", tmp_path, "--format", "csv", stdin=text.encode())
    assert (done.returncode, done.stdout) == (1, f"0 events written to {topic}\n")
    assert told in done.stderr


def test_missing_file_is_one_clear_message(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> None:
    flights_pipeline(tmp_path, kafka.bootstrap, make_topic)
    done = millstream_here("produce", tmp_path, tmp_path / "none.jsonl")
    assert done.returncode == 1
    assert (
        done.stderr
        == f"{tmp_path / 'none.jsonl'}: the file can't be read: No such file or directory. Check the path.\n"
    )


@pytest.mark.durable  # the mock makes topics that are asked for
def test_missing_topic_is_one_clear_message(tmp_path: Path, topic: str) -> None:
    done = millstream_here("produce", tmp_path, EVENTS, "--topic", f"{topic}-not-there")
    assert done.returncode == 1
    assert done.stderr.startswith(f"--topic {topic}-not-there: there is no such topic on ")
    assert "topics create" not in done.stderr


def test_key_that_is_no_field_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    shutil.copytree(example_folder(), tmp_path, dirs_exist_ok=True)
    text = file.read_text()
    file.write_text(text.replace("key: tail_number", "key: tail"))
    line = text[: text.index("key: tail_number")].count("\n") + 1
    done = millstream_here("produce", tmp_path, EVENTS)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{file}:{line}: input.key: expected a field of schema `flight-departure`")


@pytest.mark.parametrize(
    ("schema", "event_id", "expected"),
    [("flight-departure", "event", "a field of schema `flight-departure`"), (None, "a..b", "a path")],
)
def test_path_that_labels_do_not_have_is_refused_with_its_line(
    tmp_path: Path, schema: str | None, event_id: str, expected: str
) -> None:
    file = tmp_path / "pipeline.yaml"
    shutil.copytree(example_folder(), tmp_path, dirs_exist_ok=True)
    section = {"topic": "labels", "format": "json", "schema": schema, "event_id": event_id, "value": "distance"}
    text = file.read_text()
    file.write_text(f"{text}\n{yaml.safe_dump({'labels': {k: v for k, v in section.items() if v}}, sort_keys=False)}")
    line = file.read_text()[: file.read_text().index(f"event_id: {event_id}")].count("\n") + 1
    done = millstream_here("produce", tmp_path, "--topic", "labels", stdin=b"{}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{file}:{line}: labels.event_id: expected {expected}, found `{event_id}`")


def test_json_without_a_schema_is_written_as_it_is(tmp_path: Path, kafka: Broker) -> None:
    service = python_service(
        tmp_path, kafka, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id", "key": "about.keys[0]"}
    )
    rows = [
        {"id": 1, "about": {"keys": ["k", "l"], "ü": [None]}},
        {"id": 2, "about": None},
        {"id": 3, "about": {"keys": [7]}},
        {"id": 4, "about": {"keys": [True]}},
    ]
    bad = ['{"x": NaN}', '{"x": 1e999}', '{"x": "\\ud800"}', '{"x": ' + "9" * 5000 + "}", '{"about": {"keys": [[1]]}}']
    done = millstream_here(
        "produce", service.file, "--skip-bad", stdin="\n".join([*map(json.dumps, rows), *bad]).encode()
    )
    assert (done.returncode, done.stdout) == (0, f"4 events written to {service.inputs[0]}, 5 bad rows skipped\n")
    number = "expected numbers that fit into a double, found NaN, Infinity or a larger number, such as 1e999. Send null"
    others = [
        "expected whole characters, found half of one",
        "expected a JSON object, found a number with thousands of",
        "about.keys[0]: expected text, a number, true or false for the record's key, found a list. Name a value",
    ]
    for line, told in zip(done.stderr.splitlines(), [number, number, *others], strict=True):
        assert line.split(": ", 1)[1].startswith(told)
    found = {
        message.key(): json.loads(message.value() or b"") for message in read_all(kafka.bootstrap, service.inputs[0], 4)
    }
    assert found == {b"k": rows[0], None: rows[1], b"7": rows[2], b"true": rows[3]}


def test_csv_without_a_schema_is_refused(tmp_path: Path, kafka: Broker) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input={"format": "json"})
    done = millstream_here("produce", service.file, "--format", "csv", stdin=b"id\n1\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "CSV has only text" in done.stderr


def test_run_that_ended_early_says_how_to_go_on_without_doubling(tmp_path: Path, kafka: Broker, topic: str) -> None:
    lines = EVENTS.read_text().splitlines()
    file = tmp_path / "events.jsonl"
    file.write_text("\n".join([*lines[:2], "{", *lines[2:]]))
    first = millstream_here("produce", tmp_path, file)
    assert (first.returncode, first.stdout) == (1, f"2 events written to {topic}\n")
    assert "To go on, correct the row and give the same command and input again with --skip 2." in first.stderr
    assert "add --skip-bad" in first.stderr
    file.write_text("\n".join([*lines[:2], *lines[2:]]))
    rest = millstream_here("produce", tmp_path, file, "--skip", "2")
    assert (rest.returncode, rest.stdout) == (0, f"18 events written to {topic}\n")
    assert ids(kafka, topic, 20) == sorted(row["id"] for row in ROWS)
    beyond = millstream_here("produce", tmp_path, file, "--skip", "20")
    assert (beyond.returncode, beyond.stdout) == (0, f"0 events written to {topic}: {file} has no more than 20 rows\n")


@pytest.mark.durable
def test_row_that_the_broker_refuses_is_a_bad_row(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id"})
    topic = make_topic(1, max_message_bytes="20000")
    rows = [{"id": f"{number}", "text": "x" * (50_000 if number in (3, 6) else 10)} for number in range(9)]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    # The text compresses well, so the row fits after all.
    client = {"bootstrap": kafka.bootstrap, "client": {"compression.type": "gzip"}}
    packed = tmp_path / "packed.yaml"
    packed.write_text(yaml.safe_dump(yaml.safe_load(service.file.read_text()) | {"kafka": client}))

    done = millstream_here("produce", service.file, file, "--topic", topic)
    assert (done.returncode, done.stdout) == (1, f"3 events written to {topic}\n")
    assert f"{file}:4: expected a record that topic {topic} takes, found one of 50,020 bytes" in done.stderr
    assert "its `max.message.bytes` is 20,000" in done.stderr
    assert "with --skip 3. To leave out bad rows instead, add --skip-bad." in done.stderr

    rest = millstream_here("produce", service.file, file, "--topic", topic, "--skip", "3", "--skip-bad")
    assert (rest.returncode, rest.stdout) == (0, f"4 events written to {topic}, 2 bad rows skipped\n")
    assert [line.split(":")[1] for line in rest.stderr.splitlines()] == ["4", "7"]
    stored = [json.loads(message.value() or b"")["id"] for message in read_all(kafka.bootstrap, topic, 7)]
    assert stored == ["0", "1", "2", "4", "5", "7", "8"]

    done = millstream_here("produce", packed, file, "--topic", topic)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"9 events written to {topic}\n", "")


@pytest.mark.durable
def test_small_rows_are_in_no_batch_that_the_broker_refuses(
    tmp_path: Path, kafka: Broker, make_topic: MakeTopic
) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id"})
    topic = make_topic(1, max_message_bytes="20000")
    rows = "".join(f"{json.dumps({'id': f'{number}', 'text': 'x' * 100})}\n" for number in range(2000))
    done = millstream_here("produce", service.file, "--topic", topic, stdin=rows.encode())
    assert (done.returncode, done.stdout, done.stderr) == (0, f"2,000 events written to {topic}\n", "")
    assert len(read_all(kafka.bootstrap, topic, 2000)) == 2000


def many_events(folder: Path, count: int) -> tuple[Path, list[str]]:
    """A file with so many events, and their IDs."""
    rows = [ROWS[number % len(ROWS)] | {"id": f"event-{number:06d}"} for number in range(count)]
    file = folder / "many.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file, [row["id"] for row in rows]


def stored(bootstrap: str, topic: str) -> Counter[str]:
    """How often each ID is in the topic."""
    return Counter(decode_row(message.value() or b"", SCHEMA)["id"] for message in read_all(bootstrap, topic))


def told_numbers(out: str, err: str) -> tuple[int, int]:
    """The number of events that an unfinished run says are written, and the N of its `--skip N`."""
    written, skip = re.match(r"([\d,]+) events written", out), re.search(r"again with --skip (\d+)\.", err)
    assert written is not None, out
    assert skip is not None, err
    return int(written[1].replace(",", "")), int(skip[1])


def test_interrupted_run_is_completed_with_the_skip_it_names(tmp_path: Path, kafka: Broker, topic: str) -> None:
    file, every = many_events(tmp_path, 5000)
    command = [COMMAND, "produce", str(tmp_path), str(file), "--rate", "500"]
    with subprocess.Popen(command, env=ENVIRON, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: stored(kafka.bootstrap, topic).total() >= 200, 60, "the first 200 events to be stored")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "interrupted; waiting for the broker to acknowledge what was sent" in err
    written, skip = told_numbers(out, err)
    found = stored(kafka.bootstrap, topic)
    assert found.total() == written
    assert skip <= written < len(every)
    assert found.keys() >= set(every[:skip])
    rest = millstream("produce", tmp_path, file, "--skip", str(skip))
    assert (rest.returncode, rest.stdout) == (0, f"{len(every) - skip:,} events written to {topic}\n")
    found = stored(kafka.bootstrap, topic)
    assert found.keys() == set(every)
    assert found.total() == len(every) + written - skip


@pytest.mark.full
@pytest.mark.durable
def test_run_that_lost_its_broker_is_completed_with_the_skip_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if (missing := missing_for_maven()) is not None:
        pytest.skip(f"no broker of its own: {missing}")
    monkeypatch.setattr("millstream.topics.records.DELIVERY_TIMEOUT", 3.0)
    monkeypatch.setattr("millstream.topics.answer_watch.QUIET_SECONDS", 0.5)
    file, every = many_events(tmp_path, 5000)
    with MavenKafka() as broker:

        def make_topic(partitions: int = 4, **config: str) -> str:
            create_topic(broker.bootstrap, name := f"t-{uuid.uuid4().hex}", partitions, config)
            return name

        topic = flights_pipeline(tmp_path, broker.bootstrap, make_topic)["departures"]

        def crash() -> None:
            wait_until(lambda: stored(broker.bootstrap, topic).total() >= 200, 60, "the first 200 events to be stored")
            broker.kill()

        crashing = Thread(target=crash)
        crashing.start()
        code = cli.run(["produce", str(tmp_path), str(file), "--rate", "500"])
        crashing.join()
        assert code == 1
        out, err = capsys.readouterr()
        assert err.startswith(f"Kafka at {broker.bootstrap} does not answer; waiting for up to 3 s, Ctrl-C ends")
        assert "did not store it within 3 s: is it still there?" in err
        written, skip = told_numbers(out, err)
        assert skip <= written < len(every)
        broker.start()
        found = stored(broker.bootstrap, topic)
        assert found.keys() >= set(every[:skip])
        assert found.total() >= written
        assert cli.run(["produce", str(tmp_path), str(file), "--skip", str(skip)]) == 0
        assert stored(broker.bootstrap, topic).keys() == set(every)


def test_broker_that_is_away_at_the_start_is_told_before_the_command_gives_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.topics.records.ANSWER_TIMEOUT", 2.0)
    monkeypatch.setattr("millstream.topics.answer_watch.QUIET_SECONDS", 0.1)
    service = python_service(
        tmp_path, NOWHERE, "return {'y': inputs['x']}", input={"format": "json"}, with_topics=False
    )
    (tmp_path / "events.jsonl").write_text('{"id": 1, "x": 1}\n')
    assert cli.run(["produce", str(service.file), str(tmp_path / "events.jsonl")]) == 1
    waiting, end = capsys.readouterr().err.splitlines()
    assert waiting.startswith("Kafka at 127.0.0.1:1 does not answer; waiting for up to 2 s, Ctrl-C ends (")
    assert "refused" in waiting
    assert end.startswith("no Kafka broker answers at 127.0.0.1:1 (")


@pytest.mark.durable  # the mock makes topics that are asked for
def test_advice_names_the_pipeline_file_of_the_command_line(tmp_path: Path, topic: str) -> None:
    text = (tmp_path / "pipeline.yaml").read_text()
    file = tmp_path / "my flights.yaml"
    file.write_text(text.replace(topic, f"{topic}-not-there"))
    done = millstream_here("produce", file, EVENTS)
    assert done.returncode == 1
    assert f"Create it: millstream topics create '{file}'\n" in done.stderr
