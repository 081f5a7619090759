"""`millstream dead-letters`, with workers that write the letters and answer what is replayed."""

import json
import os
import pty
import signal
import struct
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from benchmarks.load import VECTOR_SCHEMA, vector_events
from millstream.consumers.cli import main as cli
from tests.broker.choice import Broker
from tests.broker.clients import Headers, produce, read_all, wait_until
from tests.broker.raw_batch import send_batch
from tests.cli.command import COMMAND, ENVIRON, millstream, millstream_here
from tests.consumers.processes import Worker
from tests.consumers.python_service import python_service
from tests.consumers.service import Service, id_of, vector_service
from tests.schemas.letters import encoded
from tests.topics.letters import a_letter, write_letters

pytestmark = pytest.mark.durable  # transactions
UNKNOWN = 9  # a schema id that is added later


def with_schema(value: bytes, schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4) + value[5:]


def work(service: Service) -> None:
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0


def listed(service: Service, *options: str) -> list[dict[str, Any]]:
    done = millstream_here("dead-letters", "list", service.file, "--json", *options)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.full
def test_event_is_answered_once_after_its_schema_is_there_and_its_letter_replayed(
    kafka: Broker, tmp_path: Path
) -> None:
    service = vector_service(tmp_path, kafka)
    load = vector_events(10, seed=3)
    headers: Headers = [("traceparent", b"00-1"), ("odd", b"\xff")]
    later = [with_schema(value, UNKNOWN) for value in load.values[:4]]
    produce(
        kafka.bootstrap,
        service.inputs[0],
        [(key, value, headers) for key, value in zip(load.keys, later, strict=False)],
    )
    produce(kafka.bootstrap, service.inputs[0], list(zip(load.keys[4:], load.values[4:], strict=True)))
    produce(kafka.bootstrap, service.inputs[0], [(b"\x1b[31m" * 200, b"junk")])
    work(service)

    table = millstream_here("dead-letters", "list", service.file).stdout.splitlines()
    assert table[-1] == "5 dead letters: 4 unknown_schema, 1 undecodable"
    assert len(table) == 1 + 5 + 1
    letters = listed(service, "--reason", "unknown_schema")
    assert [letter["attempts"] for letter in letters] == [1] * 4
    shown = millstream_here("dead-letters", "show", service.file, letters[0]["position"]).stdout
    assert "not decoded: no schema has the id 9" in shown
    assert later[0][:16].hex(" ") in shown or any(value[:16].hex(" ") in shown for value in later)
    dry = millstream_here("dead-letters", "replay", service.file, "--reason", "unknown_schema", "--dry-run")
    assert dry.stdout.splitlines()[-1] == "4 would be replayed"
    long = millstream_here("dead-letters", "replay", service.file, "--reason", "undecodable", "--dry-run").stdout
    assert "key 1b5b33316d" in long
    assert len(long.splitlines()[0]) < len(b"\x1b[31m" * 200)

    (tmp_path / "schemas" / f"{UNKNOWN}-vector-event-later.avsc").write_text(json.dumps(VECTOR_SCHEMA))
    shown = millstream_here("dead-letters", "show", service.file, letters[0]["position"]).stdout
    assert '"id": "event-000000000' in shown
    assert 'header traceparent "00-1"' in shown
    done = millstream_here("dead-letters", "replay", service.file, "--reason", "unknown_schema", "--yes")
    assert (done.returncode, done.stdout, done.stderr) == (0, "4 replayed\n", "")
    again = millstream_here("dead-letters", "replay", service.file, "--reason", "unknown_schema", "--yes")
    none_left = "no dead letter that the options select is left to replay"
    assert (again.returncode, again.stdout) == (
        0,
        f"0 replayed\n{none_left}; `millstream dead-letters list --all` also lists those replayed\n",
    )
    one = millstream_here("dead-letters", "list", service.file)
    assert one.stdout.splitlines()[-1] == "1 dead letter: 1 undecodable"
    none = millstream_here("dead-letters", "list", service.file, "--reason", "unknown_schema")
    assert none.stdout == f"{none_left}; --all also lists those replayed\n"
    assert [letter["reason"] for letter in listed(service)] == ["undecodable"]
    assert Counter(letter["replayed_at"] is None for letter in listed(service, "--all")) == {False: 4, True: 1}

    work(service)
    assert sorted(map(id_of, service.predictions())) == [f"event-{number:010d}" for number in range(10)]
    records = read_all(kafka.bootstrap, service.inputs[0])
    places = {(record.partition(), record.value()): record for record in records}
    replayed = [record for record in records if dict(record.headers() or []).get("millstream.attempts") == b"1"]
    assert sorted(record.value() or b"" for record in replayed) == sorted(later)
    for record in replayed:
        first = places[record.partition(), record.value()]  # in the same partition
        assert record.key() == first.key()
        assert list(record.headers() or [])[:2] == [("traceparent", b"00-1"), ("odd", b"\xff")]


