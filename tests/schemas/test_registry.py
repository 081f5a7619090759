import json
import socket
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pytest

from millstream.schemas.errors import BadSchemaError, SchemaAccessDenied, SchemaUnavailable, UnknownSchema
from millstream.schemas.registry import RegistryStore
from millstream.schemas.time_budget import TimeBudget

HTML = b"<html>not found"
FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "id", "type": "string"}]}


class Registry(ThreadingHTTPServer):
    """The registry's REST routes that the store uses."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, int] = {}
        self.asked: list[str] = []
        self.password: str | None = None
        self.broken: tuple[int, bytes] | None = None
        self.cut_ids: set[int] = set()  # at which the connection is closed without an answer
        self.broken_ids: dict[int, tuple[int, bytes]] = {}  # what is answered in place of a schema
        self.conflicts = 0  # times that a schema is refused

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, subject: str, definition: object, **more: object) -> int:
        return self.add_text(subject, json.dumps(definition), **more)

    def add_text(self, subject: str, text: str, **more: object) -> int:
        body = {"schema": text, **more}
        found = next((schema_id for schema_id, schema in self.schemas.items() if schema == body), None)
        schema_id = found or len(self.schemas) + 1
        self.schemas[schema_id] = body
        self.subjects[subject] = schema_id
        return schema_id


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        match self.path.split("?")[0].strip("/").split("/"):
            case ["schemas", "types"]:
                self._answer(200, ["AVRO"])
            case ["schemas", "ids", schema_id] if int(schema_id) in self.server.cut_ids:
                self.close_connection = True  # without a word
            case ["schemas", "ids", schema_id] if int(schema_id) in self.server.broken_ids:
                self.send(*self.server.broken_ids[int(schema_id)])
            case ["schemas", "ids", schema_id] if int(schema_id) in self.server.schemas:
                self._answer(200, self.server.schemas[int(schema_id)])
            case ["subjects", subject, "versions", "latest"] if subject in self.server.subjects:
                latest = self.server.subjects[subject]
                found = self.server.schemas[latest]
                self._answer(200, {"subject": subject, "version": 1, "id": latest, **found})
            case ["subjects"]:
                self._answer(200, list(self.server.subjects))
            case ["subjects", *_]:
                self._answer(404, {"error_code": 40401, "message": "Subject not found."})
            case _:
                self._answer(404, {"error_code": 40403, "message": "Schema not found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        subject = self.path.split("?")[0].strip("/").split("/")[1]
        if self.server.conflicts:
            self.server.conflicts -= 1
            self._answer(409, {"error_code": 409, "message": f"An artifact with ID '{subject}' already exists."})
        else:
            self._answer(200, {"id": self.server.add(subject, json.loads(body["schema"]))})

    def _answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        if self.server.broken:
            status, content = self.server.broken
        if self.server.password and not self._allowed(self.server.password):
            status, content = 401, b'{"error_code": 401, "message": "Unauthorized"}'
        self.send(status, content)

    def send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _allowed(self, password: str) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        return b64decode(given).decode() == f"worker:{password}"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        """Keep the test's output clean."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    thread = Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_schema_is_found_by_id_and_asked_for_once(registry: Registry) -> None:
    schema_id = registry.add("flights-value", FLIGHT)
    store = RegistryStore(registry.url)
    assert store.by_id(schema_id).definition == FLIGHT
    assert store.by_id(schema_id).id == schema_id
    assert len(registry.asked) == 1


def test_schema_is_found_by_subject(registry: Registry) -> None:
    registry.add("other-value", {"type": "string"})
    schema_id = registry.add("flights-value", FLIGHT)
    found = RegistryStore(registry.url).by_name("flights-value")
    assert (found.id, found.name, found.definition) == (schema_id, "flights-value", FLIGHT)


