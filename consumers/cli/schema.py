"""`millstream schema`: prints the schema of a pipeline's predictions, for the programs that read them."""

import argparse
import json

from millstream.consumers.cli.given import read_pipeline
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
        shown = prediction_schema(title, _outputs(plan), included, rollout=pipeline.rollout is not None)
    print(json.dumps(shown, indent=2, ensure_ascii=False))
    return 0


def _outputs(plan: Plan) -> dict[str, JsonSchema]:
    """The type of each output: what the model returns for a blank event. If the model rejects it, the types are unknown."""
    signature = plan.model.signature
    try:
        outputs = answer_blank(plan.model, plan.executor)
    except ModelRejected:
        return {entry.name: {} for entry in signature.outputs}
    return output_types(outputs, allow_nan=plan.pipeline.model.allow_nan_outputs)
