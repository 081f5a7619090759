"""The sections of a pipeline file. Every field's description is its entry in the reference page (`millstream docs pipeline`)."""

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic.config import JsonDict

from millstream.pipeline.client_properties import ClientProperty
from millstream.pipeline.conditions import Conditions
from millstream.pipeline.names import Name, TopicName, TopicNames, WantedVersion
from millstream.pipeline.paths import FilePath
from millstream.pipeline.repository import RepositoryPlace
from millstream.pipeline.secret import Secret
from millstream.schemas.units import Duration, PositiveDuration, Size
from millstream.schemas.wording import shown

_ADDRESS = re.compile(r"([A-Za-z0-9_]+://)?([^\s,:/\[\]]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


MAX_PORT = 65_535
_SCHEMES = {"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"}  # that librdkafka takes before a host


def _addresses(value: str) -> str:
    if "@" in value:  # it may be a password, so the message doesn't show it
        raise ValueError(
            "expected host:port without a user in it, several separated by commas. Write `sasl.username` and `sasl.password` "
            "under `kafka.client`."
        )
    for address in value.split(","):
        if not _ADDRESS.fullmatch(address.strip()):
            raise ValueError(f"expected host:port, several separated by commas, found {shown(value)}")
        scheme, is_stated, _ = address.strip().lower().partition("://")
        if scheme in {"http", "https"}:
            raise ValueError(f"expected host:port, because Kafka has a protocol of its own, found {shown(value)}")
        if is_stated and scheme not in _SCHEMES:
            raise ValueError(f"expected host:port, found {shown(value)}: leave out what is before the host")
        port = address.rpartition(":")[2]
        if port.strip().isdecimal() and int(port) > MAX_PORT:
            raise ValueError(f"expected a port up to {MAX_PORT}, found {shown(value)}")
    return value


def _field_or_fields(value: object) -> object:
    specs = value if isinstance(value, tuple) else (value,)
    if not specs or not all(_is_field(spec) for spec in specs):
        raise ValueError(
            f"expected an event field or a list of them, found {shown(value)}. Write [field, field], or {{field: name}} "
            f"with options."
        )
    return value


def _is_field(spec: object) -> bool:
    field = spec.get("field") if isinstance(spec, dict) else spec
    return isinstance(field, str) and bool(field)


Text = Annotated[str, Field(min_length=1)]
ClientProperties = dict[ClientProperty, Secret]
Format = Literal["avro", "json"]

_FIELD_SCHEMA: JsonDict = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "required": ["field"], "properties": {"field": {"type": "string"}}},
    ]
}
_FIELDS_SCHEMA: JsonDict = {"anyOf": [_FIELD_SCHEMA, {"type": "array", "items": _FIELD_SCHEMA, "minItems": 1}]}


# In the order of `inference.casts.EventType`: Python takes two Literals with the same values for one, and keeps the order of
# the first one, so messages would depend on the order of imports.
IncludedType = Literal["text", "number", "int", "boolean", "any"]


def _as_types(value: object) -> object:
    """A list of fields as a mapping without types. Raises ValueError: it has something else than names."""
    if not isinstance(value, tuple):
        return value
    if others := [each for each in value if not isinstance(each, str)]:
        raise ValueError(
            f"expected names of fields in the list, found {shown(others[0])}. With types, write a mapping in place of the list: "
            "include: {customer.id: text, amount: number}."
        )
    return dict.fromkeys(value)


_INCLUDE_SCHEMA: JsonDict = {
    "$comment": "list of fields, or mapping of field to type",
    "anyOf": [
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "additionalProperties": {"enum": list(get_args(IncludedType))}},
    ],
}


class Section(BaseModel):
    """The base of all sections: no unknown keys, no silent conversions, and defaults as they are written in the file."""

    # `defer_build`: pydantic builds the validator of the whole file once. Otherwise, it would first build one for each section.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _heading_alone(cls, value: object) -> object:
        """Treat a section whose keys are all commented out as empty."""
        return {} if value is None else value


