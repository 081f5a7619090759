"""Events are checked against a JSON Schema; those that don't fit say where, what was expected and what was found."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest

from millstream.schemas.errors import BadSchemaError, UnknownSchema
from millstream.schemas.json.checked import CheckedDecoder
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.json.json_schema import JsonSchema
from millstream.schemas.paths import parse_path
from millstream.schemas.store import Schema

needs_package = pytest.mark.skipif(find_spec("jsonschema_rs") is None, reason="needs the extra `json-schema`")
CUSTOMER = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 130}}, "additionalProperties": False}
ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z]+$"},
        "customer": CUSTOMER,
        "payer": {"$ref": "#/properties/customer"},
        "items": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
    },
}


def schema_of(definition: Any) -> JsonSchema:
    return JsonSchema("order.json", definition if isinstance(definition, str) else json.dumps(definition))


class Store:
    """Schemas by ID."""

    def __init__(self, **schemas: Any) -> None:
        self.asked: list[int] = []
        self._schemas = {int(name[1:]): json.dumps(definition) for name, definition in schemas.items()}

    def by_id(self, schema_id: int) -> Schema:
        self.asked.append(schema_id)
        if schema_id not in self._schemas:
            raise UnknownSchema(f"no schema {schema_id}")
        return Schema(schema_id, "", self._schemas[schema_id])

    def by_name(self, name: str) -> Schema:
        raise UnknownSchema(name)

    def register(self, name: str, definition: Any) -> int:
        raise UnknownSchema(f"{name} {definition}")


@needs_package
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"{}", "id: expected a value, found none (JSON Schema order.json)"),
        (b'{"id": 1}', 'id: expected `type` "string", found the number 1'),
        (b'{"id": "A"}', "id: expected `pattern` \"^[a-z]+$\", found 'A'"),
        (b'{"id": "a", "customer": {"age": "x"}}', "customer.age: expected `type` \"integer\", found text 'x'"),
        (b'{"id": "a", "payer": {"age": 131}}', "payer.age: expected `maximum` 130, found the number 131"),
        (b'{"id": "a", "customer": {"sex": 1}}', "customer.sex: expected no such field, found one"),
        (b'{"id": "a", "items": [{}, {"price": "1"}]}', "items[1].price: expected `type` \"number\", found text '1'"),
        (b"[1]", 'the event: expected `type` "object", found an array'),
        (
            b'{"id": "a", "more": [{"x": 1e400}]}',
            "more[0].x: expected a number that fits into a double, found a number that is too large for a double",
        ),
        (b'{"id": ' + b"9" * 309 + b"}", 'id: expected `type` "string", found a number that is too large for a double'),
        (b"nonsense", "malformed JSON: invalid character (byte 4)"),
        (b'{"id": "a", "deep": ' + b"[" * 100_000, "nested too deeply"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_event_that_does_not_fit_says_where_and_its_neighbours_are_decoded(value: bytes, says: str) -> None:
    decoder = CheckedDecoder(JsonDecoder.of_types({"id": "string"}), schema_of(ORDER))
    found = decoder.decode([b'{"id": "a"}', value, b'\0\0\0\0\7{"id": "b"}'])
    assert found.rows.tolist() == [0, 2]
    assert found.table["id"].to_list() == ["a", "b"]
    [bad] = found.bad
    assert (bad.row, bad.reason) == (1, "undecodable")
    assert says in bad.error


@needs_package
def test_event_with_an_id_must_fit_the_schema_of_the_id() -> None:
    loose, broken = {"type": "object"}, {"type": "strin"}
    store = Store(s7=loose, s8=broken)
    decoder = CheckedDecoder(JsonDecoder.of_types({"id": "string"}), schema_of(ORDER), store)
    heads = [b"", b"\0\0\0\0\7", b"\0\0\0\0\x08", b"\0\0\0\0\x09", b"\0\0\0\0\7"]
    found = decoder.decode([head + b'{"id": "A"}' for head in heads])
    assert found.rows.tolist() == [1, 4]
    assert [bad.reason for bad in found.bad] == ["undecodable", "schema_incompatible", "unknown_schema"]
    assert store.asked.count(7) == 1


@needs_package
@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ("[", "found no JSON"),
        ("[]", "an object, found an array"),
        ({"type": "strin"}, 'expected a valid JSON Schema: "strin" is not valid'),
        ({"$ref": "https://example.com/x.json"}, "is another document, and none is fetched: write what it refers to"),
        ({"$ref": "file:///etc/hostname"}, "is another document, and none is fetched"),
        ({"pattern": "(?=a)b"}, "patterns with lookaround or back-references aren't supported"),
        (" " * 2_000_000, "expected a schema of at most 1,048,576 characters, found 2,000,000"),
        ("[" * 100_000, "nested too deeply to read"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_schema_that_cannot_be_used_is_told(definition: Any, says: str) -> None:
    with pytest.raises(BadSchemaError) as raised:
        schema_of(definition)
    assert str(raised.value).startswith("order.json: ")
    assert says in str(raised.value)


@needs_package
def test_pattern_that_would_take_others_exponential_time_is_checked() -> None:
    schema = schema_of({"properties": {"x": {"pattern": "^(a+)+$"}}})
    assert schema.fault(b'{"x": "%b!"}' % (b"a" * 100_000)) is not None
    assert schema.fault(b'{"x": "%b"}' % (b"a" * 100_000)) is None


@needs_package
def test_recursive_schema_and_large_event_are_checked() -> None:
    schema = schema_of(
        {"type": "object", "properties": {"next": {"$ref": "#"}, "list": {"items": {"type": "integer"}}}}
    )
    assert schema.fault(b'{"next":' * 300 + b"{}" + b"}" * 300) is None
    assert "expected `type`" in str(schema.fault(b'{"next":' * 300 + b"1" + b"}" * 300))
    large = b'{"list": [%b"x"]}' % (b"12345678," * 1_100_000)
    assert 'list[1100000]: expected `type` "integer", found text' in str(schema.fault(large))


@needs_package
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("id", None),
        ("customer.age", None),
        ("other.anything", None),
        ("items[0].price", None),
        ("items[].price", None),
        ("customer.name", "`customer.name` is not among its properties (age)"),
        ("payer.name", "`payer.name` is not among its properties (age)"),
        ("id.x", "`id` is of type string, not object"),
        ("customer[0]", "`customer` is of type object, not array"),
    ],
)
def test_path_that_the_schema_excludes_is_found(path: str, says: str | None) -> None:
    assert schema_of(ORDER).check_path(parse_path(path).steps) == says


@pytest.mark.skipif(find_spec("jsonschema_rs") is not None, reason="the package is installed")
def test_missing_package_is_told() -> None:
    with pytest.raises(BadSchemaError, match=r"needs the package `jsonschema-rs`, .* with the extra `json-schema`"):
        schema_of(ORDER)
