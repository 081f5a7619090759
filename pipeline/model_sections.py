"""The section `models`: several models in one pipeline, by routing, by tenant, as a cascade or as an ensemble."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, WithJsonSchema, model_validator
from pydantic.config import JsonDict

from millstream.pipeline.conditions import Conditions
from millstream.pipeline.names import WANTED_VERSION_SCHEMA, Name, Version, WantedVersion
from millstream.pipeline.output_sources import SOURCE_SCHEMA, OutputSource, parse_source
from millstream.pipeline.sections import ModelSettings, NamedModel, Section, Text
from millstream.schemas.units import Size
from millstream.schemas.wording import Loc, shown

TENANT = "{tenant}"
"""Stands for the value of the tenant's field in the name of its model."""
KINDS = ("route", "tenants", "cascade", "ensemble")
_TENANT_NAME = re.compile(r"[A-Za-z0-9._-]*\{tenant\}[A-Za-z0-9._-]*")
_STEP_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


def _by_name(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


def _tenant_name(value: str) -> str:
    if not _TENANT_NAME.fullmatch(value):
        raise ValueError(
            f"expected the name of a model with {TENANT} in it once, such as churn-{TENANT}, of the characters a-z A-Z 0-9 . _ "
            f"-, found {shown(value)}."
        )
    return value


def _member_schema(*, feeds: bool = False) -> JsonDict:
    """A model's name, or a mapping with its options."""
    options: JsonDict = {
        "name": {"type": "string"},
        "version": WANTED_VERSION_SCHEMA,
        "inputs": {"type": "object"},
    }
    if feeds:
        options["feed"] = {"type": "object", "additionalProperties": SOURCE_SCHEMA}
    whole: JsonDict = {"type": "object", "required": ["name"], "properties": options, "additionalProperties": False}
    return {"$comment": "model", "anyOf": [{"type": "string"}, whole]}


_MEMBER = _member_schema()
Member = Annotated[NamedModel, BeforeValidator(_by_name), WithJsonSchema(_MEMBER)]
Source = Annotated[InstanceOf[OutputSource], BeforeValidator(parse_source), WithJsonSchema(SOURCE_SCHEMA)]


class Rule(Section):
    """Sends the events that meet its conditions to a model."""

    when: Conditions = Field(
        description="A condition on a field of the event, such as `amount >= 1000`, `country == DE` or `country in [DE, AT]`; "
        "also `!=`, `<`, `<=`, `>` and `not in`. In a list of conditions, all must hold. A condition on a field that is absent "
        "or null doesn't hold.",
        examples=["amount >= 1000"],
    )
    model: Member = Field(
        description="The model of these events, as in `models.route.values`.", examples=["fraud-large"]
    )


class Route(Section):
    """Each event goes to one model, by the value of a field or by rules."""

    field: Text | None = Field(
        None,
        description="Path of the field whose value decides: a text, a whole number, or true or false.",
        examples=["country"],
    )
    values: Annotated[dict[Text, Member], WithJsonSchema({"type": "object", "additionalProperties": _MEMBER})] = Field(
        {},
        description="For each value of `field`, the model: its name, or a mapping with `name`, and `version` and `inputs` as "
        "under `model:`.",
        examples=["{DE: fraud-eu, US: {name: fraud-us, version: 3}}"],
    )
    rules: tuple[Rule, ...] = Field(
        (), description="In place of `field` and `values`: rules, of which the first that holds decides."
    )
    default: Member | None = Field(
        None,
        description="The model of all other events. Without it, they become dead letters (`no_model`).",
        examples=["fraud-world"],
    )

    @model_validator(mode="after")
    def _by_field_or_rules(self) -> Self:
        by_field = self.field is not None and bool(self.values)
        if by_field == bool(self.rules) or (self.field is not None) != bool(self.values):
            raise ValueError(
                "expected either `field` and `values`, or `rules`. Write for example: {field: country, values: {DE: fraud-eu}}."
            )
        return self


class Tenants(Section):
    """Each event goes to the model of its tenant."""

    field: Text = Field(
        description="Path of the field that names the tenant: a text or a whole number.", examples=["customer"]
    )
    name: Annotated[str, AfterValidator(_tenant_name)] = Field(
        TENANT,
        description=f"Name of a tenant's model: its folder in the repository. `{TENANT}` stands for the value of `field`.",
        examples=[f"churn-{TENANT}"],
    )
    version: WantedVersion = Field(
        "latest",
        description="Version of each tenant's model: `latest` (the highest number), an alias such as `champion`, or a number. "
        "Workers follow `latest` and aliases of the models that they have loaded (`models.poll_interval`).",
    )
    default: Member | None = Field(
        None,
        description="The model of tenants that have none. Without it, their events become dead letters (`no_model`).",
        examples=["churn-world"],
    )
    memory: Size = Field(
        "1GiB",
        validate_default=True,
        description="Most memory of the tenants' models that are loaded at a time, in each worker. The least recently used ones "
        "are unloaded. A model counts as twice the bytes of its files, plus 1 MiB.",
    )


class Escalation(Section):
    """Which events go on to the next step."""

    output: Text = Field(
        description="Output of the step's model that says how sure it is. Of several scores, the highest counts.",
        examples=["probability"],
    )
    below: float | None = Field(
        None, allow_inf_nan=False, description="Events go on if the output is below this number.", examples=[0.8]
    )
    between: tuple[float, float] | None = Field(
        None,
        description="In place of `below`: events go on if the output is above the first number and below the second, as for the "
        "probability of one outcome, where 0 and 1 are both sure.",
        json_schema_extra={"items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        examples=[[0.2, 0.8]],
    )

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.below is None) == (self.between is None):
            raise ValueError(
                "expected one of `below` and `between`. Write for example: {output: probability, between: [0.2, 0.8]}."
            )
        if self.between is not None and not self.between[0] < self.between[1]:
            raise ValueError(f"expected `between` with the smaller number first, found {list(self.between)}.")
        return self


class CascadeStep(Section):
    """A step of a cascade."""

    model: Member = Field(
        description="The step's model, as in `models.route.values`. The cheapest comes first.", examples=["fraud-small"]
    )
    escalate: Escalation | None = Field(
        None, description="Which events go on to the next step. The last step has none."
    )


class EnsembleStep(NamedModel):
    """A model of an ensemble."""

    feed: dict[Text, Source] = Field(
        {}, description="For each input tensor that other steps fill: where its values come from."
    )


class Ensemble(Section):
    """All models run, and outputs of some can be inputs of others."""

    name: Name | None = Field(
        None,
        description="Name of the ensemble, which predictions have as their `model`.",
        json_schema_extra={"default": "<name>"},
    )
    version: Version = Field(
        1, description="Version of the ensemble, which predictions have as theirs. Raise it with each change."
    )
    steps: Annotated[
        dict[Text, Annotated[EnsembleStep, BeforeValidator(_by_name)]],
        WithJsonSchema({"type": "object", "additionalProperties": _member_schema(feeds=True), "minProperties": 1}),
    ] = Field(
        description="The models by a name of your choice: a model as in `models.route.values`, also with `feed`: for each input "
        "tensor that other steps fill, where its values come from, as in `outputs`.",
        examples=["{tree: fraud-tree, net: {name: fraud-net, version: 2}}"],
    )
    outputs: Annotated[
        dict[Text, Source],
        WithJsonSchema({"type": "object", "additionalProperties": SOURCE_SCHEMA, "minProperties": 1}),
    ] = Field(
        description="The outputs of the prediction by name, and where each comes from: `STEP.OUTPUT`, `{mean: [...]}` (with "
        "weights: `{mean: {tree.score: 2, net.score: 1}}`), `{vote: [...]}` (the most frequent one; if several are, the one that "
        "is listed first) or `{stack: [...]}` (all, one behind the other).",
        examples=["{score: {mean: [tree.score, net.score]}}"],
    )

    @model_validator(mode="after")
    def _known_steps(self) -> Self:
        if not self.steps or not self.outputs:
            raise ValueError(f"expected at least one entry under `{'outputs' if self.steps else 'steps'}`, found none.")
        for name in self.steps:
            if not _STEP_NAME.fullmatch(name):
                raise ValueError(
                    f"expected names of steps of the characters a-z A-Z 0-9 _ -, found {shown(name)} under `steps`."
                )
        for place, source in self.sources():
            for wanted in source.outputs:
                if wanted.step not in self.steps:
                    raise ValueError(
                        f"`{place}` takes {wanted}, but there is no step {wanted.step} (there: {', '.join(self.steps)})."
                    )
        return self

    def sources(self) -> Iterator[tuple[str, OutputSource]]:
        """Each source with its place within the section."""
        for step, options in self.steps.items():
            yield from ((f"steps.{step}.feed.{tensor}", source) for tensor, source in options.feed.items())
        yield from ((f"outputs.{name}", source) for name, source in self.outputs.items())


class Models(ModelSettings):
    """Several models, in place of `model`. It has one of the sections `route`, `tenants`, `cascade` and `ensemble`."""

    route: Route | None = Field(None, description="Each event goes to one model, by a field's value or by rules.")
    tenants: Tenants | None = Field(None, description="Each event goes to the model of its tenant.")
    cascade: tuple[CascadeStep, ...] | None = Field(
        None, description="The cheap model first; events of which it isn't sure go on to the next one."
    )
    ensemble: Ensemble | None = Field(None, description="All models run; outputs of some can be inputs of others.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"expected one of {', '.join(KINDS)}, found {found} (`millstream docs several-models`).")
        steps = self.cascade or ()
        if self.cascade is not None and len(steps) < 2:
            raise ValueError("expected at least two steps under `cascade`, the cheap model and the large one.")
        for number, step in enumerate(steps, 1):
            if (step.escalate is None) != (number == len(steps)):
                wanted = "no `escalate` in the last step" if step.escalate else f"`escalate` in step {number}"
                raise ValueError(f"expected {wanted} of `cascade`: it says which events go on to the next step.")
        return self

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        return next(name for name in KINDS if getattr(self, name) is not None)

    @property
    def members(self) -> dict[Loc, NamedModel]:
        """The models that are named, by their places within `models`."""
        found: dict[Loc, NamedModel | None] = {}
        if self.route is not None:
            found |= {("route", "values", value): model for value, model in self.route.values.items()}
            found |= {("route", "rules", at, "model"): rule.model for at, rule in enumerate(self.route.rules)}
            found["route", "default"] = self.route.default
        if self.tenants is not None:
            found["tenants", "default"] = self.tenants.default
        found |= {("cascade", at, "model"): step.model for at, step in enumerate(self.cascade or ())}
        if self.ensemble is not None:
            found |= {("ensemble", "steps", name): step for name, step in self.ensemble.steps.items()}
        return {place: model for place, model in found.items() if model is not None}

    def settings(self) -> dict[str, Any]:
        """The options that a single model has, too."""
        return {name: getattr(self, name) for name in ModelSettings.model_fields}
