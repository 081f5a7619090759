"""Checks that the models answer what `comparison.output` and `comparison.item` name."""

from collections.abc import Sequence

from millstream.consumers.errors import PlanError
from millstream.inference.executors.interface import Tensors
from millstream.inference.repository import ModelVersion
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.comparisons import compared_output


def check_compared_output(pipeline: Pipeline, models: Sequence[ModelVersion]) -> None:
    """Check that all compared models have the output that is the score.

    Args:
        pipeline: with the comparison's options.
        models: the primary, then the shadows.

    Raises:
        PlanError: naming the model, and the outputs that there are.
    """
    wanted = pipeline.comparison.output
    names = [{name for output in model.signature.outputs for name in output.names} for model in models]
    common = set.intersection(*names)
    for model, there in zip(models, names, strict=True):
        if wanted is not None and wanted not in there:
            raise PlanError(
                f"{pipeline.at('comparison', 'output')}: expected an output of all compared models, found `{wanted}`, which "
                f"{model.place} doesn't have. It has {_listed(there)}; outputs of all: {_listed(common)}. Name one of these."
            )
    if not common:
        has = "; ".join(f"{model.place}: {_listed(there)}" for model, there in zip(models, names, strict=True))
        raise PlanError(
            f"{pipeline.at('shadows')}: expected an output with the same name in all compared models, found none ({has}). Give "
            f"the outputs that are to be compared the same `name` in the models' config.yaml."
        )


def check_compared_item(pipeline: Pipeline, models: Sequence[ModelVersion], answer: Tensors) -> None:
    """Check that the score's array has the item.

    Args:
        pipeline: with the comparison's options.
        models: the primary, then the shadows.
        answer: the primary's outputs for any event.

    Raises:
        PlanError: naming the output, and how many items it has.
    """
    item = pipeline.comparison.item
    if item is None:
        return
    primary, *shadows = models
    for shadow in shadows:
        names = (name for entry in shadow.signature.outputs for name in entry.names)
        output = compared_output(pipeline.comparison.output, answer, names)
        # Of a tensor of scores with classes, there is one output for each class, and none with the tensor's own name.
        if output is None or output not in answer:
            raise PlanError(
                f"{pipeline.at('comparison', 'output')}: expected an output of {primary.place}, found `{output}`. It has "
                f"{_listed(set(answer))}. Name one of these."
            )
        array = answer[output]
        items = array.shape[1] if array.ndim > 1 else 0
        if item >= items:
            there = f"Its last item is {items - 1}." if items else "It is no array: leave the option out."
            raise PlanError(
                f"{pipeline.at('comparison', 'item')}: expected an item of output `{output}` of {primary.place}, found {item}. "
                f"{there}"
            )


def _listed(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"
