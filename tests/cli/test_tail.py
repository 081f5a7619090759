import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from millstream.consumers.cli.tail import as_json
from millstream.consumers.demo.example import example_folder
from millstream.schemas.dead_letters import DeadLetter, DeadLetterEncoder
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.records import OWN_SCHEMAS_FOLDER, PREDICTION, ROLLOUT_DEAD_LETTER
from millstream.schemas.rollout_choices import RolloutChoice
from millstream.schemas.rows import encode_row
from millstream.topics.records import ReadRecord
from tests.broker.choice import Broker
from tests.broker.clients import produce
from tests.broker.raw_batch import send_batch
from tests.cli.command import COMMAND, ENVIRON, flights_pipeline, millstream, millstream_here
from tests.conftest import MakeTopic
from tests.schemas.letters import encoded

STORE = DirectoryStore(OWN_SCHEMAS_FOLDER, example_folder() / "schemas")
ROW = json.loads((example_folder() / "events.jsonl").read_text().splitlines()[0])
EVENT = encode_row(STORE.by_id(1).definition, 1, ROW)


def shown(value: bytes | None, **fields: Any) -> dict[str, Any]:
    record = {"topic": "t", "partition": 1, "offset": 2, "timestamp": 1378026480000, "key": None, "headers": ()}
    row = as_json(ReadRecord(**{**record, **fields, "value": value}), STORE)
    json.dumps(row, allow_nan=False)  # it is JSON, and not only what Python takes for it
    return row


def letter(value: bytes | None) -> bytes:
    bare = DeadLetter(
        reason="undecodable",
        error="bad",
        pipeline="p",
        topic="in",
        partition=3,
        offset=4,
        timestamp=5,
        failed_at=6,
        key=b"k",
        value=value,
    )
    return encoded(bare)


def test_avro_event_is_shown_by_the_schema_its_id_names() -> None:
    row = shown(EVENT, key=b"N57869", headers=(("a", b"1"), ("a", b"\xff"), ("b", None)))
    assert row["value"] == {**ROW, "departed_at": "2013-09-01T09:08:00Z"}
    assert row | {"value": 0} == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": "2013-09-01T09:08:00.000Z",
        "key": "N57869",
        "headers": [["a", "1"], ["a", {"base64": "/w=="}], ["b", None]],
        "value": 0,
    }


def test_letter_of_a_pipeline_with_a_rollout_is_shown_with_its_event_and_its_model() -> None:
    choice = RolloutChoice("r1", 3, "canary", 0.5, True, 1.25)
    own = DeadLetter("model_rejected", "bad", "p", "in", 3, 4, 5, 6, key=b"k", value=EVENT)
    named = own._replace(model="m", version=2, variant="canary", rollout=choice)
    value = encoded(named, DeadLetterEncoder(ROLLOUT_DEAD_LETTER.reserved_id, rollout=True))
    row = shown(value)["value"]
    assert (row["model"], row["version"], row["variant"], row["rollout"]) == ("m", 2, "canary", choice._asdict())
    assert row["value"]["id"] == ROW["id"]


def test_json_value_and_tombstone_are_shown_as_they_are() -> None:
    assert shown(b'{"a": [1, NaN]}')["value"] == {"a": [1, "NaN"]}
    assert shown(b'{"a": [1e999, -1e999, 1e308]}')["value"] == {"a": ["1e999", "-1e999", 1e308]}
    assert shown(None)["value"] is None


def test_time_far_away_is_exact() -> None:
    assert shown(b"{}", timestamp=253402300799999)["timestamp"] == "9999-12-31T23:59:59.999Z"


def test_empty_value_has_no_advice_on_another_format() -> None:
    assert shown(b"")["error"] == "neither a JSON object nor Avro in the wire format: it is empty"


def test_time_is_a_number_in_json_and_iso_8601_in_avro() -> None:
    moment = 1378012500000  # the prediction of docs/wire-format.md
    page = (Path(__file__).parents[2] / "docs" / "wire-format.md").read_text()
    [prediction] = re.findall(rf'^{{"event_id":"e1","event_time":{moment},.*$', page, re.MULTILINE)
    assert shown(prediction.encode())["value"]["event_time"] == moment
    in_avro = encode_row(PREDICTION.definition, PREDICTION.reserved_id, json.loads(prediction))
    assert f'"event_time": {json.dumps(shown(in_avro)["value"]["event_time"])}' in page