def test_schema_is_registered(registry: Registry) -> None:
    store = RegistryStore(registry.url)
    schema_id = store.register("predictions-value", FLIGHT)
    assert store.register("predictions-value", FLIGHT) == schema_id
    assert store.by_id(schema_id).definition == FLIGHT


def test_schema_that_another_worker_registers_at_the_same_moment_is_asked_for_again(registry: Registry) -> None:
    registry.conflicts = 1
    schema_id = RegistryStore(registry.url).register("predictions-value", FLIGHT)
    assert registry.subjects == {"predictions-value": schema_id}


def test_schema_that_conflicts_is_refused(registry: Registry) -> None:
    registry.conflicts = 100
    with pytest.raises(BadSchemaError, match=r"refused registering subject 'predictions-value' \(HTTP 409\)"):
        RegistryStore(registry.url).register("predictions-value", FLIGHT)
    assert registry.conflicts > 90


def test_unknown_id_is_asked_for_again_only_after_a_while(registry: Registry) -> None:
    now = 10.0
    store = RegistryStore(registry.url, clock=lambda: now)
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="no schema with the id 1"):
            store.by_id(1)
    assert len(registry.asked) == 1
    registry.add("flights-value", FLIGHT)
    now += 5
    assert store.by_id(1).definition == FLIGHT


def test_unknown_subject_is_named(registry: Registry) -> None:
    with pytest.raises(UnknownSchema, match="no subject 'nothing-value'"):
        RegistryStore(registry.url).by_name("nothing-value")


def test_nearest_subject_is_named(registry: Registry) -> None:
    registry.add("flights-value", FLIGHT)
    with pytest.raises(UnknownSchema, match=r"no subject 'flihgts-value': .* Did you mean `flights-value`\?"):
        RegistryStore(registry.url).by_name("flihgts-value")


def test_refused_credentials_are_told_apart_from_an_outage(registry: Registry) -> None:
    schema_id = registry.add("flights-value", FLIGHT)
    registry.password = "right"
    with pytest.raises(SchemaAccessDenied, match=r"HTTP 401.*username and password"):
        RegistryStore(registry.url, username="worker", password="wrong").by_id(schema_id)
    assert RegistryStore(registry.url, username="worker", password="right").by_id(schema_id).definition == FLIGHT


@pytest.mark.parametrize(
    ("status", "content"),
    [(500, b'{"error_code": 50001, "message": "store"}'), (503, b"busy"), (404, b"<html>nginx"), (200, b"<html>login")],
)
def test_broken_registry_is_unavailable_until_it_is_back(registry: Registry, status: int, content: bytes) -> None:
    schema_id = registry.add("flights-value", FLIGHT)
    store = RegistryStore(registry.url)
    registry.broken = (status, content)
    with pytest.raises(SchemaUnavailable, match=registry.url):
        store.by_id(schema_id)
    registry.broken = None
    assert store.by_id(schema_id).definition == FLIGHT


def test_registry_that_is_down_is_unavailable() -> None:
    with socket.socket() as taken:  # bound but not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        store = RegistryStore(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(SchemaUnavailable, match="check that the registry runs"):
            store.by_id(1)
        with pytest.raises(SchemaUnavailable):
            store.by_name("flights-value")
        with pytest.raises(SchemaUnavailable):
            store.register("flights-value", FLIGHT)


def test_kinds_of_schema_that_are_not_supported_are_refused(registry: Registry) -> None:
    protobuf = registry.add("a", "syntax", schemaType="PROTOBUF")
    referring = registry.add("b", FLIGHT, references=[{"name": "Airport", "subject": "airport", "version": 1}])
    invalid = registry.add("c", {"type": "record"})
    store = RegistryStore(registry.url)
    with pytest.raises(BadSchemaError, match="found PROTOBUF"):
        store.by_id(protobuf)
    with pytest.raises(BadSchemaError, match=r"other schemas \(Airport\)"):
        store.by_id(referring)
    with pytest.raises(BadSchemaError, match="expected an Avro schema"):
        store.by_id(invalid)


