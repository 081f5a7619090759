"""Checks that the models answer what `comparison.output` and `comparison.item` name, and says what is compared."""

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from millstream.consumers.errors import PlanError
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.shadow.compared_classes import compared_classes_of
from millstream.inference.class_answers import MAX_PROBABILITIES, Classes, compared_classes
from millstream.inference.errors import ModelConfigError, ModelRejected, SourceUnavailable
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.interface import Tensors
from millstream.inference.repository import ModelVersion
from millstream.inference.signature import blank, class_name
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.comparisons import compared_output
from millstream.schemas.wording import first_of, meant

MAX_NAMED = 5  # classes that a message names
_CHANGE = " To compare another one, write `comparison: {output: NAME}` into the pipeline file."


def check_compared_output(pipeline: Pipeline, models: Sequence[ModelVersion]) -> None:
    """Check, by config.yaml alone, that all compared models have the output that is the score.

    Args:
        pipeline: with the comparison's options.
        models: the primary, then the shadows.

    Raises:
        PlanError: naming the model, and the outputs that there are.
    """
    classes = compared_classes_of(pipeline)
    _check_order(pipeline, models)
    if classes is not None:
        _check_all_classes(pipeline, classes, models)
    names = [{name for output in model.signature.outputs for name in output.names} for model in models]
    _check_name(pipeline, models, names)
    if not set.intersection(*names):
        has = "; ".join(f"{model.place}: {_listed(there)}" for model, there in zip(models, names, strict=True))
        raise PlanError(
            f"{pipeline.at('shadows')}: expected an output with the same name in all compared models, found none ({has}). Give "
            f"the outputs that are to be compared the same `name` in the models' config.yaml."
        )


def check_compared_answers(pipeline: Pipeline, models: Sequence[ModelVersion], answers: Sequence[Tensors]) -> str:
    """Check by real outputs that the models have the output and the item that are the score.

    Only these tell all names: a tensor of scores with classes becomes one output for each class, and one of indices becomes one
    output. Both look the same in config.yaml.

    Args:
        pipeline: with the comparison's options.
        models: the primary, and shadows.
        answers: the outputs of each for any event.

    Returns:
        A sentence that says what is compared, and what to write to compare another output.

    Raises:
        PlanError: naming the model, and the outputs that there are, or how many items the output has.
    """
    classes = compared_classes_of(pipeline)
    events = [_first_event(answer) for answer in answers]
    if classes is not None:
        return _check_classes(pipeline, classes, models, events)
    _check_name(pipeline, models, [set(event) for event in events])
    section = pipeline.comparison
    for event in events:
        output = compared_output(section.output, events[0], event, item=section.item)
        if output is not None:
            _check_item(pipeline, models[0], output, answers[0])
    chosen = compared_output(section.output, events[0], events[-1], item=section.item)
    _refuse_unclear_score(pipeline, models[0], chosen)
    return _said(pipeline, chosen, events[0])


def check_named_classes(pipeline: Pipeline, model: ModelVersion) -> None:
    """Refuse by config.yaml what `check_compared_answers` refuses by an answer, for a model that rejects blank events.

    Nothing shows which of its outputs is the score. So each one that may be is looked at.

    Raises:
        PlanError: saying which output to name.
    """
    wanted = pipeline.comparison.output
    names = [name for output in model.signature.outputs for name in output.names] if wanted is None else [wanted]
    for name in names:
        _refuse_unclear_score(pipeline, model, name)


def check_score(pipeline: Pipeline, chosen: str | None) -> None:
    """Refuse the score of a class that nobody named, as `check_compared_answers` does, but by the primary's config.yaml alone.

    Nothing is refused if that file can't be read here, because a model may be gone when its predictions are compared.

    Args:
        pipeline: with the comparison's options.
        chosen: the compared output of predictions.

    Raises:
        PlanError: saying which output to name.
    """
    if pipeline.comparison.output is not None or pipeline.comparison.task == "multiclass":
        return
    if chosen is None or "." not in chosen:  # no class's name (`class_name`): spare the look at the repository
        return
    models = PipelineModels(pipeline)
    with suppress(ModelConfigError, SourceUnavailable):
        _refuse_unclear_score(pipeline, models.primary(), chosen)
    models.release()


def answers_to_blank_event(models: Sequence[ModelVersion]) -> list[Tensors]:
    """What the models answer to an event of zeros, until the first that needs more than its file, or rejects it."""
    answers: list[Tensors] = []
    for model in models:
        if model.executor != "onnx":  # other models may need what is only where the workers run
            break
        executor = open_executor(model, device="cpu")
        try:
            answers.append(executor.run(blank(model.signature.inputs, 1)))
        except ModelRejected:
            break
        finally:
            executor.close()
    return answers