@pytest.mark.parametrize(
    "value",
    [b"", b"text", b"{", b'{"a": "\xff"}', b"[" * 100_000, b"\0\0\0\0\x09body", EVENT[:-1], EVENT + b"\0", b"\0\0"],
)
def test_undecodable_value_is_base64_with_an_error(value: bytes) -> None:
    row = shown(value)
    assert list(row["value"]) == ["base64"]
    assert row["error"]


def test_dead_letter_shows_the_event_inside_it() -> None:
    row = shown(letter(EVENT))
    assert row["value"]["reason"] == "undecodable"
    assert row["value"]["value"]["id"] == ROW["id"]
    assert "error" not in row
    assert shown(letter(None))["value"]["value"] is None


def test_dead_letter_shows_bytes_of_an_event_that_nobody_can_read() -> None:
    row = shown(letter(EVENT[:-1]))
    assert list(row["value"]["value"]) == ["base64"]
    assert row["value"]["error"] == "bad"
    assert "is no record of schema" in row["value"]["value_error"]


def test_timestamp_of_no_calendar_is_shown_as_the_number() -> None:
    assert shown(None, timestamp=2**62)["timestamp"] == 2**62
    assert shown(None, timestamp=-1)["timestamp"] is None


def test_from_beginning_prints_what_is_there(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> None:
    topics = flights_pipeline(tmp_path, kafka.bootstrap, make_topic)
    produce(kafka.bootstrap, topics["departures"], [(b"a", EVENT), (b"b", b"junk"), (None, None), (b"d", b'"\\ud800')])
    done = millstream("tail", tmp_path, "--topic", "input", "--from-beginning", "--limit", "4", "--timeout", "20")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert {row["key"] for row in rows} == {"a", "b", None, "d"}
    assert sum("error" in row for row in rows) == 2
    few = millstream_here("tail", tmp_path, "--topic", topics["departures"], "--from-beginning", "--limit", "2")
    assert few.stderr == f"reading {topics['departures']}; ends after 2 records; Ctrl-C ends\n"
    assert len(few.stdout.splitlines()) == 2


def test_timeout_ends_a_quiet_topic(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> None:
    topics = flights_pipeline(tmp_path, kafka.bootstrap, make_topic)
    done = millstream_here("tail", tmp_path, "--from-beginning", "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"reading {topics['predictions']}; ends after 0.5 s without a record; Ctrl-C ends\n" in done.stderr
    assert f"{topics['predictions']} has no records yet\n" in done.stderr


def test_empty_topic_is_waited_for_with_a_word_about_the_timeout(
    tmp_path: Path, kafka: Broker, make_topic: MakeTopic
) -> None:
    topics = flights_pipeline(tmp_path, kafka.bootstrap, make_topic)
    tail = subprocess.Popen([COMMAND, "tail", str(tmp_path), "--limit", "2"], stderr=subprocess.PIPE, env=ENVIRON)
    assert tail.stderr is not None
    with tail:
        try:
            assert b"ends after 2 records; Ctrl-C ends" in tail.stderr.readline()
            said = tail.stderr.readline().decode()
            assert said == f"{topics['predictions']} has no records yet: `--timeout 10` ends after 10 s without one\n"
        finally:
            tail.kill()


def test_follows_what_comes_after_its_start_until_interrupted(
    tmp_path: Path, kafka: Broker, make_topic: MakeTopic
) -> None:
    topics = flights_pipeline(tmp_path, kafka.bootstrap, make_topic)
    produce(kafka.bootstrap, topics["departures"], [(b"before", EVENT)])
    tail = subprocess.Popen(
        [COMMAND, "tail", str(tmp_path), "--topic", "input"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRON,
    )
    assert tail.stdout is not None and tail.stderr is not None
    with tail:
        try:
            assert b"Ctrl-C ends" in tail.stderr.readline()
            produce(kafka.bootstrap, topics["departures"], [(b"after", EVENT)])
            assert json.loads(tail.stdout.readline())["key"] == "after"
            tail.send_signal(signal.SIGINT)
            assert tail.wait(20) == 0
            assert tail.stdout.read() == b""
            earlier = f"{topics['departures']} has up to 1 earlier record: --from-beginning prints them\n"
            assert tail.stderr.read().decode() == earlier
        finally:
            tail.kill()


@pytest.mark.durable  # the mock makes topics that are asked for
def test_missing_topic_of_the_pipeline_can_be_created(tmp_path: Path, kafka: Broker, make_topic: MakeTopic) -> None:
    topics = flights_pipeline(tmp_path, kafka.bootstrap, make_topic)
    file = tmp_path / "pipeline.yaml"
    file.write_text(file.read_text().replace(topics["predictions"], f"{topics['predictions']}-not-there"))
    done = millstream_here("tail", tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "millstream topics create" in done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "predictoins",
            "there is no such topic on .*\\. Did you mean predictions\\? Choose one of pipeline.yaml: predictions, ",
        ),
        ("labels", "pipeline.yaml has no `labels`, so this pipeline has no such topic"),
        ("evaluations", "pipeline.yaml has no `shadows`, so this pipeline has no such topic"),
    ],
)
def test_topic_that_the_pipeline_has_not_is_one_clear_message(
    tmp_path: Path, kafka: Broker, make_topic: MakeTopic, name: str, said: str
) -> None:
    flights_pipeline(tmp_path, kafka.bootstrap, make_topic)
    done = millstream_here("tail", tmp_path, "--topic", name)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(said, done.stderr)
    assert "topics create" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("options", [[], ["--json"]], ids=str)
def test_terminal_shows_a_table_unless_json_is_wanted(
    tmp_path: Path, kafka: Broker, make_topic: MakeTopic, options: list[str]
) -> None:
    topics = flights_pipeline(tmp_path, kafka.bootstrap, make_topic)
    produce(kafka.bootstrap, topics["departures"], [(b"a", EVENT)])
    ours, theirs = pty.openpty()
    command = [COMMAND, "tail", str(tmp_path), "--topic", "input", "--from-beginning", "--limit", "1", *options]
    done = subprocess.run(command, stdout=theirs, env=ENVIRON, timeout=60, check=False)
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == 0
    if options:
        assert json.loads(shown)["key"] == "a"
    else:
        heading, _, _, value = shown.splitlines()  # a new terminal has 80 columns
        assert "time (UTC)" in heading
        assert f"id={ROW['id']}" in value


@pytest.mark.parametrize("depth", range(900, 1000, 3))
def test_json_as_deep_as_python_reads_is_shown_or_base64(depth: int) -> None:
    shown(b'{"a":' * depth + b"1" + b"}" * depth)
    shown(letter(b"[" * depth + b"]" * depth))


def test_number_longer_than_python_converts_is_base64_with_an_error() -> None:
    assert "looks like JSON" in shown(b"[" + b"9" * 5000 + b"]")["error"]


@pytest.mark.parametrize(
    ("value", "place"),
    [(b'{"a":}', "line 1 column 6"), (b"[1],[2]", "Extra data: line 1 column 4"), (b'{"a": 1\n x}', "line 2 column 2")],
)
def test_error_in_json_names_its_place_in_the_value(value: bytes, place: str) -> None:
    assert place in shown(value)["error"]


def test_headers_that_can_not_be_read_are_told() -> None:
    assert shown(None, headers=None)["headers_error"].startswith("a header's name is not UTF-8")


@pytest.mark.durable
def test_hostile_records_are_printed_and_act_on_no_terminal(
    tmp_path: Path, kafka: Broker, make_topic: MakeTopic
) -> None:
    pytest.importorskip("aiokafka", reason="the comparison job's packages: make .venv/.comparison")
    topic = flights_pipeline(tmp_path, kafka.bootstrap, make_topic)["departures"]
    send_batch(kafka.bootstrap, topic, [b"first"], name=b"\xff\xfe")
    send_batch(kafka.bootstrap, topic, ['{"a": "\x9b2J\u202e\x7f"}'.encode()])
    send_batch(kafka.bootstrap, topic, [None], key="\x9b31m".encode(), name=b"\x1b[31m", timestamp=-1)
    done = millstream_here("tail", tmp_path, "--topic", "input", "--from-beginning", "--limit", "3", "--timeout", "20")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert [line.isprintable() for line in done.stdout.splitlines()] == [True] * 3
    first, second, third = map(json.loads, done.stdout.splitlines())
    assert "not UTF-8" in first["headers_error"]
    assert second["value"] == {"a": "\x9b2J\u202e\x7f"}
    assert third["headers"] == [["\x1b[31m", "v"]]
