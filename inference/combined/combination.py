"""How several models work together, with their signatures: each `Combination` opens as one executor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.inference.combined.cascade_executor import ESCALATED, MODELS, CascadeExecutor, Escalation
from millstream.inference.combined.combining import Source
from millstream.inference.combined.ensemble_executor import EnsembleExecutor, Fed, Step
from millstream.inference.combined.member import Member
from millstream.inference.combined.member_inputs import CombinedInputs, combined_inputs
from millstream.inference.combined.output_types import OutputTypes
from millstream.inference.combined.route_executor import RouteExecutor
from millstream.inference.combined.routing import Choice
from millstream.inference.combined.version import Combination, CombinedExecutor, OpenModel
from millstream.inference.errors import ModelConfigError
from millstream.inference.model_id import ModelId
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import Signature, TensorInput, TensorOutput
from millstream.inference.tensor_inputs import listed


def inputs_of(model: ModelVersion) -> tuple[TensorInput, ...]:
    """A model's inputs, with the place that names their fields, for messages about the union."""
    return tuple(replace(entry, mapped_at=entry.mapped_at or model.place) for entry in model.signature.inputs)


def signature_of(combination: Combination) -> Signature:
    """The signature of all models."""
    return Signature(combination.inputs.inputs, combination.outputs)


@dataclass(frozen=True, slots=True)
class Route:
    """Each event runs on one model."""

    models: Sequence[ModelVersion]
    choice: Choice  # chooses one of them by its number
    routing: Sequence[TensorInput]  # the inputs that it reads

    @property
    def inputs(self) -> CombinedInputs:
        """See Combination."""
        models = [(model.name, inputs_of(model)) for model in self.models]
        return combined_inputs(models, [False] * len(models), self.routing, self.choice)

    @property
    def outputs(self) -> tuple[TensorOutput, ...]:
        """See Combination."""
        return self.models[0].signature.outputs

    def open(self, open_model: OpenModel) -> CombinedExecutor:
        """See Combination."""
        return RouteExecutor(_members(self.models, self.inputs, open_model), self.choice)


@dataclass(frozen=True, slots=True)
class Cascade:
    """The cheap model first; events of which it isn't sure run on the next one."""

    models: Sequence[ModelVersion]
    escalations: Sequence[Escalation]  # of each but the last

    @property
    def inputs(self) -> CombinedInputs:
        """See Combination."""
        models = [(model.name, inputs_of(model)) for model in self.models]
        return combined_inputs(models, [not number for number in range(len(models))])

    @property
    def outputs(self) -> tuple[TensorOutput, ...]:
        """See Combination."""
        return *self.models[0].signature.outputs, *map(_own, (ESCALATED, MODELS))

    def open(self, open_model: OpenModel) -> CombinedExecutor:
        """See Combination."""
        return CascadeExecutor(_members(self.models, self.inputs, open_model), self.escalations)


@dataclass(frozen=True, slots=True)
class Ensemble:
    """All models run; outputs of some are inputs of others."""

    own: ModelId
    steps: Mapping[str, ModelVersion]
    feeds: Mapping[str, Mapping[str, Source]]  # step -> its tensor -> what fills it
    sources: Mapping[str, Source]  # the outputs of the prediction

    @property
    def models(self) -> Sequence[ModelVersion]:
        """See Combination."""
        return list(self.steps.values())

    @property
    def inputs(self) -> CombinedInputs:
        """See Combination."""
        models = [
            (step, [entry for entry in inputs_of(model) if entry.tensor not in self.feeds.get(step, {})])
            for step, model in self.steps.items()
        ]
        return combined_inputs(models, [True] * len(models))

    @property
    def outputs(self) -> tuple[TensorOutput, ...]:
        """See Combination."""
        return *(TensorOutput(_told(source), name) for name, source in self.sources.items()), _own(MODELS)

    def open(self, open_model: OpenModel) -> CombinedExecutor:
        """See Combination."""
        feeds = {step: self._fed(step) for step in self.steps}
        members = _members(self.models, self.inputs, open_model, alike=False)
        steps = [Step(step, member, feeds[step]) for step, member in zip(self.steps, members, strict=True)]
        return EnsembleExecutor(self.own, steps, self.sources)

    def _fed(self, step: str) -> list[Fed]:
        """The inputs of a step that other steps fill. Raises ModelConfigError if the model has no such input."""
        own = {entry.tensor: entry for entry in self.steps[step].signature.inputs}
        fed = []
        for tensor, source in self.feeds.get(step, {}).items():
            if tensor not in own:
                raise ModelConfigError(
                    f"{source.place}: expected an input of model {self.steps[step].name} ({listed(own)}), found {tensor}."
                )
            if own[tensor].max_length is not None:
                raise ModelConfigError(
                    f"{source.place}: tensor `{tensor}` varies in length, but an output has one length. Feed a tensor with a "
                    f"`shape`."
                )
            fed.append(Fed(own[tensor], source))
        return fed


def _members(
    models: Sequence[ModelVersion], inputs: CombinedInputs, open_model: OpenModel, *, alike: bool = True
) -> list[Member]:
    """Load the models. `alike`: whether they have the same outputs."""
    types = OutputTypes() if alike else None
    return [
        Member(model, open_model(model), names, column, types)
        for model, names, column in zip(models, inputs.names, inputs.columns, strict=True)
    ]


def _own(name: str) -> TensorOutput:
    return TensorOutput("the pipeline", name)


def _told(source: Source) -> str:
    outputs = ", ".join(f"{step}.{output}" for step, output in source.outputs)
    return outputs if source.combination is None else f"the {source.combination} of {outputs}"
