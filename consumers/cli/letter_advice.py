"""Says what to do about the event of a dead letter."""

from millstream.consumers.cli.event_advice import advice_on
from millstream.consumers.decode.named_fields import schema_of
from millstream.consumers.errors import WorkerError
from millstream.consumers.models.pipeline_models import PipelineModels
from millstream.consumers.worker.plan import load_primary
from millstream.inference.errors import InferenceError
from millstream.inference.signature import Signature
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.dead_letters import DeadLetter
from millstream.schemas.errors import SchemaError
from millstream.schemas.store import SchemaStore


def advice_on_letter(pipeline: Pipeline, store: SchemaStore, letter: DeadLetter, event: object) -> str:
    """What to do about a dead letter, as `predict` says it; without the model's mapping if that can't be loaded.

    Args:
        pipeline: whose letter it is.
        store: the pipeline's schemas.
        letter: the dead letter.
        event: as an object; anything else if it isn't known as one.
    """
    advice = advice_on(pipeline, None, letter.reason, letter.error, event)
    # Only advice on types depends on the mapping. To load it may take a download.
    if not advice or letter.reason != "undecodable" or (signature := _signature(pipeline, store)) is None:
        return advice
    return advice_on(pipeline, signature, letter.reason, letter.error, event)


def _signature(pipeline: Pipeline, store: SchemaStore) -> Signature | None:
    """How the model reads the fields; None: it can't be loaded."""
    try:
        return load_primary(PipelineModels(pipeline), schema_of(pipeline, store, "input")).signature
    except (WorkerError, InferenceError, SchemaError):
        return None
