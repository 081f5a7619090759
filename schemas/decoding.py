"""Opens the decoder of events or labels, by how they are written. Only the chosen one is imported."""

from collections.abc import Mapping
from typing import Literal

from millstream.schemas.decoded import Decoder
from millstream.schemas.store import Schema, SchemaStore


def open_decoder(
    form: Literal["avro", "json"], store: SchemaStore, reader: Schema | None, types: Mapping[str, str]
) -> Decoder:
    """The decoder for values in a format.

    Args:
        form: how values are written.
        store: where the schemas of Avro values are.
        reader: the schema to read with; None for JSON without a schema.
        types: the wanted paths, with their types in JSON without a schema (see `JsonDecoder.of_types`).

    Raises:
        BadFieldError: a path isn't in the schema, or there can't be a column of its values.
    """
    if reader is not None and form == "avro":
        from millstream.schemas.avro.decoder import AvroDecoder  # noqa: PLC0415

        return AvroDecoder(store, reader, list(types))
    from millstream.schemas.json.decoder import JsonDecoder  # noqa: PLC0415

    return JsonDecoder.of_types(types) if reader is None else JsonDecoder.of_schema(reader, list(types))
