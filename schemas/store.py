"""The interface of schema stores: a folder (`directory`) or a schema registry (`registry`)."""

from dataclasses import dataclass
from typing import Any, Protocol

LARGEST_ID = 2**31 - 1  # of a schema: registries use Java's `int`
AvroType = Any  # an Avro schema as JSON parses it: a name, a list (union), or a dict


@dataclass(frozen=True, slots=True)
class Schema:
    """An Avro schema with the id that its records carry."""

    id: int
    name: str  # the file's name without id and ending; the subject in a registry ("" if it was found by its ID)
    definition: AvroType


class SchemaStore(Protocol):
    """Finds schemas. Any method may raise SchemaUnavailable (retry) or BadSchemaError."""

    def by_id(self, schema_id: int) -> Schema:
        """Return the schema with this id; raise UnknownSchema where there is none."""
        ...

    def by_name(self, name: str) -> Schema:
        """Return the newest schema of this name; raise UnknownSchema if there is none."""
        ...

    def register(self, name: str, definition: AvroType) -> int:
        """Return the id under which records of this schema are written."""
        ...
