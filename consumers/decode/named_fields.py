"""Checks that the schemas and fields exist which the pipeline file names. Errors name the line in the file."""

from collections.abc import Mapping, Sequence
from typing import Literal

from millstream.consumers.decode.event_times import TimeFormat
from millstream.consumers.decode.lookup_keys import key_fields
from millstream.consumers.errors import PlanError
from millstream.consumers.problems import Problems
from millstream.inference.conversions import Conversion
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import check_fields
from millstream.inference.times import Time
from millstream.pipeline.comparison_sections import EXPECTED_LABELS
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.avro.types import logical_tree, record_tree, time_type, title
from millstream.schemas.avro.wanted import type_at
from millstream.schemas.decoding import open_decoder
from millstream.schemas.dtypes import Dtype, ListOf
from millstream.schemas.errors import BadFieldError, BadPathError, UnknownSchema
from millstream.schemas.included import can_be_included
from millstream.schemas.lookup_columns import looked_up
from millstream.schemas.paths import Every, Path, parse_path
from millstream.schemas.store import AvroType, Schema, SchemaStore
from millstream.schemas.wording import Loc

_TIMESTAMPS: dict[str, TimeFormat] = {
    "timestamp-millis": "milliseconds",
    "timestamp-micros": "microseconds",
    "timestamp-nanos": "nanoseconds",
}
VALUE_TYPES = ("int32", "int64", "float32", "float64", "boolean", "string", "mixed")
_KEY_TYPES = ("int32", "int64", "boolean", "string", "mixed")
_OF_ONE_VALUE: tuple[Loc, ...] = (("input", "key"), ("input", "filter"))  # options that name no lists
_LABEL_TYPES = ("int32", "int64", "float32", "float64", "boolean")
_COST_TYPES = ("int32", "int64", "float32", "float64", "string")  # and lists of these


def schema_of(pipeline: Pipeline, store: SchemaStore, section: Literal["input", "labels"]) -> Schema | None:
    """The schema that a section names; None if it names none. Raises PlanError if it doesn't exist, and SchemaError."""
    named = pipeline.labels if section == "labels" else pipeline.input
    assert named is not None
    if named.schema_name is None:
        return None
    try:
        return store.by_name(named.schema_name)
    except UnknownSchema as error:
        raise PlanError(f"{pipeline.at(section, 'schema')}: {error}") from None


def check_event_fields(pipeline: Pipeline, schema: Schema | None) -> None:
    """Check the paths that options name.

    Raises:
        PlanError: paths are malformed, or aren't in the schema: a line for each.
    """
    named: list[tuple[Loc, str | None]] = [
        (("input", "event_id"), pipeline.input.event_id),
        (("input", "event_time"), pipeline.input.event_time),
        (("input", "key"), pipeline.input.key),
        *((("input", "filter"), condition.field) for condition in pipeline.input.filter),
        (("batch", "cost"), pipeline.batch.cost),
        *((included_at(pipeline, field), field) for field in pipeline.output.include),
        *((("rollout", "override_fields", at), field) for at, field in enumerate(override_fields(pipeline))),
    ]
    problems = Problems()
    with problems:
        named += [(option, path) for option, path, _ in key_fields(pipeline)]
    for option, field in named:
        with problems:
            _check(pipeline, schema, option, field)
            if option in _OF_ONE_VALUE and field is not None and Every.ITEM in parse_path(field).steps:
                raise PlanError(
                    f"{pipeline.at(*option)}: expected a path to one value, found `{field}`. Name an item, such as "
                    f"`[0]`, in place of `[]`."
                )
    problems.raise_all()


