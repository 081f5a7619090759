"""The pipeline file: one YAML file describes one pipeline. Every option is listed in docs/pipeline.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, PrivateAttr, ValidationError, field_validator

from millstream.schemas.wording import Loc, dotted
from millstream.topics.client_properties import unsafe_values
from millstream.topics.client_trial import client_refusals
from millstream.topics.comparison_sections import Comparison, Labels, Shadow
from millstream.topics.errors import PipelineError, Problem
from millstream.topics.pipeline_problems import problems_of
from millstream.topics.pipeline_schema import schema_tree
from millstream.topics.schema_sections import Schemas
from millstream.topics.secret import Origin
from millstream.topics.sections import (
    Batch,
    DeadLetters,
    GroupMembership,
    Input,
    Kafka,
    Limits,
    Model,
    OnError,
    Output,
    Scaling,
    Section,
    Text,
)
from millstream.topics.shadow_conflicts import shadow_conflicts
from millstream.topics.units import PositiveDuration
from millstream.topics.yaml_places import Document, read_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pydantic import ValidationInfo


class Pipeline(Section):
    """One pipeline. Made by `load_pipeline`; durations are seconds, sizes are bytes, paths are absolute."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9._-]{1,200}$",
        description="Name of the pipeline, in metrics and in the names made from it. The characters of a topic's name.",
        examples=["my-pipeline"],
    )
    kafka: Kafka = Field(description="How to reach Kafka.")
    group: Text | None = Field(
        None, description="Consumer group of the workers.", json_schema_extra={"default": "<name>"}
    )
    schemas: Schemas = Field({}, validate_default=True, description="Where record schemas are.")
    input: Input = Field(description="The feature events.")
    output: Output = Field(description="The predictions.")
    dead_letters: DeadLetters = Field({}, validate_default=True, description="The events that cannot be processed.")
    model: Model = Field(description="The model that answers.")
    batch: Batch = Field(
        {}, validate_default=True, description="When a micro-batch is closed: at the first of these bounds."
    )
    delivery: Literal["at_least_once", "exactly_once"] = Field(
        "at_least_once",
        description="What a crash may do. `at_least_once`: no result is lost, and a few may be written twice. `exactly_once`: "
        "results and offsets commit in one Kafka transaction, and readers see each result once (with "
        "`isolation.level=read_committed`).",
    )
    ordering: Literal["partition", "key", "none"] = Field(
        "partition",
        description="Which results may pass others where several batches run at a time. `partition`: none within a partition. "
        "`key`: those of other keys. `none`: all. With `exactly_once` always `partition`.",
    )
    commit_every: PositiveDuration | None = Field(
        None,
        description="How often results and offsets are committed. With `exactly_once` readers see a result only then, so it is "
        "a latency setting.",
        json_schema_extra={"default": "100ms; 15ms with exactly_once"},
    )
    membership: GroupMembership = Field(
        {}, validate_default=True, description="How a worker is a member of its consumer group."
    )
    on_error: OnError = Field(
        {},
        validate_default=True,
        description="What becomes of an event that gets no prediction, by reason. `dead_letter`: it is kept in the dead-letter "
        "topic. `stop`: the worker ends with a message, and nothing after the event is committed.",
    )
    limits: Limits = Field({}, validate_default=True, description="How much a worker holds and how long it may take.")
    scaling: Scaling = Field(
        {},
        validate_default=True,
        description="How many workers `millstream run` keeps, and how soon a backlog should be gone.",
    )

    shadows: tuple[Shadow, ...] = Field(
        (), description="Model versions that answer a sample of the events too, for comparison alone."
    )
    comparison: Comparison = Field(
        {},
        validate_default=True,
        description="Where comparisons of primary and shadows go, and how `millstream compare` reads them.",
    )
    labels: Labels | None = Field(None, description="The true outcomes, on a topic of their own, whatever its key.")

    _path: Path = PrivateAttr()
    _document: Document = PrivateAttr()

    def model_post_init(self, context: object, /) -> None:
        """Remember the file that the pipeline was read from."""
        if isinstance(context, Origin):
            self._path, self._document = context.path, context.document

    @field_validator("dead_letters", "comparison", mode="before")
    @classmethod
    def _named_after_pipeline(cls, value: object, info: ValidationInfo) -> object:
        section = {} if value is None else value
        if not isinstance(section, dict):
            return section
        # Where the name itself is wrong, that is the only problem to tell.
        name = info.data.get("name", "unnamed")
        if info.field_name == "dead_letters":
            return {"topic": f"{name}-dead-letters", **section}
        return {"topic": f"{name}-comparisons", "evaluations": f"{name}-evaluations", **section}

    @property
    def path(self) -> Path:
        """The pipeline file, absolute."""
        return self._path

    @property
    def named(self) -> Path:
        """The pipeline file as the command line named it, for commands to copy."""
        return self._document.path

    def at(self, *place: str | int) -> str:
        """Where an option stands, to begin a message with: `FILE:LINE: input.event_id`."""
        return f"{self.named}:{self._document.lines[self._document.known(place)]}: {dotted(place)}"

    @property
    def group_id(self) -> str:
        """The consumer group: `group`, or the pipeline's name."""
        return self.group or self.name

    @property
    def commit_seconds(self) -> float:
        """How often results and offsets are committed, seconds."""
        if self.commit_every is not None:
            return self.commit_every
        return 0.015 if self.delivery == "exactly_once" else 0.1

    def shadow_model(self, shadow: Shadow) -> tuple[str, int]:
        """A shadow's model: name and version."""
        return shadow.model or self.model.name, shadow.version

    def client_config(self) -> dict[str, str | int | float | bool]:
        """Return the settings that every Kafka client of the pipeline starts from. Holds secrets: never print it."""
        client = {name: value.get_secret_value() for name, value in self.kafka.client.items()}
        return {"bootstrap.servers": self.kafka.bootstrap, **client}


