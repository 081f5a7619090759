"""A decoder that first checks each event against a JSON Schema."""

from collections.abc import Mapping, Sequence

import numpy as np

from millstream.schemas.decoded import BadRecord, Decoded, Decoder
from millstream.schemas.dtypes import Dtype
from millstream.schemas.errors import BadSchemaError, SchemaUnavailable, UnknownSchema
from millstream.schemas.json.json_schema import JsonSchema
from millstream.schemas.packed import Packed
from millstream.schemas.recently_used import RecentlyUsed
from millstream.schemas.store import SchemaStore
from millstream.schemas.wire import HEAD_BYTES, schema_id_of

_MOST_KEPT = 8 << 20  # characters of the schemas that are kept compiled


class CheckedDecoder:
    """Passes on the events that fit the schema; the others are `undecodable`.

    With a store, an event that begins with a schema ID is checked against the schema of this ID.
    """

    def __init__(self, decoder: Decoder, schema: JsonSchema, store: SchemaStore | None = None) -> None:
        """Args:
        decoder: decodes the events that fit.
        schema: of events without a schema ID; without a store, of all events.
        store: the registry's JSON Schemas by ID.
        """
        self._decoder = decoder
        self._schema = schema
        self._store = store
        self._kept = RecentlyUsed[int, JsonSchema | BadSchemaError](_MOST_KEPT)

    @property
    def columns(self) -> Mapping[str, Dtype]:
        """See Decoder."""
        return self._decoder.columns

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """See Decoder."""
        packed = Packed.of(values)
        bad = [record for row, value in enumerate(packed) if (record := self._fault(row, value)) is not None]
        if not bad:
            return self._decoder.decode(packed)
        rows = np.delete(np.arange(len(packed)), [record.row for record in bad])
        return Decoded.concat([(rows, self._decoder.decode(packed.take(rows)))], bad)

    def _fault(self, row: int, value: bytes) -> BadRecord | None:
        try:
            fault = self._schema_of(value).fault(value)
        except UnknownSchema as error:
            return BadRecord.of(row, "unknown_schema", str(error))
        except BadSchemaError as error:
            return BadRecord.of(row, "schema_incompatible", str(error))
        except SchemaUnavailable as error:
            error.row = row
            raise
        return None if fault is None else BadRecord.of(row, "undecodable", fault)

    def _schema_of(self, value: bytes) -> JsonSchema:
        if self._store is None or value[:1] != b"\0" or len(value) < HEAD_BYTES:
            return self._schema
        schema_id = schema_id_of(value)
        kept = self._kept.get(schema_id)
        if kept is None:
            found = self._store.by_id(schema_id)
            try:
                kept = JsonSchema(f"with the ID {schema_id}", found.definition)
            except BadSchemaError as error:
                kept = error
            self._kept.put(schema_id, kept, len(found.definition))
        if isinstance(kept, BadSchemaError):
            raise BadSchemaError(str(kept))
        return kept
