"""Puts the check against `input.json_schema` before a pipeline's decoder."""

from collections.abc import Iterable

from millstream.consumers.errors import PlanError
from millstream.consumers.problems import Problems
from millstream.consumers.schema_store import open_json_schemas
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.decoded import Decoder
from millstream.schemas.errors import BadSchemaError, UnknownSchema
from millstream.schemas.json.checked import CheckedDecoder
from millstream.schemas.json.json_schema import MAX_TEXT, JsonSchema
from millstream.schemas.paths import parse_path
from millstream.schemas.store import SchemaStore


def checked_decoder(pipeline: Pipeline, decoder: Decoder, paths: Iterable[str]) -> Decoder:
    """The decoder, with the check before it if the pipeline file names a JSON Schema.

    Args:
        pipeline: the pipeline file's settings.
        decoder: of the events.
        paths: those that are read.

    Raises:
        PlanError: there is no such schema, it is invalid, or it allows no value at a path: a line for each.
        SchemaUnavailable: the registry can't be asked now.
    """
    named = pipeline.input.json_schema
    if named is None:
        return decoder
    place = pipeline.at("input", "json_schema")
    store: SchemaStore | None = None
    try:
        if named.endswith(".json"):
            text = _content(pipeline, named)
        else:
            store = open_json_schemas(pipeline)
            text = store.by_name(named).definition
        schema = JsonSchema(named, text)
    except (BadSchemaError, UnknownSchema) as error:
        raise PlanError(f"{place}: {error}.") from None
    problems = Problems()
    for path in paths:
        with problems:
            if why := schema.check_path(parse_path(path).steps):
                raise PlanError(
                    f"{place}: expected a schema that allows the field `{path}`, which the pipeline or the model reads: in "
                    f"{named}, {why}. Correct the schema, or read another field."
                )
    problems.raise_all()
    return CheckedDecoder(decoder, schema, store)


def _content(pipeline: Pipeline, name: str) -> str:
    file = pipeline.path.parent / name
    try:
        with file.open("rb") as opened:
            return opened.read(4 * MAX_TEXT + 1).decode("utf-8-sig")
    except OSError as error:
        raise BadSchemaError(f"{file} can't be read: {error.strerror}: put the JSON Schema there") from None
    except UnicodeDecodeError:
        raise BadSchemaError(f"expected UTF-8 text in {file}: save it as UTF-8") from None