def load_pipeline(path: Path, environ: Mapping[str, str]) -> Pipeline:
    """Read and check the pipeline file at `path`; variables and secrets come from `environ`.

    Raises PipelineError, which lists every problem found with its line.
    """
    document = read_document(path, environ)
    pipeline, problems = _validated(document, Origin(path.absolute(), environ, document))
    if pipeline is not None:
        problems.extend(
            Problem(message, document.lines[document.known(place)], dotted(place))
            for place, message in _conflicts(pipeline, document)
        )
    if pipeline is None or problems or document.problems:
        raise PipelineError(path, [*document.problems, *problems])
    return pipeline


def _validated(document: Document, origin: Origin) -> tuple[Pipeline | None, list[Problem]]:
    # Raising from here would chain pydantic's error, which holds the values, to ours.
    try:
        return Pipeline.model_validate(document.data, context=origin), []
    except ValidationError as error:
        return None, problems_of(error, document, schema_tree(Pipeline))


def _conflicts(pipeline: Pipeline, document: Document) -> Iterator[tuple[Loc, str]]:
    """Yield the places whose values are right each by itself and impossible together."""

    def written(*places: Loc) -> Loc:
        """Return the first of the places that stands in the file, the first of all if none does."""
        return next((place for place in places if place in document.lines), places[0])

    inputs = written(("input", "topics"), ("input", "topic"))
    letters = pipeline.dead_letters.topic
    if pipeline.output.topic in pipeline.input.topics:
        yield inputs, f"{pipeline.output.topic} is also output.topic: the pipeline would read its own predictions."
    if letters in pipeline.input.topics:
        yield inputs, f"{letters} is also dead_letters.topic: the pipeline would read its own dead letters."
    if pipeline.output.topic == letters:
        yield (
            written(("dead_letters", "topic"), ("output", "topic")),
            f"{letters} is output.topic and dead_letters.topic. Give dead letters a topic of their own.",
        )
    for topic in sorted(set(pipeline.input.weights) - set(pipeline.input.topics)):
        yield (
            written(("input", "weights", topic), ("input", "weights")),
            f"expected topics of input.topics ({', '.join(pipeline.input.topics)}), found {topic}.",
        )
    if pipeline.limits.held_events < 2 * pipeline.batch.max_events:
        yield (
            written(("limits", "held_events"), ("batch", "max_events")),
            f"limits.held_events ({pipeline.limits.held_events}) must be at least twice batch.max_events "
            f"({pipeline.batch.max_events}): one batch runs while the next one fills.",
        )
    if pipeline.limits.held_bytes < 8 * pipeline.batch.max_bytes:
        yield (
            written(("limits", "held_bytes"), ("batch", "max_bytes")),
            f"limits.held_bytes ({pipeline.limits.held_bytes} bytes) must be at least 8 times batch.max_bytes "
            f"({pipeline.batch.max_bytes} bytes): one batch runs while the next one fills.",
        )
    if pipeline.membership.static and pipeline.membership.protocol == "consumer":
        yield (
            ("membership", "static"),
            "expected false with `protocol: consumer`: the broker would refuse a worker restarted before its session timed out.",
        )
    if pipeline.scaling.max is not None and pipeline.scaling.max < pipeline.scaling.min:
        yield (
            written(("scaling", "max"), ("scaling", "min")),
            f"scaling.max ({pipeline.scaling.max}) must be at least scaling.min ({pipeline.scaling.min}).",
        )
    yield from _batch_conflicts(pipeline)
    yield from _registry_conflicts(pipeline)
    yield from shadow_conflicts(pipeline, document)
    yield from _client_conflicts(pipeline, document)