class Kafka(Section):
    """How to reach Kafka."""

    bootstrap: Annotated[Text, AfterValidator(_addresses)] = Field(
        description="Addresses of some brokers, `host:port`, separated by commas.", examples=["127.0.0.1:9092"]
    )
    client: ClientProperties = Field(
        {},
        description="Any property of librdkafka, such as `security.protocol`, for every client of the pipeline. "
        "A value is text, a number, true or false, `{file: PATH}` or `{env: NAME}`. "
        "Refused are properties that the delivery guarantee depends on, and properties that make the client run code: "
        "`plugin.library.paths`, `ssl.engine.location`, `ssl.engine.id`, `sasl.kerberos.kinit.cmd`.",
    )


class Input(Section):
    """The feature events."""

    topics: TopicNames = Field(
        validation_alias=AliasChoices("topics", "topic"),
        description="Topics to read, one or several. `topic: NAME` is short for one.",
        examples=[["feature-events"]],
        json_schema_extra={"minItems": 1},
    )
    format: Format = Field(
        description="How the values are written, in all input topics. Avro is in the schema registry's wire format. For topics "
        "of both formats, write two pipeline files; both may write to one output topic.",
        examples=["avro"],
    )
    schema_name: Text | None = Field(
        None,
        alias="schema",
        description="Name of the schema to read the values with: a file's in the schema folder, or a subject's. JSON may have "
        "none. Then the paths that the pipeline and the models name are read, and all else in the events is ignored.",
        examples=["feature-event"],
    )
    json_schema: Text | None = Field(
        None,
        description="JSON Schema that events must fit, with `format: json`: a file whose name ends in `.json`, or a subject of "
        "`schemas.registry`. With a subject, an event that begins with a schema ID must fit the schema of this ID, and others "
        "the newest version at the worker's start. An event that doesn't fit becomes a dead letter (`undecodable`). "
        "It needs the extra `json-schema`.",
        examples=["order.schema.json"],
    )
    filter: Conditions = Field(
        (),
        description="Which events are for this pipeline: a condition such as `type == order_placed`, or a list of conditions "
        "that must all hold, as in `models.route.rules`. For topics with several kinds of events. Of the other events, nothing "
        "else is read, and nothing is written. `millstream_skipped_events_total` counts them (`millstream docs filter`).",
        examples=["type == order_placed"],
    )
    event_id: Text | None = Field(
        None,
        description="Path of the field that identifies the event (`millstream docs models` explains paths), by which "
        "readers and labels find its prediction. An empty text is an id, too. Without this option the id is "
        "`<topic>-<partition>-<offset>`.",
    )
    event_time: Text | None = Field(
        None,
        description="Path of the field that says when the event happened: milliseconds since 1970 (UTC), an Avro timestamp, "
        "or text in ISO 8601 with separators, such as `2026-03-01T10:00:00Z` (without a zone: UTC). "
        "Ages and windows of comparisons count from it. Without this option, the record's timestamp counts. It also counts for "
        "an event whose field is absent or null, which Millstream counts and reports (`millstream docs models#replaced-values`).",
    )
    event_time_format: Literal["iso8601", "seconds", "milliseconds", "microseconds"] | None = Field(
        None,
        description="Form of `event_time`, if it is none of these, or if events have no schema: text in ISO 8601, or a number of "
        "seconds, milliseconds or microseconds since 1970. Without a schema, the default is milliseconds.",
    )
    key: Text | None = Field(
        None,
        description="Path of the field that `millstream produce` takes as the record's key. It chooses partitions as Java's "
        "clients do.",
    )
    start: Literal["earliest", "latest"] = Field(
        "earliest",
        description="Where a group that has committed nothing yet begins to read. `latest` leaves out the events of the past. "
        "But partitions that a topic gets while workers run are read from their beginning.",
    )
    max_age: PositiveDuration | None = Field(
        None,
        description="How old an event may be, by its time, when the model would run it. An older one is rejected as `expired`, "
        "see `on_error`: for predictions that are of no use later. Without it, any age.",
    )
    deadline_header: Text | None = Field(
        None,
        description="Header of an event that says until when a prediction is of use, in milliseconds since 1970 (UTC) as text. "
        "After that it is rejected as `expired`.",
    )
    weights: dict[Text, Annotated[float, Field(gt=0, le=1_000_000)]] = Field(
        {},
        description="Under a backlog, topics share the model's time by these numbers. The default is 1. So urgent events don't "
        "wait behind bulk ones. Without weights, the worker runs events in the order in which they come.",
        examples=[{"urgent": 10, "bulk": 1}],
    )

    @model_validator(mode="before")
    @classmethod
    def _topic_or_topics(cls, value: object) -> object:
        if isinstance(value, dict) and "topic" in value and "topics" in value:
            raise ValueError("expected `topic` or `topics`, found both. Keep one.")
        return value


