"""`millstream schema`: prints the schema of a pipeline's predictions, for the programs that read them."""

import argparse
import json
import logging

from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.cli.say import say
from millstream.consumers.schema_store import prediction_record
from millstream.consumers.worker.plan import Plan, answer_blank, make_plan
from millstream.inference.errors import ModelRejected
from millstream.schemas.prediction_schema import JsonSchema, output_types, prediction_schema


def run(args: argparse.Namespace) -> int:
    """Print the schema."""
    pipeline = read_pipeline(args)
    if (args.form or pipeline.output.format) == "avro":
        shown = prediction_record(pipeline).definition
    else:
        plan = make_plan(pipeline)
        title = f"Predictions of pipeline {pipeline.name}"
        included = plan.included if pipeline.output.include else None
        outputs, optional = _outputs(plan)
        shown = prediction_schema(title, outputs, included, rollout=pipeline.rollout is not None, optional=optional)
    print(json.dumps(shown, indent=2, ensure_ascii=False))
    return 0


def _outputs(plan: Plan) -> tuple[dict[str, JsonSchema], set[str]]:
    """The type of each output, and the outputs that predictions may lack.

    The types are those that the model returns for a blank event. If the model rejects it, config.yaml tells the names alone.
    """
    try:
        answer = answer_blank(plan.model, plan.executor)
    except ModelRejected as refusal:
        outputs = plan.model.signature.outputs
        _say_unknown(plan, refusal)
        names: dict[str, JsonSchema] = {name: {} for output in outputs for name in output.names}
        return names, names.keys() - {name for output in outputs for name in output.sure_names}
    return output_types(answer, allow_nan=plan.pipeline.model.allow_nan_outputs), set()


def _say_unknown(plan: Plan, refusal: ModelRejected) -> None:
    """Tell why the schema says less than usual."""
    unsure = [f"`{output.name}`" for output in plan.model.signature.outputs if not output.sure_names]
    forms = (
        f" Predictions have either {' and '.join(unsure)} or a score for each class, so it requires neither."
        if unsure
        else ""
    )
    say(
        f"{plan.model.place}: expected an answer to a blank event, which shows the types of the outputs; found a refusal: "
        f"{str(refusal).removesuffix('.')}. So the schema allows any type.{forms} For a complete schema, let the model answer "
        f"blank events: zeros and empty texts.",
        logging.WARNING,
    )