def _batch_conflicts(pipeline: Pipeline) -> Iterator[tuple[Loc, str]]:
    batch, at_once = pipeline.batch, pipeline.delivery == "at_least_once"
    if (batch.cost is None) != (batch.max_cost is None):
        there, missing = ("max_cost", "cost") if batch.cost is None else ("cost", "max_cost")
        yield (
            ("batch", there),
            f"batch.cost and batch.max_cost go together, batch.{missing} is not there. Write both or none.",
        )
    if batch.target_p99 is not None and not at_once and batch.target_p99 <= pipeline.commit_seconds:
        yield (
            ("batch", "target_p99"),
            f"expected more than commit_every ({pipeline.commit_seconds * 1000:g}ms): with exactly_once readers see a result at "
            f"a commit only. Give it more, or commit more often.",
        )


def _registry_conflicts(pipeline: Pipeline) -> Iterator[tuple[Loc, str]]:
    registry = pipeline.schemas.registry
    if registry and pipeline.schemas.directory:
        yield ("schemas", "directory"), "schemas come from a directory or from a registry, found both. Keep one."
    if not registry and not pipeline.schemas.directory:
        yield ("schemas", "directory"), "expected a path, found nothing. Write for example: directory: schemas"
    if registry and (registry.username is None) != (registry.password is None):
        missing = "password" if registry.password is None else "username"
        yield ("schemas", "registry", missing), "username and password go together. Write both or none."


def _client_conflicts(pipeline: Pipeline, document: Document) -> Iterator[tuple[Loc, str]]:
    client = {name: value.get_secret_value() for name, value in pipeline.kafka.client.items()}
    unsafe = list(unsafe_values(client))
    yield from ((("kafka", "client", name), message) for name, message in unsafe)
    for name, said in () if unsafe else client_refusals(pipeline):
        place = ("kafka", "client") if name is None else ("kafka", "client", name)
        told = "its message quotes a secret and is not shown" if _quotes_a_secret(said, client, document) else said
        yield place, f"the Kafka client refuses it: {told.rstrip('.')}. Correct it, or leave it out."


def _quotes_a_secret(said: str, client: Mapping[str, str], document: Document) -> bool:
    """Whether the Kafka client's message quotes a secret. It truncates long values, so the first 8 characters count."""
    section = document.data["kafka"]
    written = section.get("client") if isinstance(section, dict) else None
    secrets = [
        " ".join(client[name].split())
        for name in client
        if isinstance(written, dict) and isinstance(written[name], dict)
    ]
    return any(secret[:8] in said for secret in secrets)
