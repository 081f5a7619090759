"""Loads the models of the section `models`, and makes one of them."""

from collections.abc import Mapping
from functools import partial

from millstream.consumers.decode.named_fields import time_format
from millstream.consumers.errors import PlanError
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.inference.combined.cascade_executor import Escalation
from millstream.inference.combined.combination import (
    Cascade,
    Ensemble,
    Route,
    signature_of,
)
from millstream.inference.combined.combining import Source
from millstream.inference.combined.routing import NO_MODEL, ByRules, ByValue, Choice, Condition
from millstream.inference.combined.routing_key import key_input, number_input
from millstream.inference.combined.tenants import Tenants
from millstream.inference.combined.version import Combination, CombinedVersion, NamedMember
from millstream.inference.model_id import ModelId
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import TensorInput
from millstream.pipeline.conditions import ParsedCondition
from millstream.pipeline.model_sections import Models
from millstream.pipeline.model_sections import Route as RouteSection
from millstream.pipeline.output_sources import OutputSource
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.sections import NamedModel
from millstream.schemas.store import Schema
from millstream.schemas.wording import Loc


def load_several(repository: PipelineModels, models: Models, reader: Schema | None) -> CombinedVersion:
    """Load the signatures of all models. Raises PlanError, and as `PipelineModels.primary` does."""
    pipeline = repository.pipeline
    loading = _Loading(repository, reader)
    match models.kind:
        case "route":
            combination: Combination = loading.route(models)
        case "tenants":
            combination = loading.tenants(models)
        case "cascade":
            combination = loading.cascade(models)
        case _:
            combination = loading.ensemble(models)
    first = combination.models[0]
    named = tuple(NamedMember(each.name, each.version, each.inputs, place) for each, place in loading.named)
    own = own_id(pipeline)
    return CombinedVersion(
        own.name,
        own.version,
        first.file,
        "several",
        signature_of(combination),
        batch_sizes=(),
        combination=combination,
        described=pipeline.at("models", models.kind),
        named=named,
    )


def own_id(pipeline: Pipeline) -> ModelId:
    """What an ensemble is called, and messages about all models."""
    ensemble = None if pipeline.models is None else pipeline.models.ensemble
    return ModelId(pipeline.model.name, 1 if ensemble is None else ensemble.version)


class _Loading:
    """Loads each named model once."""

    def __init__(self, repository: PipelineModels, reader: Schema | None) -> None:
        self._repository = repository
        self._pipeline = repository.pipeline
        self._reader = reader
        self._loaded: list[tuple[NamedModel, ModelVersion]] = []
        self._routing: dict[str, TensorInput] = {}
        self._compared: dict[str, ParsedCondition] = {}  # the first condition on each field
        self.named: list[tuple[NamedModel, Loc]] = []  # the models that are loaded by their names, in order

    def route(self, models: Models) -> Route:
        """The models that a field or rules choose."""
        section = models.route
        assert section is not None
        default = NO_MODEL if section.default is None else self._number(section.default, "route", "default")
        choice = self._by_value(section, default) if section.field is not None else self._by_rules(section, default)
        return Route(self._models, choice, list(self._routing.values()))

    def tenants(self, models: Models) -> Tenants:
        """The models of tenants."""
        section = models.tenants
        assert section is not None
        default = None if section.default is None else self._model(section.default, "tenants", "default")
        pattern = default
        if pattern is None:
            first = self._repository.first_tenant(section.name)
            if first is None:
                raise PlanError(
                    f"{self._pipeline.at('models', 'tenants', 'name')}: expected at least one model named {section.name} in "
                    f"{models.repository}, to know the inputs of all; found none. Put one there, or name a `default`."
                )
            pattern = self._load(*first)
        return Tenants(
            field=section.field,
            key=key_input(section.field, self._pipeline.at("models", "tenants", "field")),
            name=section.name,
            versions=self._repository.tenant_versions,
            pattern=pattern,
            default=default,
            memory=section.memory // models.instances,
            load=self._load,
            wanted=section.version,
            aliases=self._repository.source.aliases,
            place=self._pipeline.at("models", "tenants", "version"),
        )

    def cascade(self, models: Models) -> Cascade:
        """The models of a cascade, the cheapest first."""
        steps = models.cascade or ()
        found = [self._model(step.model, "cascade", at, "model") for at, step in enumerate(steps)]
        bounds = [step.escalate for step in steps if step.escalate is not None]
        escalations = [
            Escalation(each.output, *(each.between or (float("-inf"), each.below if each.below is not None else 0.0)))
            for each in bounds
        ]
        return Cascade(found, escalations)

    def ensemble(self, models: Models) -> Ensemble:
        """The models of an ensemble."""
        section = models.ensemble
        assert section is not None
        steps = {name: self._model(step, "ensemble", "steps", name) for name, step in section.steps.items()}
        feeds = {
            name: self._sources(step.feed, "ensemble", "steps", name, "feed") for name, step in section.steps.items()
        }
        return Ensemble(own_id(self._pipeline), steps, feeds, self._sources(section.outputs, "ensemble", "outputs"))

    @property
    def _models(self) -> list[ModelVersion]:
        return [loaded for _, loaded in self._loaded]

    def _by_value(self, section: RouteSection, default: int) -> ByValue:
        assert section.field is not None
        models = {value: self._number(model, "route", "values", value) for value, model in section.values.items()}
        place = self._pipeline.at("models", "route", "field")
        key = key_input(section.field, place, boolean=set(models) <= {"true", "false"})
        self._routing[key.tensor] = key
        return ByValue(section.field, key.tensor, models, default)

    def _by_rules(self, section: RouteSection, default: int) -> Choice:
        rules = [
            (
                [self._condition(condition, "route", "rules", at, "when") for condition in rule.when],
                self._number(rule.model, "route", "rules", at, "model"),
            )
            for at, rule in enumerate(section.rules)
        ]
        return ByRules(rules, default)

    def _condition(self, parsed: ParsedCondition, *place: str | int) -> Condition:
        at, first = self._pipeline.at("models", *place), parsed.constants[0]
        compared = self._compared.setdefault(parsed.field, parsed)
        if type(first) is not type(compared.constants[0]):
            raise PlanError(
                f"{at}: expected values of one type for field `{parsed.field}`, because a route reads one type there, found "
                f"`{compared.text}` and `{parsed.text}`. Write both in the same way, for example both in quotes."
            )
        if isinstance(first, float):
            entry = number_input(parsed.field, at)
        else:
            entry = key_input(parsed.field, at, boolean=isinstance(first, bool))
        self._routing.setdefault(entry.tensor, entry)
        return Condition(entry.tensor, parsed.operator, parsed.compared)

    def _sources(self, sources: Mapping[str, OutputSource], *place: str) -> dict[str, Source]:
        return {
            name: Source(of.combination, of.outputs, of.weights, self._pipeline.at("models", *place, name))
            for name, of in sources.items()
        }

    def _number(self, named: NamedModel, *place: str | int) -> int:
        """The number of a model. Models that are named in the same way are one."""
        for number, (other, _) in enumerate(self._loaded):
            if other == named:
                return number
        self._loaded.append((named, self._model(named, *place)))
        return len(self._loaded) - 1

    def _model(self, named: NamedModel, *place: str | int) -> ModelVersion:
        self.named.append((named, place))
        return self._repository.member(named, place).with_time_formats(partial(time_format, self._reader))

    def _load(self, name: str, version: int) -> ModelVersion:
        return self._repository.tenant(name, version).with_time_formats(partial(time_format, self._reader))
