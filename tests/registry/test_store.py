"""The store's contract on a real registry."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema as RegistrySchema
from confluent_kafka.schema_registry import SchemaRegistryClient

from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.errors import BadSchemaError, SchemaUnavailable, UnknownSchema
from millstream.schemas.records import DEAD_LETTER, INCLUDING_PREDICTION, PREDICTION, OwnRecord
from millstream.schemas.registry import RegistryStore
from millstream.schemas.store import Schema
from millstream.schemas.wire import frame
from tests.registry.apicurio import api_url
from tests.registry.proxy import Proxy

if TYPE_CHECKING:
    from tests.registry.apicurio import Apicurio

ID = {"name": "id", "type": "string"}


@pytest.fixture
def subject() -> str:
    return f"flights-{uuid.uuid4().hex[:8]}-value"


def _record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    """A schema that no other test registers: the registry gives equal schemas equal ids."""
    return {"type": "record", "name": name.replace("-", "_"), "fields": [ID, *fields]}


def test_registered_schema_is_found_by_id_and_by_subject(registry: Apicurio, subject: str) -> None:
    definition = _record(subject)
    schema_id = RegistryStore(registry.url).register(subject, definition)
    store = RegistryStore(registry.url)
    assert store.by_id(schema_id).definition == definition
    found = store.by_name(subject)
    assert (found.id, found.name, found.definition) == (schema_id, subject, definition)


def test_same_schema_has_the_same_id_for_everyone(registry: Apicurio, subject: str) -> None:
    first, second = RegistryStore(registry.url), RegistryStore(registry.url)
    schema_id = first.register(subject, _record(subject))
    assert second.register(subject, _record(subject)) == schema_id
    assert first.register(subject, _record(subject)) == schema_id


def test_subject_stands_for_its_newest_version(registry: Apicurio, subject: str) -> None:
    store = RegistryStore(registry.url)
    older = store.register(subject, _record(subject))
    newer = store.register(subject, _record(subject, {"name": "gate", "type": ["null", "string"], "default": None}))
    assert newer != older
    assert RegistryStore(registry.url).by_name(subject).id == newer
    assert RegistryStore(registry.url).by_id(older).definition == _record(subject)


@pytest.mark.parametrize("own", [PREDICTION, INCLUDING_PREDICTION, DEAD_LETTER], ids=lambda own: own.name)
def test_our_own_schemas_come_back_as_they_are(registry: Apicurio, subject: str, own: OwnRecord) -> None:
    schema_id = RegistryStore(registry.url).register(subject, own.definition)
    assert RegistryStore(registry.url).by_id(schema_id).definition == own.definition


def test_predictions_that_include_fields_and_the_others_are_versions_of_a_subject_in_both_directions(
    registry: Apicurio, subject: str
) -> None:
    store = RegistryStore(registry.url)
    older = store.register(subject, PREDICTION.definition)
    SchemaRegistryClient({"url": registry.url}).set_compatibility(subject, level="FULL")
    newer = store.register(subject, INCLUDING_PREDICTION.definition)
    assert newer != older
    assert RegistryStore(registry.url).register(subject, PREDICTION.definition) == older  # the option is taken back


def test_unknown_id_and_unknown_subject_are_told(registry: Apicurio) -> None:
    store = RegistryStore(registry.url)
    with pytest.raises(UnknownSchema, match="no schema with the id 123456789"):
        store.by_id(123_456_789)
    with pytest.raises(UnknownSchema, match="no subject 'nothing-value'"):
        store.by_name("nothing-value")


@pytest.mark.parametrize("schema_id", [0, 2**31 - 1, 2**31, 2**32 - 1])
def test_ids_that_no_schema_has_are_unknown_not_waited_for(registry: Apicurio, schema_id: int) -> None:
    """Of the two largest Apicurio says 404 with a code unlike a registry's."""
    with pytest.raises(UnknownSchema, match=f"id {schema_id}"):
        RegistryStore(registry.url).by_id(schema_id)