def test_event_that_fails_again_has_one_attempt_more(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    produce(kafka.bootstrap, service.inputs[0], [(b"k", b"junk", [("millstream.attempts", b"99999999999")])])
    work(service)
    for attempts in (1, 2):
        [letter] = listed(service)
        assert letter["attempts"] == attempts
        assert millstream_here("dead-letters", "replay", service.file).stdout == "1 replayed\n"
        work(service)
    headers = [record.headers() for record in read_all(kafka.bootstrap, service.inputs[0], 3)]
    assert [len(each or []) for each in headers] == [1, 2, 2]  # a later replay replaces what an earlier one said


@pytest.mark.full
def test_replay_that_is_killed_and_run_again_replays_each_once(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    count = 4000
    letters = [
        a_letter(pipeline=service.group, topic=service.inputs[0], partition=number % 4, value=b"%d" % number)
        for number in range(count)
    ]
    write_letters(kafka.bootstrap, service.letters, letters)
    with subprocess.Popen([COMMAND, "dead-letters", "replay", str(service.file), "--yes"], env=ENVIRON) as replay:
        try:
            # In the middle of a transaction: some are committed, and it goes on.
            wait_until(lambda: sum(service.input_ends().values()) > 500, 60, "the first events to be replayed")
        finally:
            replay.send_signal(signal.SIGKILL)
    assert replay.returncode == -signal.SIGKILL
    done = millstream("dead-letters", "replay", service.file, "--yes")
    assert done.returncode == 0
    assert 0 < int(done.stdout.split()[0].replace(",", "")) < count
    found = Counter(record.value() for record in read_all(kafka.bootstrap, service.inputs[0], count))
    assert found == {letter.value: 1 for letter in letters}
    assert listed(service) == []


def test_filters_list_what_they_say(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    noon = 1_772_366_400_000  # 2026-03-01T12:00Z
    write_letters(
        kafka.bootstrap,
        service.letters,
        [
            a_letter(offset=0, failed_at=noon - 2, key=b"\x1b[31m"),
            a_letter(offset=1, failed_at=noon - 1, reason="unfit", key=None, error="field `a.b` is absent or null"),
            a_letter(offset=2, failed_at=noon, partition=1),
            a_letter(offset=3, failed_at=noon + 1, partition=1, reason="unfit", error="long " * 100),
        ],
    )
    for options, offsets in (
        ([], [0, 1, 2, 3]),
        (["--reason", "unfit", "--reason", "undecodable", "--source-partition", "1"], [2, 3]),
        (["--since", "2026-03-01T12:00", "--limit", "1"], [2]),
        (["--until", "2026-03-01T12:00", "--topic", "in"], [0, 1]),
        (["--error", "Absent", "--error", "long long"], [1, 3]),
        (["--field", "a"], [1]),
    ):
        assert [letter["offset"] for letter in listed(service, *options)] == offsets, options
    table = millstream_here("dead-letters", "list", service.file, "--limit", "3").stdout
    assert "\x1b" not in table
    assert table.splitlines()[-2:] == ["... and 1 more", "4 dead letters: 2 undecodable, 2 unfit"]


def test_json_has_each_byte_of_a_key(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    keys = [b"text", None, struct.pack(">q", 3), struct.pack(">q", -3), "\x1b\u202e\U0001f642".encode()]
    write_letters(kafka.bootstrap, service.letters, [a_letter(offset=at, key=key) for at, key in enumerate(keys)])
    shown = [json.loads(millstream_here("dead-letters", "show", service.file, "0@3", "--json").stdout)]
    for found in (listed(service), shown):
        for one in found:
            key = bytes.fromhex(one["key_hex"]) if "key_hex" in one else one["key"] and one["key"].encode()
            assert key == keys[one["offset"]]
    table = millstream_here("dead-letters", "list", service.file).stdout
    assert "0000000000000003" in table


def test_table_in_a_pipe_has_whole_errors_in_one_line_each(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    error = f"{'the reason, ' * 40}and at its end what to do: `millstream docs models`"
    write_letters(kafka.bootstrap, service.letters, [a_letter(error=error), a_letter(error="x" * 5000)])
    heading, *rows, _summary = millstream("dead-letters", "list", service.file).stdout.splitlines()
    assert heading.startswith("position ")
    first, second = sorted(rows, key=len)
    assert first.endswith(f"  {error}")
    assert second.endswith("x...")
    assert len(second) < 2000


def test_long_key_does_not_push_the_errors_out_of_sight(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    keys = ("k" * 9000, "é" * 4000, "k" * 36)
    letters = [a_letter(key=key.encode(), error="the reason") for key in keys]
    write_letters(kafka.bootstrap, service.letters, letters)
    heading, *rows, _summary = millstream_here("dead-letters", "list", service.file).stdout.splitlines()
    assert len(rows) == 3
    assert {row.index("the reason") for row in rows} == {heading.index("error")}
    assert heading.index("attempts") - heading.index("key") <= 62
    assert any(f" {keys[2]} " in row for row in rows)


def test_letter_at_a_position_is_replayed_alone_and_once(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    letters = [a_letter(pipeline=service.group, topic=service.inputs[0], value=b"%d" % number) for number in range(3)]
    write_letters(kafka.bootstrap, service.letters, letters)
    second = sorted(letter["position"] for letter in listed(service))[1]
    assert [letter["position"] for letter in listed(service, "--position", second)] == [second]
    done = millstream_here("dead-letters", "replay", service.file, "--position", second)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 replayed\n", "")
    assert [message.value() for message in read_all(kafka.bootstrap, service.inputs[0], 1)] == [b"1"]
    again = millstream_here("dead-letters", "replay", service.file, "--position", second)
    assert (again.returncode, again.stdout) == (1, "0 replayed, 1 could not be\n")
    assert again.stderr == f"{second}: no dead letter is there, or it was replayed already\n"
    assert len(listed(service)) == 2


def test_partition_that_cannot_be_read_concerns_only_its_own_positions(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.topics.dead_letter_reader.IDLE_TIMEOUT", 0.5)
    service = vector_service(tmp_path, kafka)
    worker = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{service.letters}-worker"})
    worker.init_transactions(30)
    worker.begin_transaction()
    worker.produce(service.letters, encoded(a_letter()), partition=0)  # open: nobody can read past it
    assert worker.flush(30) == 0
    write_letters(kafka.bootstrap, service.letters, [a_letter()], partition=1)
    command = ["dead-letters", "list", str(service.file), "--json"]
    assert cli.run([*command, "--position", "1@0"]) == 0
    assert capsys.readouterr().err == ""
    assert cli.run([*command, "--position", "0@0"]) == 1
    said = capsys.readouterr().err
    assert "transaction" in said
    assert "no dead letter is there" not in said
    worker.abort_transaction(30)


@pytest.mark.parametrize(("answer", "code", "replayed"), [("n", 1, 0), ("", 1, 0), ("y", 0, 2)])
def test_replay_at_a_terminal_asks_first(kafka: Broker, tmp_path: Path, answer: str, code: int, replayed: int) -> None:
    service = vector_service(tmp_path, kafka)
    letters = [a_letter(pipeline=service.group, topic=service.inputs[0], value=b"%d" % number) for number in range(3)]
    write_letters(kafka.bootstrap, service.letters, letters)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [COMMAND, "dead-letters", "replay", str(service.file), "--limit", "2"]
    done = subprocess.run(command, stdin=theirs, capture_output=True, env=ENVIRON, timeout=60, check=False)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == code
    assert f"Write 2 events to {service.inputs[0]} again? [y/N]" in done.stdout.decode()
    assert len(read_all(kafka.bootstrap, service.inputs[0], replayed)) == replayed


def test_letter_that_can_not_be_replayed_is_told_and_the_others_are(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    ours = {"pipeline": service.group, "topic": service.inputs[0]}
    write_letters(
        kafka.bootstrap, service.letters, [a_letter(**ours, value=None), a_letter(topic="x"), a_letter(**ours)]
    )
    produce(kafka.bootstrap, service.letters, [(None, b"junk")], partition=1)
    done = millstream_here("dead-letters", "replay", service.file)
    assert (done.returncode, done.stdout) == (1, "1 replayed, 2 could not be\n")
    first, second, third = done.stderr.splitlines()
    assert first == f"0@0 stays: its value was left out, and the event is gone from {service.inputs[0]}/0@0."
    assert second == "0@1 stays: it is pipeline p's."
    assert third.startswith("1@0: no dead letter")
    assert "left out" in millstream_here("dead-letters", "show", service.file, "0@0").stdout


def test_letter_whose_event_does_not_pass_the_filter_stays(kafka: Broker, tmp_path: Path) -> None:
    options = {"format": "json", "event_id": "id", "filter": "kind == order"}
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input=options)
    values = [b'{"kind": "order", "id": "a", "x": 1}', b'{"kind": "view", "id": "b"}', b"{"]
    ours = {"pipeline": service.group, "topic": service.inputs[0]}
    write_letters(kafka.bootstrap, service.letters, [a_letter(**ours, value=value) for value in values])
    for options_, count in ((["--dry-run"], "2 would be replayed, 1 could not be"), ([], "2 replayed, 1 could not be")):
        done = millstream_here("dead-letters", "replay", service.file, *options_)
        assert (done.returncode, done.stdout.splitlines()[-1]) == (1, count)
        [said] = done.stderr.splitlines()
        assert said == "0@1 stays: its event doesn't pass input.filter (`kind == order`), so workers would skip it."
    assert [message.value() for message in read_all(kafka.bootstrap, service.inputs[0], 2)] == [values[0], values[2]]
    assert [letter["position"] for letter in listed(service)] == ["0@1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "x.yaml", "3"], "expected partition@offset, such as 3@17, found '3'"),
        (["list", "x.yaml", "--since", "yesterday"], "expected a time such as 2026-03-01T12:00 (UTC)"),
        (["replay", "x.yaml", "--reason", "unfitt"], "internal_error, expired; found 'unfitt'. Did you mean unfit?"),
        (
            ["list", "x.yaml", "--reason", "nosuch"],
            "expected one of undecodable, unknown_schema, schema_incompatible, unfit",
        ),
        ([], "ACTION"),
    ],
)
def test_wrong_use_is_told(arguments: list[str], message: str) -> None:
    done = millstream("dead-letters", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


ESCAPE = "\x1b[2J\x9b31m\u202e"


@pytest.mark.full
def test_forged_letters_act_on_no_terminal_and_are_written_to_no_other_topic(kafka: Broker, tmp_path: Path) -> None:
    pytest.importorskip("aiokafka", reason="the comparison job's packages: make .venv/.comparison")
    service = vector_service(tmp_path, kafka)
    ours = {"pipeline": service.group, "topic": service.inputs[0]}
    far = {"offset": 2**62, "timestamp": 2**62, "failed_at": -(2**62), "attempts": -5}
    letters = [
        a_letter(**ours, **far, reason=ESCAPE, error=ESCAPE * 1000, headers=((ESCAPE, b"\xff"),)),
        a_letter(**ours, partition=-1, key=ESCAPE.encode()),
        a_letter(**ours, **far, value=None),
        a_letter(pipeline=service.group, topic=service.letters),
        a_letter(pipeline=ESCAPE, topic=ESCAPE),
    ]
    write_letters(kafka.bootstrap, service.letters, letters)
    send_batch(kafka.bootstrap, service.letters, [encoded(a_letter(**ours)), b"\0" + b"\xff" * 9], name=b"\xff")

    listed = millstream_here("dead-letters", "list", service.file, "--all")
    shown = [millstream_here("dead-letters", "show", service.file, f"0@{offset}") for offset in range(7)]
    replayed = millstream_here("dead-letters", "replay", service.file, "--yes")
    for done in (listed, millstream_here("dead-letters", "list", service.file, "--all", "--json"), *shown, replayed):
        assert (done.stdout + done.stderr).replace("\n", "").isprintable()
        assert "Traceback" not in done.stderr, done.stderr
    assert [done.returncode for done in shown] == [0] * 6 + [1]
    assert listed.stdout.splitlines()[-1].startswith("6 dead letters: 5 undecodable, 1 ")
    assert replayed.stdout == "2 replayed, 4 could not be\n"
    first, second = read_all(kafka.bootstrap, service.inputs[0], 2)
    assert [first.partition(), second.partition()] == [0, 0]
    left = read_all(kafka.bootstrap, service.letters, 9)
    assert len([record for record in left if record.value() is not None]) == 7


def test_letter_of_a_value_of_another_type_names_the_option_that_takes_it(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id"})
    error = "x: expected a number that fits into a double, found text"
    write_letters(kafka.bootstrap, service.letters, [a_letter(error=error)])
    shown = millstream_here("dead-letters", "show", service.file, "0@0").stdout
    assert "\nadvice       x: `type: any` beside the field takes numbers, true and false, also as text" in shown


def test_letter_of_an_event_whose_schema_differs_says_where_the_changes_of_schemas_are(
    kafka: Broker, tmp_path: Path
) -> None:
    service = vector_service(tmp_path, kafka)
    error = "a record of schema 7 can't be read with schema 8: field 'x': it is written as long, and the reader schema wants int"
    write_letters(kafka.bootstrap, service.letters, [a_letter(error=error, reason="schema_incompatible")])
    shown = millstream_here("dead-letters", "show", service.file, "0@0").stdout
    assert "\nadvice       The producer writes with a schema that the workers' schema can't read" in shown
    assert "`millstream docs registry#when-schemas-change`" in shown


def test_letter_shows_keys_that_are_there_twice(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id"})
    value = b'{"id": "a", "claim": {"x": 1, "y": 2}, "claim": {"id": "b"}, "list": [{"x": 1, "x": 2}]}'
    write_letters(kafka.bootstrap, service.letters, [a_letter(value=value)])
    shown = millstream_here("dead-letters", "show", service.file, "0@0").stdout
    assert "\nkeys twice   x, claim: the last one counts, and is shown\n" in shown


def test_large_value_that_is_not_decoded_is_shown_in_part(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id"})
    value = b"<" * 200_000
    write_letters(kafka.bootstrap, service.letters, [a_letter(value=value)])
    shown = millstream_here("dead-letters", "show", service.file, "0@0").stdout
    assert len(shown.splitlines()) < 100
    assert shown.endswith("... 198,976 more bytes: --json writes all of them\n")
    (as_json,) = millstream_here("dead-letters", "show", service.file, "0@0", "--json").stdout.splitlines()
    assert json.loads(as_json)["value_hex"] == value.hex()


def test_letters_of_other_scripts_are_shown_as_they_are(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id"})
    value = '{"id": "a", "city": "Z\u00fcrich \u6771\u4eac \u202e"}'.encode()
    letter = a_letter(key="K\u00f6ln".encode(), value=value, headers=[("from", "\u6771".encode())])
    write_letters(kafka.bootstrap, service.letters, [letter])
    shown = millstream_here("dead-letters", "show", service.file, "0@0").stdout
    assert '"city": "Z\u00fcrich \u6771\u4eac \\u202e"' in shown
    assert '"K\u00f6ln"' in shown
    assert '"\u6771"' in shown


def test_letter_of_an_included_field_that_the_model_reads_gets_the_advice_of_predict(
    kafka: Broker, tmp_path: Path
) -> None:
    output = {"format": "json", "include": {"x": "number"}}
    options = {"format": "json", "event_id": "id"}
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input=options, output=output)
    error = "x: expected a number that fits into a double, found text"
    write_letters(kafka.bootstrap, service.letters, [a_letter(error=error)])
    events = tmp_path / "events.jsonl"
    events.write_text('{"id": "a", "x": "33"}\n')
    predicted = millstream_here("predict", service.file, events).stderr
    [advice] = [line for line in predicted.splitlines() if "in both places" in line]
    shown = millstream_here("dead-letters", "show", service.file, "0@0").stdout
    assert advice.removeprefix("undecodable: ") in shown
    (tmp_path / "models" / "number" / "1" / "config.yaml").unlink()
    without = millstream_here("dead-letters", "show", service.file, "0@0")
    assert without.returncode == 0
    assert "x: under `output.include`, `x: any` takes texts, numbers, and true and false" in without.stdout
    assert "If the model reads the field, too, write `type` beside it in the mapping: `any` in both" in without.stdout


def test_letter_of_a_list_in_a_list_names_the_paths_that_lead_into_it(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id"})
    errors = ["x[0]: expected text, found an array", "x[: expected text, found an array"]  # the second one is forged
    write_letters(kafka.bootstrap, service.letters, [a_letter(error=error) for error in errors])
    shown = [millstream_here("dead-letters", "show", service.file, f"0@{offset}") for offset in (0, 1)]
    assert "\nadvice       x[0]: `x[0][0]` leads to the first item of the list, and `x[0][]` to all" in shown[0].stdout
    assert [done.returncode for done in shown] == [0, 0]


def test_letter_of_an_event_that_lacks_a_field_names_those_that_it_has(kafka: Broker, tmp_path: Path) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id"})
    error = "field `price.amount` is absent or null, but tensor `x` needs a value"
    letter = a_letter(reason="unfit", error=error, value=b'{"price": {"total": 1}}')
    write_letters(kafka.bootstrap, service.letters, [letter])
    shown = millstream_here("dead-letters", "show", service.file, "0@0").stdout
    assert (
        "\nadvice       price.amount: `price` has no `amount`. It has the fields total. If the field was renamed"
        in shown
    )


@pytest.mark.parametrize("found", ["absent or null", "null"])  # the second one is of older versions
def test_letter_of_an_event_whose_item_lacks_a_field_names_those_that_it_has(
    kafka: Broker, tmp_path: Path, found: str
) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id"})
    error = f"field `parts[].sec`[1] is {found}, but tensor `x` needs a value"
    letter = a_letter(reason="unfit", error=error, value=b'{"parts": [{"sec": 1}, {"seconds": 1}]}')
    write_letters(kafka.bootstrap, service.letters, [letter])
    assert (
        "\nadvice       parts[].sec: `parts[]` has no `sec`. It has the fields seconds."
        in millstream_here("dead-letters", "show", service.file, "0@0").stdout
    )


def test_letter_of_an_event_without_its_id_names_the_fields_that_it_has(kafka: Broker, tmp_path: Path) -> None:
    options = {"format": "json", "event_id": "ride.uuid"}
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input=options)
    error = "field `ride.uuid`, the event id, is absent or null"
    values = b'{"ride": {"uid": "a"}, "x": 1}', b'{"ride": {"uuid": null}, "x": 1}'
    letters = [a_letter(reason="unfit", error=error, value=value) for value in values]
    write_letters(kafka.bootstrap, service.letters, letters)
    assert (
        "\nadvice       ride.uuid: `ride` has no `uuid`. It has the fields uid. Did you mean `uid`? If the field was renamed, "
        "write its new name as `input.event_id` in the pipeline file (`millstream docs models#a-field-that-is-renamed`).\n"
    ) in millstream_here("dead-letters", "show", service.file, "0@0").stdout
    assert "advice" not in millstream_here("dead-letters", "show", service.file, "0@1").stdout


def test_reasons_written_by_hand_fill_no_screen(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    write_letters(kafka.bootstrap, service.letters, [a_letter(reason=f"{n}-" + "x" * 5000) for n in range(200)])
    text = millstream_here("dead-letters", "list", service.file, "--limit", "1").stdout
    assert "\n200 dead letters: 150 of other reasons, " in text
    assert len(text) < 20_000


def test_letter_with_many_headers_shows_the_first_and_their_number(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    write_letters(kafka.bootstrap, service.letters, [a_letter(headers=tuple((f"h{n}", b"v") for n in range(3000)))])
    shown = millstream_here("dead-letters", "show", service.file, "0@0").stdout
    assert 'header h19   "v"\nheaders      2980 more\n' in shown
    assert "header h20" not in shown


def test_shown_event_with_half_a_character_is_hex_for_programs(kafka: Broker, tmp_path: Path) -> None:
    """jq ends at such an escape, and the letters after it would be lost."""
    service = python_service(tmp_path, kafka, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id"})
    value = rb'{"id": "a", "note": "\ud800"}'
    ours: dict[str, Any] = {"pipeline": service.group, "topic": service.inputs[0], "reason": "unfit"}
    write_letters(kafka.bootstrap, service.letters, [a_letter(**ours, value=value)])
    done = millstream_here("dead-letters", "show", service.file, "0@0", "--json")
    found = json.loads(done.stdout)
    assert "value" not in found
    assert bytes.fromhex(found["value_hex"]) == value
    assert found["not_decoded"] == "the event has half of a character (a lone surrogate)"


def test_option_values_without_json_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["dead-letters", "list", "pipeline.yaml", "--values"])
    assert ended.value.code == 2
    assert "Add --json, or leave --values out." in capsys.readouterr().err


def test_shown_letter_is_one_json_object_for_programs(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    value = vector_events(1, seed=1).values[0]
    ours: dict[str, Any] = {"pipeline": service.group, "topic": service.inputs[0], "reason": "unfit", "key": b"k"}
    letters = [a_letter(**ours, value=value), a_letter(**ours, value=b"junk"), a_letter(**ours, value=None)]
    write_letters(kafka.bootstrap, service.letters, letters)
    found = []
    for offset in range(3):
        done = millstream_here("dead-letters", "show", service.file, f"0@{offset}", "--json")
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
        found.append(json.loads(done.stdout))
    decoded, junk, empty = found
    assert {one["position"]: (one["reason"], one["pipeline"], one["key"]) for one in found} == {
        f"0@{offset}": ("unfit", service.group, "k") for offset in range(3)
    }
    assert decoded["value"]["id"] == "event-0000000000"
    assert "value_hex" not in decoded
    assert bytes.fromhex(junk["value_hex"]) == b"junk"
    assert junk["not_decoded"]
    assert "value" not in junk
    assert empty.get("value") is None
    assert "value_hex" not in empty
    listed = millstream_here("dead-letters", "list", service.file, "--json", "--values")
    assert (listed.returncode, [json.loads(line) for line in listed.stdout.splitlines()]) == (0, found)
    missing = millstream_here("dead-letters", "show", service.file, "0@9", "--json")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "no dead letter at 0@9" in missing.stderr