class Output(Section):
    """The predictions."""

    topic: TopicName = Field(description="Topic that predictions are written to.", examples=["predictions"])
    format: Format = Field("avro", description="How predictions are written. `json` is for readers without Avro.")
    carry_headers: tuple[Text, ...] = Field(
        ("traceparent", "tracestate", "baggage"),
        description="Headers of an event that its prediction carries on: by default, those of distributed tracing.",
    )
    include: Annotated[
        dict[Text, IncludedType | None], BeforeValidator(_as_types), WithJsonSchema(_INCLUDE_SCHEMA)
    ] = Field(
        {},
        description="Fields of the event that its prediction has too, with their types, under `event`. So readers need not "
        "join predictions with events. A field is a number, a boolean, a text, or a list of these. Write a list such as "
        "`[customer_id, amount]`. In JSON without a schema, the type of a field that the model doesn't read isn't known: write a "
        "mapping such as `{customer.id: text, amount: number}` in place of the list. The types are `text`, `int`, `number`, "
        "`boolean` and `any` (each of these, written as text; no list). For a list, write `[]` behind the field, and the type of "
        "its items: `\"tags[]\": text`.",
        examples=[["customer_id", "amount"]],
    )  # fmt: skip


class DeadLetters(Section):
    """The events that cannot be processed."""

    topic: TopicName = Field(
        description="Topic that they are written to, with the reason. Set it if names of topics follow a rule. If several "
        "pipelines share it, `millstream dead-letters list` shows the letters of all of them, and `replay` replays "
        "those of its own.",
        json_schema_extra={"default": "<name>-dead-letters"},
    )


Reason = Literal[
    "undecodable", "unknown_schema", "schema_incompatible", "unfit", "no_model", "model_rejected", "nan_output",
    "prediction_too_large", "crashed", "internal_error", "expired",
]  # fmt: skip
"""Why an event gets no prediction."""


class OnError(Section):
    """What happens to an event without a prediction, unless it becomes a dead letter."""

    stop: tuple[Reason, ...] = Field(
        (),
        description="Reasons at which the worker ends with a message, and commits nothing after the event. For pipelines in "
        "which each event must get its prediction before any later one. `millstream docs wire-format` explains the reasons.",
        examples=[["model_rejected"]],
    )
    skip: tuple[Literal["expired"], ...] = Field(
        (),
        description="Reasons at which nothing is written, and the event is only counted: for late events that nobody will "
        "look at. A reason in both lists stops the worker.",
        examples=[["expired"]],
    )


class NamedModel(Section):
    """One model of the repository."""

    name: Name = Field(
        description="Name of the model: its folder in the repository, or its name in MLflow.",
        examples=["my-model"],
    )
    version: WantedVersion | None = Field(
        None,
        description="Version of the model: its number, `latest`, or an alias such as `champion` (`millstream docs registries`). "
        "Required if the model has several versions.",
        examples=[3],
    )
    inputs: dict[Text, Annotated[Any, BeforeValidator(_field_or_fields), WithJsonSchema(_FIELDS_SCHEMA)]] = Field(
        {},
        description="For each input tensor the event field, or the list of fields, that fills it. "
        "In place of what the model's `config.yaml` says: for events that name their fields otherwise. A field is a path such as "
        "`customer.age`, or a mapping such as `{field: customer.age, type: text}` with the options of `config.yaml` "
        "(`millstream docs models`). Each field keeps the options that `config.yaml` has in its place, unless it states others. "
        "Shadows don't take it: they may have other inputs. Their fields are those of their own `config.yaml`.",
    )


