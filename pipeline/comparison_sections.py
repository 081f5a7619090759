"""The sections of a pipeline file that compare models: shadows, labels and the comparison itself."""

from typing import Annotated, Literal

from pydantic import Field

from millstream.pipeline.names import Name, TopicName, Version
from millstream.pipeline.sections import Format, Section, Text
from millstream.schemas.units import Duration, PositiveDuration

EXPECTED_LABELS = {
    "classification": "true or false, or 1 or 0 (for classes, write `comparison: {task: multiclass}`; "
    "for numbers `{task: regression}`)",
    "multiclass": "a class by its name or its index",
    "regression": "a number",
}
"""`comparison.task` -> what a label must be, for messages."""


class Shadow(Section):
    """A model version that also runs on a sample of the events, only for comparison."""

    version: Version = Field(description="Version of the model.", examples=[2])
    name: Name = Field("shadow", description="Name of the shadow, in comparisons and metrics. No two have the same.")
    model: Name | None = Field(
        None,
        description="Name of the model, in the same repository, if it is not a version of the primary's.",
        json_schema_extra={"default": "<model.name>"},
    )
    sample_rate: float = Field(
        1.0,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Share of the events that it predicts, to bound what it costs: always the same ones, by key (by event id "
        "where there is none).",
        examples=[0.1],
    )
    dedicated: bool = Field(
        False,
        description="Whether it has workers of its own, `millstream work --role shadow`: a consumer group of their own, on "
        "another machine or GPU, that runs both models. If not, it runs in the primary's workers, behind it.",
    )
    max_load: float = Field(
        0.5,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Share of a worker's time that it may take, of one core or of the device. Events beyond that are shed, "
        "and counted.",
    )


class Labels(Section):
    """The true outcomes, on a topic of their own, with any key."""

    topic: TopicName = Field(description="Topic of the labels.", examples=["labels"])
    format: Format = Field("avro", description="How the values are written. Avro is in the registry's wire format.")
    schema_name: Text | None = Field(
        None,
        alias="schema",
        description="Name of the schema to read the values with. JSON may have none.",
        examples=["label"],
    )
    event_id: Text = Field(
        description="Path of the field that names the event, as its prediction does.", examples=["event_id"]
    )
    value: Text = Field(
        description="Path of the field with the outcome: for classification true or false, or 1 or 0; for multiclass the name "
        "or the index of a class; for regression a number.",
        examples=["late"],
    )
    early: PositiveDuration = Field(
        "10m",
        validate_default=True,
        description="How long a label that has no comparison is kept for it. Raise it if a shadow lags for longer. After that "
        "the label is counted as unknown.",
    )
    wait: Duration = Field(
        "1h",
        validate_default=True,
        description="How long a window waits for labels after its end, in event time. Later ones are counted as late.",
    )


class Comparison(Section):
    """The topics of comparisons and evaluations, and how `millstream compare` computes evaluations."""

    topic: TopicName = Field(
        description="Topic of the comparisons, one for each compared event.",
        json_schema_extra={"default": "<name>-comparisons"},
    )
    evaluations: TopicName = Field(
        description="Topic of the results, compacted: the newest for each window and pair.",
        json_schema_extra={"default": "<name>-evaluations"},
    )
    output: Text | None = Field(
        None,
        description="Output of the models that is the score (multiclass: the class). `millstream check` says which one is "
        "chosen without it.",
    )
    item: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="Which item of that output is the score, from 0, where it is an array. Without it, arrays are compared by "
        "the place of their largest item only.",
    )
    task: Literal["classification", "multiclass", "regression"] = Field(
        "classification",
        description="What the models predict: the probability of one outcome, one of several classes, or a number.",
    )
    classes: tuple[Text, ...] | None = Field(
        None,
        min_length=2,
        max_length=10_000,
        description="Names of the classes, in the order of the scores (multiclass).",
        json_schema_extra={"default": "those in the primary's config.yaml"},
        examples=[["bird", "cat", "dog"]],
    )
    threshold: float = Field(
        0.5,
        allow_inf_nan=False,
        description="Score from which an answer is positive (classification): what your application uses.",
    )
    tolerance: float = Field(
        1e-6,
        ge=0,
        allow_inf_nan=False,
        description="Difference up to which two scores agree (regression): what makes no difference to your application.",
    )
    window: PositiveDuration = Field(
        "1h",
        validate_default=True,
        description="Length of a window, in event time. Windows begin at whole multiples of it.",
    )
    update_every: PositiveDuration = Field(
        "10s",
        validate_default=True,
        description="How often results of open windows are written. A shorter time shows them sooner, and writes more.",
    )
    max_events: int = Field(
        200_000,
        ge=1000,
        description="Most events of a window that are kept for each partition. Above it a random half is let go, and counted. "
        "Raise it for more exact figures, lower it for less memory.",
    )