def check_model_fields(models: Sequence[ModelVersion], schema: Schema | None) -> None:
    """Check the paths that fill tensors.

    Raises:
        PlanError: paths are malformed, or aren't in the schema; without a schema, an array's path isn't to its items.
    """
    tree = None if schema is None else record_tree(schema)
    problems = Problems()
    for model in models:
        for entry in model.signature.inputs:
            place = f"{entry.mapped_at or model.place}: tensor `{entry.tensor}`"
            known = set[str]()  # paths that are in the schema
            for field, conversion in entry.reads:
                if looked_up(field) is not None:
                    continue  # `lookups` checks it
                with problems:
                    path = _model_path(tree, field, schema, place)
                    known.add(field)
                    is_array = entry.array and conversion.splitter is None
                    if schema is None and is_array and Every.ITEM not in path.steps:
                        raise PlanError(
                            f"{place} takes the array `{field}`. In JSON without a schema, write `[]` behind the array: "
                            f"`{field}[]`, or, if its items are objects, for example `items[].price`. If the field is one value "
                            f"and no array, write `fields: [{field}]` in place of `field`."
                        )
            for field, conversion in entry.converted_fields:
                if schema is not None and {field, conversion.fallback or field} <= known:
                    with problems:
                        _check_time(schema, field, conversion, place)
    problems.raise_all()


def _check_time(schema: Schema, field: str, conversion: Conversion, place: str) -> None:
    """Raise PlanError if the mapping reads an Avro timestamp or date in another unit than its own. The schema has the fields."""
    time, known, other = conversion.converter, time_format(schema, field), conversion.fallback or field
    if not isinstance(time, Time):
        return
    if time_format(schema, other) != known:
        units = [_time_type(schema, path) or "no Avro time" for path in (field, other)]
        raise PlanError(
            f"{place} reads the event's field `{field}` and its fallback `{other}` as times of one unit, but schema "
            f"`{schema.name}` has {units[0]} and {units[1]} there. Name another fallback, or leave it out."
        )
    if known is not None and time.format != known:
        raise PlanError(
            f"{place} reads the event's field `{field}` with `time: {time.format}`, but schema `{schema.name}` has "
            f"{_time_type(schema, field)} there. The schema says the unit: leave `time` out of config.yaml, or write "
            f"`time: null` in the pipeline file's `inputs`."
        )


def _model_path(tree: AvroType | None, field: str, schema: Schema | None, place: str) -> Path:
    try:
        return _found(tree, field, schema)
    except BadPathError as error:
        raise PlanError(f"{place} takes the event's field `{field}`, which is no path: {error}.") from None
    except BadFieldError as error:
        name = "" if schema is None else schema.name
        raise PlanError(
            f"{place} takes the event's field `{field}`, but schema `{name}` has no such field: {error}."
        ) from None


def check_labels(pipeline: Pipeline, store: SchemaStore) -> str:
    """Check the schema and the paths of the labels.

    Returns:
        a warning if the labels are texts, of which only numbers count; otherwise nothing.

    Raises:
        PlanError, SchemaError: a field is missing, or of a type that no label has.
    """
    labels = pipeline.labels
    if labels is None:
        return ""
    schema = schema_of(pipeline, store, "labels")
    problems = Problems()
    for option, path in (("event_id", labels.event_id), ("value", labels.value)):
        with problems:
            _check(pipeline, schema, ("labels", option), path)
    problems.raise_all()
    if schema is None:
        return ""
    task = pipeline.comparison.task
    regression = task == "regression"
    found = open_decoder(labels.format, store, schema, {labels.value: "number"}).columns[labels.value]
    place, field = pipeline.at("labels", "value"), f"field `{labels.value}` of schema `{schema.name}`"
    if found == "string" and task == "multiclass":
        return ""
    if found == "string":
        examples = '"12.5"' if regression else '"1" and "0"'
        return (
            f"{place}: {field} is text: only texts such as {examples} count as labels, and others are left out. If the texts "
            f"are the names of classes, write `task: multiclass` under `comparison:`."
        )
    if found not in _LABEL_TYPES:
        raise PlanError(f"{place}: expected {EXPECTED_LABELS[task]}, and {field} is {found}. Name another field.")
    return ""


