"""Checks that the schemas and fields exist which the pipeline file names. Errors name the line in the file."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal

from millstream.consumers.errors import PlanError
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.dtypes import Dtype, ListOf
from millstream.schemas.errors import UnknownSchema
from millstream.schemas.included import can_be_included
from millstream.schemas.store import Schema, SchemaStore
from millstream.schemas.wording import Loc

TIME_UNITS = {"timestamp-millis": 1, "timestamp-micros": 1000, "timestamp-nanos": 1_000_000}  # values in a millisecond
_ID_TYPES = ("int32", "int64", "float32", "float64", "boolean", "string")
_COST_TYPES = ("int32", "int64", "float32", "float64", "string")  # and lists of these
TIME_TYPES = ("timestamp-", "time-", "date")


def schema_of(pipeline: Pipeline, store: SchemaStore, section: Literal["input", "labels"]) -> Schema:
    """The schema that a section names. Raises PlanError if it doesn't exist, and SchemaError."""
    named = pipeline.labels if section == "labels" else pipeline.input
    assert named is not None
    try:
        return store.by_name(named.schema_name)
    except UnknownSchema as error:
        raise PlanError(f"{pipeline.at(section, 'schema')}: {error}") from None


def field_names(schema: Schema) -> set[str]:
    """The names of a record's fields; none if the schema is not a record."""
    definition = schema.definition
    return {entry["name"] for entry in definition.get("fields", ())} if isinstance(definition, dict) else set()


def own_fields(pipeline: Pipeline) -> list[str]:
    """The event's fields that Millstream itself uses."""
    fields = (pipeline.input.event_id, pipeline.input.event_time, pipeline.batch.cost)
    return [field for field in fields if field is not None]


def check_event_fields(pipeline: Pipeline, schema: Schema) -> None:
    """Check that the fields exist which options name.

    Raises:
        PlanError: a field doesn't exist.
    """
    _check(pipeline, schema, ("input", "event_id"), pipeline.input.event_id)
    _check(pipeline, schema, ("input", "event_time"), pipeline.input.event_time)
    _check(pipeline, schema, ("input", "key"), pipeline.input.key)
    _check(pipeline, schema, ("batch", "cost"), pipeline.batch.cost)
    for index, field in enumerate(pipeline.output.include):
        _check(pipeline, schema, ("output", "include", index), field)


def check_labels(pipeline: Pipeline, store: SchemaStore) -> None:
    """Check the schema and the fields of the labels. Raises PlanError and SchemaError."""
    labels = pipeline.labels
    if labels is not None:
        schema = schema_of(pipeline, store, "labels")
        _check(pipeline, schema, ("labels", "event_id"), labels.event_id)
        _check(pipeline, schema, ("labels", "value"), labels.value)


def check_event_id(pipeline: Pipeline, schema: Schema, columns: Mapping[str, Dtype]) -> None:
    """Check that the event IDs are texts, numbers or booleans. Raises PlanError."""
    field = pipeline.input.event_id
    if field is not None and columns[field] not in _ID_TYPES:
        raise PlanError(
            f"{pipeline.at('input', 'event_id')}: expected a text, a number or a boolean, and field `{field}` of schema "
            f"`{schema.name}` is {columns[field]}. Name another field, or none: then an event's ID is its topic, partition and "
            f"offset."
        )


def check_cost(pipeline: Pipeline, schema: Schema, columns: Mapping[str, Dtype]) -> None:
    """Check that the cost is a number, a text or a list of these. Raises PlanError."""
    cost = pipeline.batch.cost
    if cost is None:
        return
    found, kind = columns[cost], _kind(schema, cost)
    logical = str(kind.get("logicalType", "")) if isinstance(kind, dict) else ""
    moment = logical.removeprefix("local-").startswith(TIME_TYPES)
    # An array of records could need 100 times the memory of its event: each `{}` in it gets the defaults of all fields.
    item = found.items if isinstance(found, ListOf) else found
    if moment or item not in _COST_TYPES:
        raise PlanError(
            f"{pipeline.at('batch', 'cost')}: expected a number, a text, or a list of numbers or texts, and field "
            f"`{cost}` of schema `{schema.name}` is {logical or found}. Name another field."
        )


def check_included(pipeline: Pipeline, schema: Schema, columns: Mapping[str, Dtype]) -> None:
    """Check that predictions can hold the fields that `output.include` names. Raises PlanError."""
    for index, field in enumerate(pipeline.output.include):
        found = columns.get(field)  # None: workers for dedicated shadows don't read it
        if found is not None and not can_be_included(found):
            raise PlanError(
                f"{pipeline.at('output', 'include', index)}: expected a number, a boolean, a text, or a list of these, and field "
                f"`{field}` of schema `{schema.name}` is {found}. Name another field."
            )


def time_unit(pipeline: Pipeline, schema: Schema) -> int:
    """How many units of the event-time field are a millisecond. Raises PlanError if the field does not hold times."""
    field = pipeline.input.event_time
    if field is None:
        return 1
    kind = _kind(schema, field)
    if kind == "long":
        return 1
    unit = TIME_UNITS.get(str(kind.get("logicalType", "")).removeprefix("local-")) if isinstance(kind, dict) else None
    if unit is None:
        raise PlanError(
            f"{pipeline.at('input', 'event_time')}: field `{field}` of schema `{schema.name}` is {kind}: expected a long "
            f"(milliseconds since 1970) or an Avro timestamp. Name another field, or none to take the record's timestamp."
        )
    return unit


def _check(pipeline: Pipeline, schema: Schema, option: Loc, field: str | None) -> None:
    there = field_names(schema)
    if field is not None and field not in there:
        close = get_close_matches(field, there, n=1)
        advice = f"Did you mean `{close[0]}`? Name" if close else "Name"
        raise PlanError(
            f"{pipeline.at(*option)}: expected a field of schema `{schema.name}` (id {schema.id}: {', '.join(sorted(there))}), "
            f"found `{field}`. {advice} one of these, or take the schema back if another than yours was registered under this "
            f"name."
        )


def _kind(schema: Schema, field: str) -> Any:
    """The field's Avro type, without null if null is one of two types."""
    types = next(entry["type"] for entry in schema.definition["fields"] if entry["name"] == field)
    branches = [branch for branch in (types if isinstance(types, list) else [types]) if branch != "null"]
    return branches[0] if len(branches) == 1 else types