def _check_name(pipeline: Pipeline, models: Sequence[ModelVersion], names: Sequence[set[str]]) -> None:
    wanted = pipeline.comparison.output
    if wanted is None:
        return
    common = set.intersection(*names)
    for model, there in zip(models, names, strict=True):
        if wanted not in there:
            raise PlanError(
                f"{pipeline.at('comparison', 'output')}: expected an output of all compared models, found `{wanted}`, which "
                f"{model.place} doesn't have.{meant(wanted, common)} It has {_listed(there)}; outputs of all: {_listed(common)}. "
                f"Name one of these."
            )


def _check_order(pipeline: Pipeline, models: Sequence[ModelVersion]) -> None:
    """A label may be the index of a class, which would stand for another class if the file had another order."""
    written = pipeline.comparison.classes or ()
    for model in models:
        for output in model.signature.outputs:
            if tuple(output.classes) != written and sorted(output.classes) == sorted(written):
                raise PlanError(
                    f"{pipeline.at('comparison', 'classes')}: expected the classes in the order of the model's scores, found "
                    f"{', '.join(written)}; {model.place} has {', '.join(output.classes)}. Leave `classes` out: then those of "
                    f"config.yaml are taken."
                )


def _check_all_classes(pipeline: Pipeline, classes: Classes, models: Sequence[ModelVersion]) -> None:
    """Labels with a class that isn't compared would be left out, although one of the models may predict it."""
    if pipeline.comparison.classes is not None:
        return
    for model in models:
        for output in model.signature.outputs:
            is_compared = pipeline.comparison.output in {None, *output.names} and set(output.classes) & {*classes.names}
            others = [name for name in output.classes if name not in classes.names]
            if is_compared and others:
                raise PlanError(
                    f"{pipeline.at('comparison')}: expected all compared models to have the classes of the one that answers, "
                    f"{', '.join(classes.names)}; {model.place} also has {', '.join(others)}. Write all classes, in the order of "
                    f"labels that are indices: `comparison: {{classes: [{', '.join([*classes.names, *others])}]}}`."
                )


def _check_classes(
    pipeline: Pipeline, classes: Classes, models: Sequence[ModelVersion], events: Sequence[dict[str, Any]]
) -> str:
    _check_all_classes(pipeline, classes, models)
    wanted = pipeline.comparison.output
    there = [classes.answers(event) for event in events]
    common = set.intersection(*(set(names) for names in there))
    for model, names, event in zip(models, there, events, strict=True):
        if wanted is not None and wanted not in names:
            raise PlanError(
                f"{pipeline.at('comparison', 'output')}: expected an output with one of the classes {', '.join(classes.names)}, "
                f"found `{wanted}`, which is none of {model.place}.{meant(wanted, common)} Outputs with a class: "
                f"{_listed(set(names))}; all outputs: {_listed(set(event))}. Name one with a class."
            )
        if not names:
            raise PlanError(
                f"{pipeline.at('comparison', 'classes')}: expected outputs with one of the classes {', '.join(classes.names)}; "
                f"found none in {model.place}, which has {_listed(set(event))}. Compare the classes with those that the model "
                "knows, and their number with the number of its scores."
            )
    chosen = compared_classes(classes, wanted, events[0], events[-1])
    if chosen is None or any(chosen not in names for names in there):
        has = "; ".join(f"{model.place}: {_listed(set(names))}" for model, names in zip(models, there, strict=True))
        raise PlanError(
            f"{pipeline.at('shadows')}: expected an output with a class under the same name in all compared models, found none "
            f"({has}). Give these outputs the same `name` in the models' config.yaml."
        )
    return f"output `{chosen}`: {_class_figures(classes, all(names[chosen] for names in there))}.{'' if wanted else _CHANGE}"


def _class_figures(classes: Classes, has_probabilities: bool) -> str:
    if not has_probabilities:
        return "the class. It holds no probability of each class, so there is accuracy, but no log loss"
    if not classes.probabilities:
        return f"the class. There are more than {MAX_PROBABILITIES} classes, so there is accuracy, but no log loss"
    return "the class, and the probability of each class"


def _refuse_unclear_score(pipeline: Pipeline, model: ModelVersion, chosen: str | None) -> None:
    if pipeline.comparison.task == "regression":
        _refuse_class_as_number(pipeline, model, chosen)
    elif pipeline.comparison.task == "classification" and pipeline.comparison.output is None:
        _refuse_class(pipeline, model, chosen)