@pytest.mark.parametrize("schema_id", [2**31, 2**32 - 1])
def test_question_that_the_registry_cannot_answer_is_no_outage(
    registry: Apicurio, schema_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.schemas.registry.LARGEST_ID", 2**32)  # so that it is asked
    with pytest.raises(UnknownSchema, match=rf"answers other questions, but not the one .* id {schema_id}: HTTP 404"):
        RegistryStore(registry.url).by_id(schema_id)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ('{"type":"array","items":' * 300 + '"int"' + "}" * 300, "AVRO", "levels deep"),
        ('syntax = "proto3"; message Flight { string id = 1; }', "PROTOBUF", "expected an Avro schema, found PROTOBUF"),
        (
            '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}',
            "JSON",
            "expected an Avro schema, found JSON",
        ),
    ],
    ids=["nested 300 deep", "protobuf", "json schema"],
)
def test_schema_that_cannot_be_used_is_bad_not_waited_for(
    registry: Apicurio, subject: str, text: str, kind: str, said: str
) -> None:
    schema_id = SchemaRegistryClient({"url": registry.url}).register_schema(subject, RegistrySchema(text, kind))
    store = RegistryStore(registry.url)
    for _ in range(2):
        with pytest.raises(BadSchemaError, match=said):
            store.by_id(schema_id)
    with pytest.raises(BadSchemaError, match=said):
        store.by_name(subject)


def test_records_of_thousands_of_unknown_ids_starve_no_new_schema(registry: Apicurio, subject: str) -> None:
    definition = _record(subject)
    schema_id = RegistryStore(registry.url).register(subject, definition)
    clock = [1000.0]
    store = RegistryStore(registry.url, clock=lambda: clock[0])
    decoder = AvroDecoder(store, Schema(schema_id, subject, definition), ["id"])
    good = frame(schema_id) + b"\x02a"
    unknown = [frame(1_000_000 + number) + b"\x02a" for number in range(2000)]
    found = decoder.decode([*unknown, good, good])
    assert found.rows.tolist() == [2000, 2001]
    reasons = [bad.reason for bad in found.bad]
    assert reasons == ["unknown_schema"] * 2000
    assert sum("look-up budget is used up" in bad.error for bad in found.bad) == 1975


def test_schema_that_breaks_the_subjects_rule_is_refused(registry: Apicurio, subject: str) -> None:
    store = RegistryStore(registry.url)
    store.register(subject, _record(subject))
    SchemaRegistryClient({"url": registry.url}).set_compatibility(subject, level="BACKWARD")
    with pytest.raises(BadSchemaError, match=rf"refused registering subject '{subject}' \(HTTP 409\)"):
        store.register(subject, _record(subject, {"name": "gate", "type": "string"}))  # old records have none


def test_text_that_is_no_schema_is_refused(registry: Apicurio, subject: str) -> None:
    with pytest.raises(BadSchemaError, match="HTTP 422"):
        RegistryStore(registry.url).register(subject, {"type": "recor"})


def test_address_beside_the_api_is_told(registry: Apicurio) -> None:
    with pytest.raises(SchemaUnavailable, match="check the url"):
        RegistryStore(registry.url.removesuffix("/apis/ccompat/v7")).by_name("flights-value")


def test_store_goes_on_when_the_registry_is_back(registry: Apicurio, subject: str) -> None:
    known = RegistryStore(registry.url).register(subject, _record(subject))
    later = RegistryStore(registry.url).register(subject, _record(subject, {"name": "gate", "type": "string"}))
    with Proxy(registry.port) as line:
        store = RegistryStore(api_url(line.port))
        store.by_id(known)
        line.cut()
        assert store.by_id(known).id == known
        with pytest.raises(SchemaUnavailable, match="check that the registry runs"):
            store.by_id(later)
        line.connect()
        assert store.by_id(later).id == later
