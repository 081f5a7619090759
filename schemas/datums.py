"""Decodes whole records of Millstream's own schemas, in Avro or JSON."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import fastavro
import msgspec

from millstream.schemas.avro.each import malformation
from millstream.schemas.avro.empty import parsed_bounded
from millstream.schemas.errors import BadSchemaError, NotWireFormat, UnknownSchema
from millstream.schemas.wire import HEAD_BYTES, schema_id_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.schemas.store import SchemaStore

_JSON = msgspec.json.Decoder(dict[str, Any])


class Datums:
    """Reads records with the schemas that they were written with. Objects of JSON begin with a brace, and Avro never does."""

    def __init__(self, store: SchemaStore) -> None:
        self._store = store
        self._writers: dict[bytes, Any] = {}  # fastavro's parsed schemas by the values' head; None: not readable

    def read(self, values: Sequence[bytes | None]) -> list[dict[str, Any] | None]:
        """The records as they are; None for what is none. Raises SchemaUnavailable."""
        return [self.one(value or b"") for value in values]

    def one(self, value: bytes) -> dict[str, Any] | None:
        """A record as it is; None: it is none. Raises SchemaUnavailable."""
        return self._of_json(value) if value[:1] == b"{" else self._of_avro(value)

    def _of_json(self, value: bytes) -> dict[str, Any] | None:
        try:
            return _JSON.decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    def _of_avro(self, value: bytes) -> dict[str, Any] | None:
        head = value[:HEAD_BYTES]
        if head not in self._writers:
            try:
                writer = parsed_bounded(self._store.by_id(schema_id_of(value)))
            except UnknownSchema:
                return None  # it may be registered later
            except (NotWireFormat, BadSchemaError):
                writer = None
            if len(self._writers) > 1000:  # hostile IDs
                self._writers.clear()
            self._writers[head] = writer
        writer = self._writers[head]
        if writer is None:
            return None
        body = BytesIO(value)
        body.seek(HEAD_BYTES)
        try:
            datum = fastavro.schemaless_reader(body, writer, None)
        except Exception:  # fastavro raises exceptions of any class if the bytes don't follow the schema
            return None
        return datum if isinstance(datum, dict) else None


class DatumsOf:
    """Reads Avro records of one of Millstream's own schemas, of any of its versions, as records of the version that it knows."""

    def __init__(self, store: SchemaStore, schema: object, prefix: str = "") -> None:
        """Args:
        store: has the schemas that records were written with.
        schema: fastavro's parsed schema to read them as.
        prefix: of messages.
        """
        self._store = store
        self._schema = schema
        self._prefix = prefix
        self._writers: dict[bytes, Any] = {}  # fastavro's parsed schemas, by the values' head

    def one(self, value: bytes) -> dict[str, Any]:
        """A record.

        Raises:
            NotWireFormat, UnknownSchema, BadSchemaError: it is no such record.
            SchemaUnavailable: the schema can't be had at the moment.
        """
        head = value[:HEAD_BYTES]
        writer = self._writers.get(head)
        if writer is None:
            writer = self._writers[head] = parsed_bounded(self._store.by_id(schema_id_of(value)))
        body = BytesIO(value)
        body.seek(HEAD_BYTES)
        reader: Any = None if writer == self._schema else self._schema
        try:
            datum = fastavro.schemaless_reader(body, writer, reader)
        except Exception as fault:  # fastavro raises exceptions of any class if the bytes don't follow the schema
            raise BadSchemaError(f"{self._prefix}{malformation(fault)}") from fault
        if not isinstance(datum, dict) or body.tell() != len(value):
            left = len(value) - body.tell()
            raise BadSchemaError(f"{self._prefix}{left} bytes are left over after the last field")
        return datum