def test_url_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(BadSchemaError, match="check url and ca"):
        RegistryStore("registry:8081")


class Clock:
    """Seconds that pass only where a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("schema_id", [2**31, 2**32 - 1])
def test_id_that_no_registry_gives_out_is_unknown_unasked(registry: Registry, schema_id: int) -> None:
    with pytest.raises(UnknownSchema, match=f"no schema registry gives out the id {schema_id}"):
        RegistryStore(registry.url).by_id(schema_id)
    assert registry.asked == []


def test_id_0_is_asked_for(registry: Registry) -> None:
    registry.schemas[0] = {"schema": json.dumps(FLIGHT)}
    assert RegistryStore(registry.url).by_id(0).definition == FLIGHT


@pytest.mark.parametrize(
    "text",
    ["[" * 990 + "]" * 990, '{"type":"array","items":' * 990 + '"int"' + "}" * 990, "null", "5", "[5]", "ga{r", ""],
    ids=lambda text: text[:10],
)
def test_schema_that_cannot_be_parsed_is_bad_and_remembered(registry: Registry, text: str) -> None:
    clock = Clock()
    schema_id = registry.add_text("x", text)
    store = RegistryStore(registry.url, clock=clock)
    for _ in range(2):
        with pytest.raises(BadSchemaError, match=f"schema {schema_id} in {registry.url}: "):
            store.by_id(schema_id)
    assert len(registry.asked) == 1
    clock.now += 5
    with pytest.raises(BadSchemaError):
        store.by_id(schema_id)
    assert len(registry.asked) == 2


def test_bad_schemas_use_up_the_budget_as_unknown_ids_do(registry: Registry) -> None:
    clock = Clock()
    store = RegistryStore(registry.url, clock=clock)
    ids = [registry.add_text("x", "x" * size) for size in range(150)]
    for schema_id in ids:
        with pytest.raises(BadSchemaError if len(registry.asked) < 25 else UnknownSchema):
            store.by_id(schema_id)
    assert len(registry.asked) == 25  # at 10 ms at least, of 250 ms
    clock.now += 5
    with pytest.raises(BadSchemaError):
        store.by_id(ids[0])


def test_look_ups_of_unknown_ids_have_a_budget(registry: Registry) -> None:
    clock = Clock()
    store = RegistryStore(registry.url, clock=clock)
    for schema_id in range(1, 2001):
        with pytest.raises(UnknownSchema):
            store.by_id(schema_id)
    assert len(registry.asked) == 25
    with pytest.raises(UnknownSchema, match="look-up budget is used up"):
        store.by_id(2000)
    with pytest.raises(UnknownSchema, match="has no schema with the id 1:"):  # its answer is remembered
        store.by_id(1)
    clock.now += 5.05
    for schema_id in range(3001, 3101):
        with pytest.raises(UnknownSchema):
            store.by_id(schema_id)
    assert len(registry.asked) in (35, 36)  # a fiftieth of the time


def test_look_ups_that_find_a_schema_cost_no_budget(registry: Registry) -> None:
    store = RegistryStore(registry.url, clock=Clock())
    ids = [registry.add("x", FLIGHT | {"name": f"Flight{number}"}) for number in range(150)]
    assert [store.by_id(schema_id).id for schema_id in ids] == ids
    with pytest.raises(UnknownSchema, match="has no schema"):
        store.by_id(999)
    assert len(registry.asked) == 151


def test_known_schema_is_read_while_the_budget_is_used_up(registry: Registry) -> None:
    schema_id = registry.add("x", FLIGHT)
    store = RegistryStore(registry.url, clock=Clock())
    store.by_id(schema_id)
    for unknown in range(100, 300):
        with pytest.raises(UnknownSchema):
            store.by_id(unknown)
    assert store.by_id(schema_id).definition == FLIGHT


def test_outage_is_no_reason_to_refuse_although_the_budget_is_used_up(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    schema_id = registry.add("x", FLIGHT)
    store = RegistryStore(registry.url, clock=clock)
    registry.broken = (503, b"busy")
    with pytest.raises(SchemaUnavailable):
        store.by_id(schema_id)
    monkeypatch.setattr(TimeBudget, "allows", lambda *_: False)
    with pytest.raises(SchemaUnavailable):
        store.by_id(schema_id)
    registry.broken = None
    assert store.by_id(schema_id).definition == FLIGHT


def test_kept_schemas_are_bounded_by_their_text(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.schemas.registry.MAX_CACHED_CHARACTERS", 3000)
    store = RegistryStore(registry.url)
    ids = [registry.add("x", FLIGHT | {"doc": f"{number}" * 1000}) for number in range(3)]
    for schema_id in (*ids[:2], ids[0], ids[2]):  # the second is the least recently used
        store.by_id(schema_id)
    asked = len(registry.asked)
    store.by_id(ids[0])
    store.by_id(ids[2])
    assert len(registry.asked) == asked
    store.by_id(ids[1])
    assert len(registry.asked) == asked + 1


@pytest.mark.parametrize("knows", [True, False], ids=["asks for a known schema", "asks for the types"])
@pytest.mark.parametrize(
    ("status", "content"),
    [(404, HTML), (404, b'{"error_code": 0, "message": "RESTEASY003870"}'), (400, b"{}"), (200, b"[]"), (302, b"")],
    ids=str,
)
def test_id_that_alone_gets_no_registrys_answer_is_unknown_at_once(
    registry: Registry, status: int, content: bytes, knows: bool
) -> None:
    store = RegistryStore(registry.url)
    known = registry.add("x", FLIGHT)
    if knows:
        store.by_name("x")
    registry.broken_ids[7] = (status, content)
    with pytest.raises(UnknownSchema, match=rf"answers other questions, but not .* id 7: HTTP {status}"):
        store.by_id(7)
    assert registry.asked[-1] == (f"/schemas/ids/{known}" if knows else "/schemas/types")


@pytest.mark.parametrize("status", [500, 503, 429, 401, 403])
def test_id_that_alone_fails_holds_its_records_up_for_a_minute(registry: Registry, status: int) -> None:
    clock = Clock()
    store = RegistryStore(registry.url, clock=clock)
    registry.add("x", FLIGHT)
    store.by_name("x")
    registry.broken_ids[7] = (status, b'{"error_code": 50001, "message": "boom"}')
    waited = 0.0
    with pytest.raises(UnknownSchema, match="given up after waiting"):
        for _ in range(100):
            try:
                store.by_id(7)
            except SchemaUnavailable as error:
                assert f"the schema with the id 7: HTTP {status}: boom" in str(error)
                waited += 5
                clock.now += 5
    assert 60 <= waited <= 75
    with pytest.raises(UnknownSchema):  # remembered
        store.by_id(7)
    clock.now += 5
    del registry.broken_ids[7]
    registry.schemas[7] = {"schema": json.dumps(FLIGHT)}
    assert store.by_id(7).definition == FLIGHT


def test_id_at_which_the_registry_hangs_up_is_no_outage(registry: Registry) -> None:
    clock = Clock()
    store = RegistryStore(registry.url, clock=clock)
    known = registry.add("x", FLIGHT)
    store.by_id(known)
    registry.cut_ids.add(7)
    waited = 0
    with pytest.raises(UnknownSchema, match="given up after waiting"):
        for _ in range(100):
            try:
                store.by_id(7)
            except SchemaUnavailable as error:
                assert "answers other questions" in str(error)
                waited += 5
                clock.now += 5
    assert 60 <= waited <= 75


def test_many_ids_that_fail_share_one_wait(registry: Registry) -> None:
    clock = Clock()
    store = RegistryStore(registry.url, clock=clock)
    registry.broken_ids = dict.fromkeys(range(1, 400), (500, b"boom"))
    began, waited = clock.now, 0.0
    for schema_id in range(1, 400):
        for _ in range(100):
            try:
                store.by_id(schema_id)
            except SchemaUnavailable:
                waited += 5
                clock.now += 5
            except UnknownSchema:
                break
    assert waited <= 60 + 10 + 0.1 * (clock.now - began)


def test_registry_that_is_away_as_a_whole_is_waited_for_without_an_end(registry: Registry) -> None:
    clock = Clock()
    store = RegistryStore(registry.url, clock=clock)
    schema_id = registry.add("x", FLIGHT)
    registry.broken = (503, b"busy")
    for _ in range(50):
        with pytest.raises(SchemaUnavailable, match=f"schema id {schema_id}"):
            store.by_id(schema_id)
        clock.now += 10
    registry.broken = None
    assert store.by_id(schema_id).definition == FLIGHT


def test_credentials_that_are_refused_for_all_are_waited_for(registry: Registry) -> None:
    clock = Clock()
    schema_id = registry.add("x", FLIGHT)
    other = registry.add("x", FLIGHT | {"name": "Other"})
    registry.password = "right"
    store = RegistryStore(registry.url, username="worker", password="right", clock=clock)
    store.by_id(schema_id)
    registry.password = "rotated"
    for _ in range(50):
        with pytest.raises(SchemaAccessDenied):
            store.by_id(other)
        clock.now += 10


def by_id_in_a_thread(store: RegistryStore, schema_id: int) -> Thread:
    thread = Thread(target=lambda: store.by_id(schema_id))
    thread.start()
    return thread


def test_known_schema_is_returned_while_another_thread_asks_for_one(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, slow = registry.add("known", FLIGHT), registry.add("slow", {"type": "string"})
    store = RegistryStore(registry.url)
    store.by_id(known)
    arrived, released = hold_answers(monkeypatch)
    asking = by_id_in_a_thread(store, slow)
    assert arrived.wait(10)
    finding = by_id_in_a_thread(store, known)
    finding.join(10)
    is_found = not finding.is_alive()
    released.set()
    asking.join()
    finding.join()
    assert is_found


def test_threads_that_want_the_same_schema_ask_one_after_the_other_and_once(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema_id = registry.add("flights-value", FLIGHT)
    store = RegistryStore(registry.url)
    arrived, released = hold_answers(monkeypatch)
    first = by_id_in_a_thread(store, schema_id)
    assert arrived.wait(10)
    arrived.clear()
    second = by_id_in_a_thread(store, schema_id)
    asked_meanwhile = arrived.wait(0.3)
    released.set()
    first.join()
    second.join()
    assert not asked_meanwhile
    assert len(registry.asked) == 1


def hold_answers(monkeypatch: pytest.MonkeyPatch) -> tuple[Event, Event]:
    """Hold the registry's answers back; returns what is set when a question arrives, and what lets the answers go."""
    arrived, released = Event(), Event()
    send = _Handler.send

    def held(handler: _Handler, status: int, content: bytes) -> None:
        arrived.set()
        assert released.wait(10)
        send(handler, status, content)

    monkeypatch.setattr(_Handler, "send", held)
    return arrived, released


def test_store_of_json_schemas_gives_their_texts_and_refuses_avro(registry: Registry) -> None:
    text = '{"type": "object"}'
    as_json, as_avro = registry.add_text("order", text, schemaType="JSON"), registry.add("flight", FLIGHT)
    store = RegistryStore(registry.url, kind="JSON")
    assert (store.by_id(as_json).definition, store.by_name("order").definition) == (text, text)
    with pytest.raises(BadSchemaError, match="expected a JSON Schema, found AVRO: write these records in JSON"):
        store.by_id(as_avro)
    with pytest.raises(BadSchemaError, match="expected an Avro schema, found JSON"):
        RegistryStore(registry.url).by_id(as_json)
