"""The section `rollout`: how a new model version takes over, step by step."""

from typing import Literal

from pydantic import Field, SecretStr, field_validator

from millstream.pipeline.names import TopicName, Version, WantedVersion
from millstream.pipeline.rollout_metrics import Accuracy, Metrics, Quality
from millstream.pipeline.secret import Secret
from millstream.pipeline.sections import Section, Text
from millstream.pipeline.shares import Share, parse_share
from millstream.schemas.units import Duration, PositiveDuration

Strategy = Literal["canary", "blue-green", "ab", "bandit", "manual"]
BASELINE = "primary"
"""Name of the baseline's variant, in predictions, metrics and commands."""
CANDIDATE = "canary"
"""Name of the candidate's variant, whichever the strategy. A bandit's arms are `v2`, `v3` and so on, by their versions."""
CANARY_STEPS = ("1%", "5%", "25%", "50%")


class Webhook(Section):
    """An HTTP request for each change of a rollout."""

    url: Secret = Field(
        description="Where the change is sent: POST with JSON. `http://` or `https://`; it may hold a token, so it can also be "
        "`{file: PATH}` or `{env: NAME}`, and is never shown.",
        examples=["{env: ROLLOUT_WEBHOOK}"],
    )
    headers: dict[Text, Secret] = Field(
        {}, description="Headers of the request: texts, `{file: PATH}` or `{env: NAME}`."
    )

    @field_validator("url", mode="after")
    @classmethod
    def _with_scheme(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().startswith(("http://", "https://")):
            raise ValueError("expected a URL that begins with http:// or https://, found another text.")
        return value


class Rollout(Section):
    """How a new model version takes over from the one that answers. `millstream docs rollouts` is its page."""

    strategy: Strategy = Field(
        "canary",
        description="`canary`: the candidate's share rises in steps. `blue-green`: both versions are loaded, and all events "
        "switch at once. `ab`: a fixed share, then a report. `bandit`: shares follow rewards. `manual`: only commands change "
        "anything.",
    )
    candidate: WantedVersion | None = Field(
        None,
        description="Version that autopilot starts a rollout of when it is not the baseline: a number, `latest` or an alias. "
        "Without it, only `millstream rollout start` starts one.",
        examples=["latest"],
    )
    steps: tuple[Share, ...] | None = Field(
        None,
        min_length=1,
        description="The candidate's shares, in percent (canary). After the last one it gets 100 %.",
        json_schema_extra={"default": "[1, 5, 25, 50]"},
        examples=[[1, 5, 25, 50]],
    )
    share: Share | None = Field(
        None,
        description="The candidate's share, in percent (A/B).",
        json_schema_extra={"default": "50"},
        examples=[50],
    )
    arms: tuple[Version, ...] | None = Field(
        None, min_length=1, description="Versions beside the baseline (bandit).", examples=[[2, 3]]
    )
    least_share: Share = Field(
        "1%",
        validate_default=True,
        description="Share that each arm keeps, however bad its rewards are, in whole percent (bandit).",
    )
    discount: float = Field(
        0.99,
        gt=0,
        le=1,
        description="What is left of a reward's weight after each evaluation (bandit). 1 forgets nothing.",
    )
    bake: Duration = Field("10m", validate_default=True, description="The least time of a step.")
    least_labels: int = Field(
        500,
        ge=0,
        description="Matured labels that a step needs, of the version that has fewer. 0 judges by errors and latency only, "
        "unless `metrics` names a metric of quality.",
    )
    longest: PositiveDuration = Field(
        "24h",
        validate_default=True,
        description="After this time a step is `inconclusive`: it holds, still may pass, and says so.",
    )
    watch: Duration = Field(
        "1h",
        validate_default=True,
        description="How long the candidate is watched at 100 % before it is promoted (canary, blue-green). A breach still "
        "rolls back.",
    )
    on_breach: Literal["rollback", "pause"] = Field(
        "rollback",
        description="What a breached metric does: `rollback` to 0 % at once, or `pause` until a person decides.",
    )
    mode: Literal["act", "advise"] = Field(
        "act", description="`advise`: autopilot changes nothing, and reports what it would do. Commands always act."
    )
    approve: tuple[Share, ...] = Field(
        (),
        description="Steps that wait for `millstream rollout approve`: shares of `steps`, or 100.",
        examples=[[50, 100]],
    )
    maturity: Duration | None = Field(
        None,
        description="How long a label may take. Only events of at least this age count in metrics of quality.",
        json_schema_extra={"default": "<labels.wait>"},
        examples=["1h"],
    )
    level: float = Field(
        0.01,
        gt=0,
        le=0.5,
        allow_inf_nan=False,
        description="Highest probability that a rollout promotes a version that it must not promote, however often it looks; "
        "likewise of a false rollback.",
    )
    metrics: Metrics = Field(
        {},
        validate_default=True,
        description="What the candidate is judged by. Without any metric of quality: `accuracy`, if there are labels.",
    )
    segments: tuple[Text, ...] = Field(
        (),
        description="Fields of `output.include` by whose values metrics of quality are judged as well.",
        examples=[["country"]],
    )
    override_fields: tuple[Text, ...] = Field(
        (),
        description="Fields of the event that `millstream rollout set --field` may name: workers read them, too.",
        examples=[["customer.country"]],
    )
    topic: TopicName = Field(
        description="Control topic: the state of the rollout, compacted, with one partition.",
        json_schema_extra={"default": "<name>-rollout"},
    )
    evaluations: TopicName = Field(
        description="Topic of what autopilot found, compacted.",
        json_schema_extra={"default": "<name>-rollout-evaluations"},
    )
    max_events: int = Field(
        1_000_000,
        ge=10_000,
        description="Most events that autopilot keeps until they are mature. Above it, it keeps those of fewer keys, and says "
        "so.",
    )
    webhook: Webhook | None = Field(None, description="An HTTP request for each change.")
    start_after_shadow: PositiveDuration | None = Field(
        None,
        description="Autopilot starts a rollout of a shadow's version once the shadow has been shown to be good enough, over at "
        "least this time.",
        examples=["2h"],
    )

    def step_shares(self, strategy: str | None = None) -> tuple[int, ...]:
        """The candidate's shares in the evaluated steps, in slots. `strategy`: in place of the section's own."""
        match strategy or self.strategy:
            case "canary":
                return self.steps if self.steps is not None else tuple(map(parse_share, CANARY_STEPS))
            case "blue-green":
                return (0,)
            case "ab":
                return (self.share if self.share is not None else parse_share("50%"),)
        return ()

    def quality(self, task: str, *, labels: bool) -> dict[str, Quality]:
        """The metrics that need labels, by name: those of the file, or the default.

        Args:
            task: `comparison.task`.
            labels: whether the pipeline has any.
        """
        if (named := self.metrics.quality) or self.least_labels == 0 or not labels or task == "regression":
            return named
        return {"accuracy": Accuracy.model_validate({})}
