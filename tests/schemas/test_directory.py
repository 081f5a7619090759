import json
import os
import re
from pathlib import Path

import pytest

from millstream.schemas.directory import DirectoryStore
from millstream.schemas.errors import BadSchemaError, SchemaUnavailable, UnknownSchema
from millstream.schemas.records import OWN_SCHEMAS_FOLDER, PREDICTION

FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "id", "type": "string"}]}
NEWER = {"type": "record", "name": "Flight", "fields": [{"name": "id", "type": "string"}, {"name": "x", "type": "int"}]}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def put(folder: Path, name: str, definition: object) -> Path:
    path = folder / name
    path.write_text(definition if isinstance(definition, str) else json.dumps(definition), encoding="utf-8")
    return path


def test_schemas_are_found_by_id_and_by_name(tmp_path: Path) -> None:
    put(tmp_path, "1-flight.avsc", FLIGHT)
    put(tmp_path, "12-flight.avsc", NEWER)
    store = DirectoryStore(tmp_path)
    assert store.by_id(1).definition == FLIGHT
    assert store.by_id(1).name == "flight"
    assert store.by_name("flight").id == 12
    assert (store.ids_of("flight"), store.ids_of("other")) == ([1, 12], [])


def test_own_schemas_are_found_beside_the_users(tmp_path: Path) -> None:
    store = DirectoryStore(OWN_SCHEMAS_FOLDER, tmp_path)
    assert store.by_id(PREDICTION.reserved_id).definition == PREDICTION.definition
    assert store.register(PREDICTION.name, PREDICTION.definition) == PREDICTION.reserved_id


def test_schema_that_no_file_holds_is_not_registered_but_asked_for(tmp_path: Path) -> None:
    put(tmp_path, "3-flight.avsc", FLIGHT)
    with pytest.raises(UnknownSchema, match=re.escape("write it to 4-flight.avsc there")):
        DirectoryStore(tmp_path).register("flight", NEWER)


def test_messages_list_no_schemas_of_millstream(tmp_path: Path) -> None:
    put(tmp_path, "1-flight.avsc", FLIGHT)
    store = DirectoryStore(OWN_SCHEMAS_FOLDER, tmp_path)
    with pytest.raises(UnknownSchema) as raised:
        store.by_id(7)
    assert str(raised.value).endswith("7-<name>.avsc (there: 1-flight)")


def test_unknown_id_and_name_say_what_is_there(tmp_path: Path) -> None:
    put(tmp_path, "1-flight.avsc", FLIGHT)
    store = DirectoryStore(tmp_path)
    with pytest.raises(UnknownSchema, match=r"id 7 .*7-<name>\.avsc \(there: 1-flight"):
        store.by_id(7)
    with pytest.raises(UnknownSchema, match=r"named 'train' .*there: .*1-flight"):
        store.by_name("train")


def test_files_that_come_while_running_are_found_at_once(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, clock=Clock())
    for number in (7, 8):
        with pytest.raises(UnknownSchema):
            store.by_id(number)
        at = (tmp_path.stat().st_mtime_ns + 4_000_000,) * 2  # no coarser than the file system's clock
        put(tmp_path, f"{number}-flight.avsc", FLIGHT)
        os.utime(tmp_path, ns=at)
        assert store.by_id(number).name == "flight"


def test_folder_that_looks_unchanged_is_read_again_after_a_second(tmp_path: Path) -> None:
    clock = Clock()
    store = DirectoryStore(tmp_path, clock=clock)
    before = tmp_path.stat()
    put(tmp_path, "7-flight.avsc", FLIGHT)
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    clock.now += 0.5
    with pytest.raises(UnknownSchema):
        store.by_id(7)
    clock.now += 0.5
    assert store.by_id(7).name == "flight"


def test_broken_file_that_comes_while_running_makes_records_wait(tmp_path: Path) -> None:
    clock = Clock()
    put(tmp_path, "1-flight.avsc", FLIGHT)
    store = DirectoryStore(tmp_path, clock=clock)
    put(tmp_path, "7-flight.avsc", "{")
    clock.now += 1
    for _ in range(2):  # also between two looks at the folder
        with pytest.raises(SchemaUnavailable, match=r"7-flight\.avsc:1: expected JSON"):
            store.by_id(7)
        clock.now += 0.1
    assert store.by_id(1).definition == FLIGHT
    put(tmp_path, "7-flight.avsc", NEWER)
    clock.now += 1
    assert store.by_id(7).definition == NEWER


@pytest.mark.parametrize("schema_id", [0, 2**31, 2**32 - 1])
def test_id_that_no_schema_can_have_is_the_producers_fault(tmp_path: Path, schema_id: int) -> None:
    """To put a file of that name there would stop the next worker at its start."""
    put(tmp_path, "1-flight.avsc", FLIGHT)
    with pytest.raises(UnknownSchema, match="The producer writes wrong bytes") as raised:
        DirectoryStore(tmp_path).by_id(schema_id)
    assert ".avsc" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("flight.avsc", FLIGHT, "expected a file name <id>-<name>.avsc"),
        ("0-flight.avsc", FLIGHT, "expected a file name <id>-<name>.avsc"),
        ("2147483648-flight.avsc", FLIGHT, "with an id from 1 to 2147483647"),
        ("1-flight.avsc", '{\n "type": record}', "1-flight.avsc:2: expected JSON"),
        (
            "1-flight.avsc",
            "version https://git-lfs.github.com/spec/v1\n",
            "expected an Avro schema, found a pointer of Git LFS",
        ),
        ("1-flight.avsc", {"type": "record", "fields": []}, "expected an Avro schema: "),
        ("1-flight.avsc", {"type": "recrod", "name": "R", "fields": []}, "expected an Avro schema: "),
        ("1-flight.avsc", 5, "expected an Avro schema: "),
        ("1-flight.avsc", "[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_files_are_named_with_what_is_wrong(tmp_path: Path, name: str, content: object, said: str) -> None:
    path = put(tmp_path, name, content)
    with pytest.raises(BadSchemaError, match=re.escape(said)) as caught:
        DirectoryStore(tmp_path)
    assert str(caught.value).startswith(str(path))


def test_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "1-flight.avsc").write_bytes(b"\xff\xfe")
    with pytest.raises(BadSchemaError, match=r"1-flight\.avsc: expected UTF-8"):
        DirectoryStore(tmp_path)


def test_id_used_twice_names_both_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    put(first, "1-flight.avsc", FLIGHT)
    put(second, "1-train.avsc", FLIGHT)
    with pytest.raises(BadSchemaError, match=r"1-train\.avsc: the id 1 is also that of .*1-flight\.avsc"):
        DirectoryStore(first, second)


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSchemaError, match=r"nowhere: expected a folder of schemas"):
        DirectoryStore(tmp_path / "nowhere")