def check_columns(
    pipeline: Pipeline,
    schema: Schema | None,
    models: Sequence[ModelVersion],
    columns: Mapping[str, Dtype],
    of_lookups: Mapping[str, Dtype] | None = None,
) -> None:
    """Check that the types of the fields fit all that reads them: IDs, times, costs, keys, predictions and tensors.

    Args:
        pipeline: the pipeline file's settings.
        schema: of the events; None: JSON without one.
        models: those that the columns are for.
        columns: the event's fields that are read, with their types.
        of_lookups: the columns that look-ups add; None: they can't be known, because a look-up is wrong.

    Raises:
        PlanError: some don't fit: a line for each.
    """
    problems = Problems()
    with problems:
        _check_event_id(pipeline, columns)
    with problems:
        event_time_format(pipeline, schema, columns)
    with problems:
        _check_cost(pipeline, schema, columns)
    with problems:
        _check_included(pipeline, columns)
    with problems:
        _check_override_fields(pipeline, columns)
    for option, path, lookup in key_fields(pipeline):
        with problems:
            _check_key(pipeline, option, path, lookup, columns)
    for model in models:
        with problems:
            check_model_columns(schema, model, columns, of_lookups)
    problems.raise_all()


def check_model_columns(
    schema: Schema | None,
    model: ModelVersion,
    columns: Mapping[str, Dtype],
    of_lookups: Mapping[str, Dtype] | None,
) -> None:
    """Check that the types of the fields fit a model's tensors. Arguments: see `check_columns`. Raises ModelConfigError."""
    known = columns if of_lookups is None else {**columns, **of_lookups}
    signature = model.signature.without_lookups() if of_lookups is None else model.signature
    check_fields(signature, known, model.place, "" if schema is None else schema.name)


def _check_event_id(pipeline: Pipeline, columns: Mapping[str, Dtype]) -> None:
    field = pipeline.input.event_id
    if field is not None and columns[field] not in VALUE_TYPES:
        raise PlanError(
            f"{pipeline.at('input', 'event_id')}: expected a text, a number or a boolean, and field `{field}`{_of(pipeline)} is "
            f"{columns[field]}. Name another field, or none: then an event's ID is its topic, partition and offset."
        )


def _check_key(pipeline: Pipeline, option: Loc, path: str, lookup: str, columns: Mapping[str, Dtype]) -> None:
    found = columns.get(path)  # None: no model uses the look-up
    if found is not None and found not in _KEY_TYPES:
        raise PlanError(
            f"{pipeline.at(*option)}: expected a text, a whole number or a boolean in the key of look-up `{lookup}`, and field "
            f"`{path}`{_of(pipeline)} is {found}. Name another field."
        )


def _check_cost(pipeline: Pipeline, schema: Schema | None, columns: Mapping[str, Dtype]) -> None:
    cost = pipeline.batch.cost
    if cost is None:
        return
    moment = _time_type(schema, cost)
    # An array of records could need 100 times the memory of its event: each `{}` in it gets the defaults of all fields.
    found = columns[cost]
    item = found.items if isinstance(found, ListOf) else found
    if moment or item not in _COST_TYPES:
        raise PlanError(
            f"{pipeline.at('batch', 'cost')}: expected a number, a text, or a list of numbers or texts, and field "
            f"`{cost}`{_of(pipeline)} is {moment or found}. Name another field."
        )


def _check_included(pipeline: Pipeline, columns: Mapping[str, Dtype]) -> None:
    for field in pipeline.output.include:
        found = columns.get(field)  # None: workers for dedicated shadows don't read it
        if found is not None and not can_be_included(found):
            raise PlanError(
                f"{pipeline.at(*included_at(pipeline, field))}: expected a number, a boolean, a text, or a list of these, and "
                f"field `{field}`{_of(pipeline)} is {found}. Name another field."
            )


