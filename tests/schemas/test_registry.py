import json
import socket
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from schemas.errors import BadSchemaError, SchemaAccessDenied, SchemaUnavailable, UnknownSchema
from schemas.registry import RegistryStore

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
        self.conflicts = 0  # times that a schema is refused

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, subject: str, definition: object, **more: object) -> int:
        body = {"schema": json.dumps(definition), **more}
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
            case ["schemas", "ids", schema_id] if int(schema_id) in self.server.schemas:
                self._answer(200, self.server.schemas[int(schema_id)])
            case ["subjects", subject, "versions", "latest"] if subject in self.server.subjects:
                latest = self.server.subjects[subject]
                found = self.server.schemas[latest]
                self._answer(200, {"subject": subject, "version": 1, "id": latest, **found})
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
