"""The metrics by which a rollout judges its candidate."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from millstream.pipeline.sections import Section, Text
from millstream.schemas.units import PositiveDuration

Margin = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Effect = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Quality(Section):
    """A metric that needs labels."""

    margin: Margin = Field(
        0.0,
        description="How much worse than the baseline the candidate may be, in the metric's unit. Beyond that the metric is "
        "breached.",
    )
    minimum_effect: Effect | None = Field(
        None,
        description="How much better than the baseline the candidate must be, in the metric's unit. Without it, it is enough "
        "that it is not worse than `margin` allows.",
    )
    segment_margin: Margin | None = Field(
        None,
        description="How much worse it may be in a segment. Each segment must then pass, too. Without it, a segment only rolls "
        "back, at `margin`.",
    )

    @model_validator(mode="after")
    def _of_some_size(self) -> Self:
        if self.margin == 0 and self.minimum_effect is None:
            raise ValueError(
                "expected `margin` or `minimum_effect` above 0, found neither: the test must know which difference it is to "
                "find. Write for example: {margin: 0.5}."
            )
        return self


class Bounded(Quality):
    """A metric from 0 to 1."""

    @field_validator("margin", "minimum_effect", "segment_margin")
    @classmethod
    def _below_one(cls, value: float | None) -> float | None:
        """No difference of such a metric could breach a larger margin, or reach a larger effect."""
        if value is not None and value >= 1:
            raise ValueError(
                f"expected less than 1, found the number {value:g}. It is a share: write 5 points as 0.05."
            )
        return value


class Accuracy(Bounded):
    """The share of right answers."""

    margin: Margin = Field(
        0.01, description="How much lower the candidate's share of right answers may be: 0.01 is one percentage point."
    )


class Brier(Bounded):
    """The mean squared error of a probability."""

    margin: Margin = Field(
        0.005, description="How much higher the candidate's mean squared error of the probability may be."
    )


class Unscaled(Quality):
    """A metric in a unit of its own, so nobody but the user knows what is much."""

    margin: Margin = Field(
        0.0,
        description="How much worse the candidate may be, in the label's unit. Write it or `minimum_effect`.",
        examples=[0.5],
    )


class Error(Unscaled):
    """An error of a number. Only the user knows how large it can be."""

    bound: Effect | None = Field(
        None,
        description="The largest value that it can have for one event, in the metric's unit, as far as you know. Only a shadow "
        "whose answers are all the same as the primary's needs it: without it, such a shadow stays undecided.",
        examples=[100.0],
    )


class Reward(Unscaled):
    """A number of the label's record, such as revenue."""

    field: Text = Field(
        description="Path of the label's field with the reward: a number, or true or false.", examples=["revenue"]
    )
    better: Literal["higher", "lower"] = Field("higher", description="Which rewards are the better ones.")
    deviation: Effect = Field(
        1.0,
        description="How far one event's reward is usually from the mean, as far as you know. It counts only until there are "
        "rewards (bandit).",
    )


class Rate(Section):
    """A share of events that should be rare."""

    margin: Effect = Field(
        0.005, le=1, description="How much higher than the baseline's it may be: 0.005 is half a percentage point."
    )


class Latency(Section):
    """The time of the model call."""

    quantile: float = Field(
        0.8,
        ge=0,
        lt=1,
        description="Which events are compared: those with the longest model calls, from this quantile on. 0.8 is the slowest "
        "fifth.",
    )
    at_most: float = Field(
        1.5,
        gt=1,
        allow_inf_nan=False,
        description="How many times as long as the baseline's they may take, by the geometric mean: 1.5 is half as long again.",
    )


class Drift(Section):
    """How far two distributions are apart."""

    at_most: float = Field(
        0.25,
        gt=0,
        allow_inf_nan=False,
        description="Largest population stability index (PSI). From 0.25 on, a change is usually called large.",
    )


class InputDrift(Drift):
    """How far the events' fields are from those before the rollout."""

    fields: tuple[Text, ...] = Field(
        min_length=1, description="Fields of `output.include` that are watched.", examples=[["amount"]]
    )
    reference: PositiveDuration = Field(
        "24h", validate_default=True, description="The time before the rollout that they are compared with."
    )


class Metrics(Section):
    """What a candidate is judged by. The baseline of the same time is what it is compared with."""

    accuracy: Accuracy | None = Field(
        None, description="The share of right answers (classification with `comparison.threshold`, multiclass)."
    )
    brier: Brier | None = Field(None, description="The mean squared error of the probability (classification).")
    absolute_error: Error | None = Field(None, description="The mean absolute error (regression).")
    squared_error: Error | None = Field(None, description="The mean squared error (regression).")
    reward: Reward | None = Field(None, description="A number of the label's record, such as revenue.")
    errors: Rate = Field(
        {}, validate_default=True, description="Events that the baseline answered in the candidate's place."
    )
    dead_letters: Rate = Field({}, validate_default=True, description="Events that the model refused.")
    nan: Rate = Field({}, validate_default=True, description="Answers that are not finite, if they are allowed.")
    latency: Latency = Field({}, validate_default=True, description="The time of the model calls.")
    score_drift: Drift | None = Field(
        None, description="How far the candidate's scores are from the baseline's. Without it they are only reported."
    )
    input_drift: InputDrift | None = Field(
        None, description="How far the events are from those before the rollout: a large change holds the rollout."
    )

    @field_validator("*", mode="before")
    @classmethod
    def _name_alone(cls, value: object) -> object:
        """`accuracy:` without options is the metric with its defaults."""
        return {} if value is None else value

    @property
    def quality(self) -> dict[str, Quality]:
        """The metrics in the file that need labels, by name."""
        named = {name: getattr(self, name) for name in QUALITY}
        return {name: metric for name, metric in named.items() if metric is not None}


TASKS = {
    "accuracy": ("classification", "multiclass"),
    "brier": ("classification",),
    "absolute_error": ("regression",),
    "squared_error": ("regression",),
}
"""Metric -> the tasks (`comparison.task`) that it is made for."""
QUALITY = (*TASKS, "reward")
"""Metrics that need labels."""
RARE = ("errors", "dead_letters", "nan")
"""Metrics of events that should be rare. They need no labels."""
