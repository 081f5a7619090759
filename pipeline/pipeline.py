"""The pipeline file: a YAML file that describes one pipeline. docs/pipeline.md lists every option."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, PrivateAttr, field_validator
from pydantic_core import PydanticCustomError

from millstream.pipeline.comparison_sections import Comparison, Labels, Shadow
from millstream.pipeline.feature_store_section import FeatureStore
from millstream.pipeline.model_sections import Models
from millstream.pipeline.names import Name
from millstream.pipeline.repository import mlflow_url
from millstream.pipeline.rollout_section import Rollout
from millstream.pipeline.schema_sections import Schemas
from millstream.pipeline.secret import Origin
from millstream.pipeline.sections import (
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
from millstream.schemas.units import PositiveDuration
from millstream.schemas.wording import dotted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationInfo


class Pipeline(Section):
    """A pipeline, created by `load_pipeline`. Durations are in seconds, sizes in bytes, and paths are absolute."""

    name: Name = Field(
        description="Name of the pipeline, in metrics and in the names made from it. The characters of a topic's name.",
        examples=["my-pipeline"],
    )
    kafka: Kafka = Field(description="How to reach Kafka.")
    group: Text | None = Field(
        None,
        description="Consumer group of the workers. Set it if the cluster's access rules ask for a certain name.",
        json_schema_extra={"default": "<name>"},
    )
    schemas: Schemas = Field({}, validate_default=True, description="Where record schemas are.")
    input: Input = Field(description="The feature events.")
    output: Output = Field(description="The predictions.")
    dead_letters: DeadLetters = Field({}, validate_default=True, description="The events that cannot be processed.")
    models: Models | None = Field(
        None,
        description="In place of `model`: several models. Write one of `route`, `tenants`, `cascade` and `ensemble` "
        "(`millstream docs several-models`).",
    )
    # With `models`, it stands for all of them: it has their settings, and a name for messages.
    model: Model = Field(None, validate_default=True, description="The model that answers.")
    feature_store: FeatureStore | None = Field(
        None, description="An online store with features that the events lack (`millstream docs feature-lookup`)."
    )
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
        description="Which order results keep if several batches run at a time. `partition`: that of their partition. `key`: "
        "that of their key. `none`: no order. The last two are for models whose batches differ much in duration. With "
        "`exactly_once` always `partition`.",
    )
    commit_every: PositiveDuration | None = Field(
        None,
        description="How often results and offsets are committed. A shorter time repeats fewer results after a crash, a longer "
        "one costs the broker less. With `exactly_once` readers see a result only then, so it is a latency setting, and "
        "at most 5s.",
        json_schema_extra={"default": "100ms; 15ms with exactly_once"},
    )
    membership: GroupMembership = Field(
        {}, validate_default=True, description="How a worker is a member of its consumer group."
    )
    on_error: OnError = Field(
        {},
        validate_default=True,
        description="What becomes of an event that gets no prediction. By default, it becomes a dead letter.",
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
        description="Where comparisons of primary and shadows go, and how `millstream compare` reads them. Without shadows or a "
        "rollout, only `millstream replay` and `millstream report` use it.",
    )
    labels: Labels | None = Field(None, description="The true outcomes, on a topic of their own, whatever its key.")
    rollout: Rollout | None = Field(
        None, description="How a new version of the model takes over (`millstream docs rollouts`)."
    )

    _origin: Origin = PrivateAttr()

    def model_post_init(self, context: object, /) -> None:
        """Remember the file that the pipeline was read from."""
        if isinstance(context, Origin):
            self._origin = context

    @field_validator("model", mode="before")
    @classmethod
    def _one_or_several(cls, value: object, info: ValidationInfo) -> object:
        several = info.data.get("models")
        if value is not None and several is not None:
            raise ValueError("expected one of `model` and `models`, found both. Keep one.")
        if value is None and several is None and "models" in info.data:
            raise PydanticCustomError("missing", "Field required")
        if value is not None:
            return value
        # If `models` or the name is wrong, that is the only problem to report.
        name, version = info.data.get("name", "unnamed"), None
        if several is not None and several.ensemble is not None:
            name, version = several.ensemble.name or name, several.ensemble.version
        settings = {} if several is None else several.settings()
        return Model.model_construct(**settings, name=name, version=version)

    @field_validator("dead_letters", "comparison", "rollout", mode="before")
    @classmethod
    def _named_after_pipeline(cls, value: object, info: ValidationInfo) -> object:
        section = {} if value is None else value
        if not isinstance(section, dict):
            return section
        # If the name itself is wrong, that is the only problem to report.
        name = info.data.get("name", "unnamed")
        if info.field_name == "dead_letters":
            return {"topic": f"{name}-dead-letters", **section}
        if info.field_name == "rollout":
            return {"topic": f"{name}-rollout", "evaluations": f"{name}-rollout-evaluations", **section}
        return {"topic": f"{name}-comparisons", "evaluations": f"{name}-evaluations", **section}

    @property
    def path(self) -> Path:
        """The pipeline file, absolute."""
        return self._origin.path

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment variables that secrets may be in: those that the file was read with."""
        return self._origin.environ

    @property
    def named(self) -> Path:
        """The pipeline file as the command line named it, for commands to copy."""
        return self._origin.document.path

    @property
    def named_in_log(self) -> Path:
        """The same for a log, which people read in other folders: absolute if the command line named no folder."""
        return self.named if len(self.named.parts) > 1 else self.path

    def at(self, *place: str | int) -> str:
        """The place of an option, for the beginning of a message: `FILE:LINE: input.event_id`."""
        if self.models is not None and place[:1] == ("model",):  # its settings are there
            place = ("models", *place[1:])
        return f"{self.named}:{self._origin.document.lines[self._origin.document.known(place)]}: {dotted(place)}"

    @property
    def group_id(self) -> str:
        """The consumer group: `group`, or the pipeline's name."""
        return self.group or self.name

    @property
    def commit_seconds(self) -> float:
        """Seconds between two commits of results and offsets."""
        if self.commit_every is not None:
            return self.commit_every
        return 0.015 if self.delivery == "exactly_once" else 0.1

    @property
    def wanted_version(self) -> int | str | None:
        """The primary's version: its number, `latest`, an alias, or None: the only one. A `models:/` URL may name it."""
        url = mlflow_url(self.model.repository)
        return self.model.version if url is None or url.version is None else url.version

    @property
    def model_cache(self) -> Path:
        """The folder that keeps versions fetched from a URL."""
        home = self.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return self.model.cache or Path(home) / "millstream" / "models"

    @property
    def includes_fields(self) -> bool:
        """Whether predictions have fields of the event, or ages of looked-up features."""
        lookups = () if self.feature_store is None else self.feature_store.lookups
        return bool(self.output.include) or any(lookup.include_age for lookup in lookups)

    def shadow_model(self, shadow: Shadow) -> tuple[str, int]:
        """A shadow's model: name and version."""
        return shadow.model or self.model.name, shadow.version

    def client_config(self) -> dict[str, str | int | float | bool]:
        """Return the settings that all Kafka clients of the pipeline share. They contain secrets: never print them."""
        client = {name: value.get_secret_value() for name, value in self.kafka.client.items()}
        return {"bootstrap.servers": self.kafka.bootstrap, **client}