def override_fields(pipeline: Pipeline) -> tuple[str, ...]:
    """The fields that overrides of a rollout may name."""
    return () if pipeline.rollout is None else pipeline.rollout.override_fields


def _check_override_fields(pipeline: Pipeline, columns: Mapping[str, Dtype]) -> None:
    for at, field in enumerate(override_fields(pipeline)):
        found = columns.get(field)  # None: workers for dedicated shadows don't read it
        if found is not None and found not in VALUE_TYPES:
            raise PlanError(
                f"{pipeline.at('rollout', 'override_fields', at)}: expected a text, a number or a boolean, and field "
                f"`{field}`{_of(pipeline)} is {found}. Name another field."
            )


def included_at(pipeline: Pipeline, field: str) -> Loc:
    """The place of a field in `output.include`, which is a list of fields or a mapping of fields to types."""
    include = pipeline.output.include
    is_list = not any(include.values())
    return ("output", "include", list(include).index(field) if is_list else field)


def event_time_format(pipeline: Pipeline, schema: Schema | None, columns: Mapping[str, Dtype]) -> TimeFormat:
    """The format of the event times. Raises PlanError if the field doesn't hold times, or not in the format that is set."""
    field, stated = pipeline.input.event_time, pipeline.input.event_time_format
    if field is None:
        return "milliseconds"
    found = _time_type(schema, field) or columns[field]
    known = _TIMESTAMPS.get(str(found).removeprefix("local-"))
    if columns[field] == "string":
        known = "iso8601"
    elif stated is None and (found == "int64" or (schema is None and found == "float64")):
        known = "milliseconds"
    is_other_number = stated is not None and found in ("int32", "int64", "float32", "float64")
    if known is None and not is_other_number:
        raise PlanError(
            f"{pipeline.at('input', 'event_time')}: field `{field}`{_of(pipeline)} is {found}: expected a long (milliseconds "
            f"since 1970), an Avro timestamp, text in ISO 8601, or another number with `event_time_format`. Name another field, "
            f"or none to take the record's timestamp."
        )
    allowed = [known] if known is not None else ["seconds", "milliseconds", "microseconds"]
    if stated is not None and stated not in allowed:
        raise PlanError(
            f"{pipeline.at('input', 'event_time_format')}: expected {' or '.join(allowed)}, because field "
            f"`{field}`{_of(pipeline)} is {found}, found {stated}. Correct it, or leave it out."
        )
    return stated or known or "milliseconds"


def time_format(schema: Schema | None, field: str) -> str | None:
    """The format of the Avro timestamp or date at a path, see `inference.times`; None: there is no such."""
    try:
        time = _time_type(schema, field).removeprefix("local-")
    except BadFieldError:  # the caller reports it
        return None
    return "days" if time == "date" else _TIMESTAMPS.get(time)


def _found(tree: AvroType | None, field: str, schema: Schema | None) -> Path:
    """The path. Raises BadFieldError if it is malformed, or isn't in the schema. `tree`: the schema's, if there is one."""
    path = parse_path(field)
    if schema is not None:
        type_at(tree, path, title(schema))
    return path


def _check(pipeline: Pipeline, schema: Schema | None, option: Loc, field: str | None) -> None:
    if field is None:
        return
    try:
        _found(None if schema is None else record_tree(schema), field, schema)
    except BadFieldError as error:
        expected = "a path" if schema is None else f"a field of schema `{schema.name}`"
        advice = "" if schema is None else " If another schema than yours was registered under this name, take it back."
        raise PlanError(f"{pipeline.at(*option)}: expected {expected}, found `{field}`: {error}.{advice}") from None


def _of(pipeline: Pipeline) -> str:
    name = pipeline.input.schema_name
    return f" of schema `{name}`" if name else ""


def _time_type(schema: Schema | None, field: str) -> str:
    """The logical type of a time at a path; empty if there is none."""
    if schema is None:
        return ""
    return time_type(type_at(logical_tree(schema), parse_path(field), title(schema)))