class ModelSettings(Section):
    """Where models are, and how a worker runs them."""

    repository: RepositoryPlace = Field(
        "models",
        validate_default=True,
        description="Where the models are: a folder, or a URL with `s3://`, `gs://`, `az://`, `hf://` or `file://`, laid out "
        "`<name>/<version>/` (`millstream docs models`); or MLflow: `models:/`, `models:/NAME@ALIAS` or `models:/NAME/3`. "
        "Versions from a URL are fetched into `cache` (`millstream docs registries`).",
    )
    client: dict[Text, Secret] = Field(
        {},
        description="Options of the client that reads a URL: of fsspec for this kind of URL, such as `endpoint_url`, `key` and "
        "`secret` for `s3://`; or for MLflow `tracking_uri`, `username`, `password` and `token`. A value is text, a number, true "
        "or false, `{file: PATH}` or `{env: NAME}`. Without them, the client takes what it finds in its usual places, such as "
        "`AWS_ACCESS_KEY_ID`.",
        examples=[{"endpoint_url": "http://127.0.0.1:9000"}],
    )
    cache: FilePath | None = Field(
        None,
        description="Folder that keeps the versions fetched from a URL, for all workers of the machine. A worker starts from it "
        "while the repository is away. Nobody else may write to it.",
        json_schema_extra={"default": "~/.cache/millstream/models"},
    )
    cache_size: Size = Field(
        "20GiB",
        validate_default=True,
        description="Most bytes that the versions in `cache` may take together. The least recently used ones are deleted; "
        "versions that a process uses never are.",
    )
    poll_interval: PositiveDuration = Field(
        "30s",
        validate_default=True,
        description="How often a worker looks whether `latest` or the alias in `version` names another version. It then loads "
        "that one beside the one that answers, and switches between two batches (`millstream docs reload`). A number is looked "
        "up once. Autopilot looks at `rollout.candidate` as often.",
    )
    device: Literal["auto", "cpu", "cuda", "tensorrt"] = Field(
        "auto",
        description="What runs the model. `auto` takes a GPU where there is one, `cpu` leaves it to others. `tensorrt` is for "
        "ONNX models.",
    )
    trust: bool = Field(
        False,
        description="Whether to load a torch model (`model.pt2`, `model.pt`), and a model from a URL that is not ONNX. Loading "
        "such files can run code and write files, also in `millstream check`. Write `true` only if you trust their authors "
        "(`millstream docs models`). It applies to shadows too.",
    )
    threads: int = Field(
        1,
        ge=1,
        description="CPU threads of one inference. Raise it if a single batch takes too long. For more events, start more "
        "workers.",
    )
    instances: int = Field(
        1,
        ge=1,
        le=64,
        description="Copies of the model that a worker holds, each of which runs batches beside the others. For a model that one "
        "batch at a time does not keep busy, and that can't be called from several threads.",
    )
    concurrent_batches: int = Field(
        1,
        ge=1,
        le=64,
        description="Batches that each copy of the model runs at a time: for a device or a server that works on several at once. "
        "A Python model must allow calls from several threads then.",
    )
    gpu_memory: Size | None = Field(
        None,
        description="Most GPU memory that the copies of the model may take together, such as `4GiB`, so that several workers can "
        "share a GPU. Each shadow may take as much. Without it, there is no limit. For ONNX and torch models "
        "(`millstream docs gpu`).",
        examples=["4GiB"],
    )
    engine_cache: FilePath = Field(
        "engines",
        validate_default=True,
        description="Folder where workers keep the engines that TensorRT compiles with `device: tensorrt`, so that it takes "
        "minutes only once. Nobody else may write to it: loading an engine can run code.",
    )
    allow_nan: bool = Field(
        False,
        description="Whether a feature may be NaN or infinite, as for models that take NaN for a missing value. If not, its "
        "event becomes a dead letter. A null is no NaN: an event with a null feature becomes a dead letter, unless the "
        "model's `config.yaml` has `missing` for the field.",
    )
    allow_nan_outputs: bool = Field(
        False,
        description="Whether an output may be NaN or infinite, as the logarithm of a probability may. If not, its event is "
        "rejected as `nan_output`.",
    )


class Model(ModelSettings, NamedModel):
    """The model that makes the predictions. The options of `NamedModel` come first."""