def _refuse_class(pipeline: Pipeline, model: ModelVersion, chosen: str | None) -> None:
    """Refuse the probability of a class that nobody named: only the user knows for which class a label of 1 stands."""
    several = (output for output in model.signature.outputs if len(output.classes) > 1)
    scored = next((each for each in several if chosen in [class_name(each.name, of) for of in each.classes]), None)
    if scored is None:
        return
    classes, one = first_of(scored.classes, MAX_NAMED), class_name(scored.name, scored.classes[1])
    if len(scored.classes) > 2:
        raise PlanError(
            f"{pipeline.at('comparison', 'task')}: expected `task: multiclass`, because {model.place} has the classes {classes}; "
            f"found `classification`, which compares the probability of one class with labels of 1 and 0. Write `comparison: "
            f"{{task: multiclass}}`; or, to compare a single class, name its output: `comparison: {{output: {one}}}`."
        )
    raise PlanError(
        f"{pipeline.at('comparison', 'output')}: expected the output of the class that a label of 1 stands for, found none; "
        f"{model.place} has the classes {classes}. Write for example `comparison: {{output: {one}}}`; or, to "
        f"compare the classes, `comparison: {{task: multiclass}}`."
    )


def _refuse_class_as_number(pipeline: Pipeline, model: ModelVersion, chosen: str | None) -> None:
    """Refuse the name of a class, which is no number, and the probability of a class that nobody named."""
    for output in model.signature.outputs:
        unnamed = [class_name(output.name, of) for of in output.classes] if pipeline.comparison.output is None else []
        if output.classes and chosen in [output.name, *unnamed]:
            raise PlanError(
                f"{pipeline.at('comparison', 'task')}: expected `task: multiclass`, because {model.place} has the classes "
                f"{first_of(output.classes, MAX_NAMED)}; found `regression`, which compares a number with labels that are "
                f"numbers. Write `comparison: {{task: multiclass}}`; or name an output that is a number: `comparison: "
                f"{{output: NAME}}`."
            )


def _check_item(pipeline: Pipeline, model: ModelVersion, output: str, answer: Tensors) -> None:
    item, shape = pipeline.comparison.item, answer[output].shape
    items = prod(shape[1:]) if len(shape) > 1 else 0
    if item is None or item < items:
        return
    there = f"Its last item is {items - 1}." if items else "It is no array: leave the option out."
    raise PlanError(
        f"{pipeline.at('comparison', 'item')}: expected an item of output `{output}` of {model.place}, found {item}. {there}"
    )


def _said(pipeline: Pipeline, chosen: str | None, event: dict[str, Any]) -> str:
    section = pipeline.comparison
    value = event.get(chosen or "")
    if isinstance(value, int | float) or (isinstance(value, list) and section.item is not None):
        item = "" if section.item is None else f", item {section.item}"
        beside = _scores_beside(value, event) if section.task == "classification" else ""
        return f"output `{chosen}`{item}.{beside}{'' if section.output else _CHANGE}"
    several = (
        "If the models choose one of several classes, write `comparison: {task: multiclass}`. "
        if section.task == "classification"
        else ""
    )
    how = "in `comparison.output`" if section.output else "with `comparison: {output: NAME}`"
    item = ", or `item` if it is an array of scores" if isinstance(value, list) else ""
    return (
        f"output `{chosen}`, which is no number: the job can say how often the models agree, but not which is better. {several}"
        f"Otherwise name a number {how}{item}. There are {_listed(set(event))}."
    )


def _scores_beside(value: Any, event: dict[str, Any]) -> str:
    """How to compare the probability instead of the class, where a model has both: for example, one of scikit-learn."""
    arrays = [name for name, each in event.items() if isinstance(each, list) and each and isinstance(each[0], float)]
    if isinstance(value, bool | float | list) or not arrays:
        return ""
    return (
        f" It is a whole number, so the AUC knows no probabilities. If those of `{arrays[0]}` are meant, write "
        f"`comparison: {{output: {arrays[0]}, item: 1}}`: the item is the index of the class that a label of 1 stands for."
    )


def _first_event(answer: Tensors) -> dict[str, Any]:
    """The outputs of the first event, as in a comparison's record."""
    return {name: _as_recorded(array[0]) for name, array in answer.items()}


def _as_recorded(value: Any) -> Any:
    flat = np.asarray(value).reshape(-1).tolist()
    return flat[0] if len(flat) == 1 and np.ndim(value) <= 1 else flat


def _listed(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"