class Batch(Section):
    """The bounds of a micro-batch. It is closed at the first one that it reaches."""

    max_events: int = Field(
        256,
        ge=1,
        description="Most events in a batch. Raise it for a model that needs less time per event in large batches.",
    )
    max_wait: Duration = Field(
        "5ms",
        validate_default=True,
        description="Longest wait for more events, since the oldest one of the batch arrived. Where no other is expected in that "
        "time, the batch does not wait. With `exactly_once`, a batch may wait longer: until shortly before the next commit. "
        "Readers see its results only after that.",
    )
    target_p99: PositiveDuration | None = Field(
        None,
        description="How soon after being read 99 in 100 events are to have their result. A batch waits for more events only "
        "while this target allows it, at most `max_wait` (`millstream docs batching`).",
    )
    max_bytes: Size = Field(
        "1MiB",
        validate_default=True,
        description="Most bytes of records (keys, values, headers) in a batch. Bounds the memory of a model call if events "
        "differ much in size.",
    )
    cost: Text | None = Field(
        None,
        description="Path of the field that says what an event costs the model: a number (rounded up), or a text, or a list of "
        "numbers or texts, whose length counts. With `max_cost`, for models whose work depends on the length of their inputs. "
        "An event whose field is absent or null costs 0, which Millstream counts and reports "
        "(`millstream docs models#replaced-values`).",
    )
    max_cost: Annotated[int, Field(ge=1, le=2**40)] | None = Field(
        None, description="Most that a batch's events cost together. An event that costs more is a batch of its own."
    )


class GroupMembership(Section):
    """A worker's membership in its consumer group."""

    protocol: Literal["classic", "consumer"] = Field(
        "classic",
        description="`classic`: cooperative-sticky, a crashed worker's partitions move after 6 s. `consumer`: the broker "
        "assigns (KIP-848) and joining is faster; its session timeout (45 s by default) is the broker's setting.",
    )
    static: bool = Field(
        False,
        description="Whether a restarted worker takes its partitions back at once, by its instance ID. Only for workers that "
        "come back: one that ends for good leaves its partitions alone until the session times out. With `classic` only.",
    )


class Limits(Section):
    """Limits of a worker's memory and time."""

    in_flight_events: int = Field(
        100_000,
        ge=2,
        description="Most events in flight: read, and their results not yet delivered. Lower it if fewer events may be read "
        "again after a crash. At this limit, the worker reads nothing more. After half a second, it pauses its partitions until "
        "half of the limit is free.",
    )
    in_flight_bytes: Size = Field(
        "128MiB",
        validate_default=True,
        description="Most bytes of all events in flight, by the memory that a worker may have: a quarter of it fetched ahead, "
        "half of it read (an event counts as 2 x its value + 384 bytes; more for variable-length inputs and included lists, "
        "`millstream docs models`), a quarter of it written and not yet delivered.",
    )
    drain_timeout: PositiveDuration = Field(
        "20s",
        validate_default=True,
        description="How long a worker may take to finish its events when it stops, or its running batches when its partitions "
        "move. Set it below the time after which a supervisor would kill it. Leaving the group takes up "
        "to 10 s more where no broker answers.",
    )
    batch_timeout: PositiveDuration = Field(
        "10m",
        validate_default=True,
        description="How long a batch may be in the model. Then the worker ends, for a call that hangs can't be ended otherwise. "
        "At a worker's start, `/live` returns 200 for as long while the models are loaded, and for as long while each copy of "
        "the model warms up.",
    )
    crash_attempts: int = Field(
        3,
        ge=1,
        description="After this many crashes at the same events, workers run these events few at a time, and then one by one. "
        "The event that crashes workers is rejected as `crashed`. Raise it if workers are often killed for other reasons.",
    )
    stall_after: PositiveDuration = Field(
        "60s",
        validate_default=True,
        description="How long the worker's loop may stand still before `/live` fails. After twice that time the worker ends, for "
        "supervisors that don't ask. While no broker answers, it does neither.",
    )


class Scaling(Section):
    """The number of workers of `millstream run`, and how soon a backlog should be gone."""

    min: int = Field(1, ge=1, description="Fewest workers. Raise it for load that comes faster than a worker starts.")
    max: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description="Most workers. Set it to leave cores to other programs. More than the input's partitions find no work.",
        json_schema_extra={"default": "the partitions, at most the machine's cores"},
    )
    catch_up: PositiveDuration = Field(
        "30s",
        validate_default=True,
        description="How soon a backlog should be gone: the target that workers are added for.",
    )
    scale_down_after: Duration = Field(
        "2m",
        validate_default=True,
        description="How long fewer workers must have been enough before one goes, so that a short lull ends none.",
    )
