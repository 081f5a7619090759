"""Size limits of Avro schemas. An untrusted schema must not stop a worker or exhaust its memory.

A reader is compiled from a schema's types, with each reference replaced by the type that it names. So 2.6 kB of text (twenty
records, each with two fields of the previous one) can expand to a million types. The code after these checks recurses, and its
time grows with the number of types.
"""

import json
from typing import Any

import fastavro

from millstream.schemas.errors import BadSchemaError
from millstream.schemas.store import AvroType

MAX_TEXT = 1 << 20  # characters: registries keep a schema in a Kafka record, which has at most 1 MiB by default
MAX_LEVELS = 64  # of types within types
MAX_TYPES = 10_000  # after expanding references; a field counts as one, with null allowed as three
MAX_FIXED = 2**31 - 1  # bytes of a `fixed`: no Kafka record holds more, its length is a 32-bit integer
_MAX_JSON_LEVELS = 4 * MAX_LEVELS  # a record within a record takes three: its object, the list of fields, the field
_FASTAVRO_KEYS = ("__fastavro_parsed", "__named_schemas")  # fastavro doesn't check a schema that has these keys


def definition_of(place: str, text: str, *, bare_name: bool = False) -> AvroType:
    """Read a schema's text and check that it is a valid schema within the limits.

    Args:
        place: what error messages begin with.
        text: the schema, as JSON.
        bare_name: whether text that is not JSON may be the name of a primitive type.

    Raises:
        BadSchemaError: it is no valid schema, or exceeds a limit.
        json.JSONDecodeError: the text isn't JSON, and `bare_name` is false.
    """
    if len(text) > MAX_TEXT:
        raise BadSchemaError(
            f"{place}: expected a schema of at most {MAX_TEXT:,} characters, found {len(text):,}: shorten it"
        )
    try:
        definition = json.loads(text)
    except RecursionError as error:
        raise BadSchemaError(f"{place}: the JSON is nested too deeply to read: flatten the schema") from error
    except ValueError as error:
        if not bare_name and isinstance(error, json.JSONDecodeError):
            raise
        if not bare_name:  # an integer of more digits than Python parses
            raise BadSchemaError(f"{place}: expected JSON: {error}: correct the schema") from error
        definition = text
    parsed_within_limits(place, definition)
    return definition


def parsed_within_limits(place: str, definition: AvroType) -> Any:
    """Return the schema as fastavro parses it.

    Raises:
        BadSchemaError: it is no valid Avro schema, or beyond the limits. The message begins with the place.
    """
    _check_json(place, definition)
    try:
        parsed = fastavro.parse_schema(definition)
    except Exception as error:  # fastavro raises many types for malformed input, also KeyError and TypeError
        said = f"missing {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise BadSchemaError(f"{place}: expected an Avro schema: {said[:300]}: correct the schema") from error
    types, levels = _Size(place).of(parsed)
    if levels > MAX_LEVELS:
        raise BadSchemaError(
            f"{place}: expected types within types at most {MAX_LEVELS} levels deep, found {levels}: flatten the schema"
        )
    if types > MAX_TYPES:
        raise BadSchemaError(
            f"{place}: expected at most {MAX_TYPES:,} types, found {_counted(types)} after expanding references "
            "to named types: use fewer fields"
        )
    return parsed


def types_of(parsed: Any) -> int:
    """Number of types, after expanding references, of a schema that `parsed_within_limits` returned."""
    return _Size("").of(parsed)[0]


def _counted(types: int) -> str:
    return f"{types:,}" if types < 10**9 else "more than a billion"


def _check_json(place: str, definition: AvroType) -> None:
    """Refuse JSON nested too deeply for recursive code, and the keys that make fastavro skip its checks."""
    level, inside = 0, [definition]
    while inside:
        level += 1
        if level > _MAX_JSON_LEVELS:
            raise BadSchemaError(
                f"{place}: expected JSON at most {_MAX_JSON_LEVELS} levels deep, found more: flatten the schema"
            )
        deeper: list[Any] = []
        for node in inside:
            if isinstance(node, dict):
                if any(key in node for key in _FASTAVRO_KEYS):
                    raise BadSchemaError(f"{place}: expected an Avro schema, found fastavro's internal keys in it")
                deeper += node.values()
            elif isinstance(node, list):
                deeper += node
        inside = deeper


class _Size:
    """Counts types and levels, each named type once; the JSON is known to be nested within bounds."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._named: dict[str, tuple[int, int]] = {}

    def of(self, node: AvroType) -> tuple[int, int]:
        """Types, and levels of types within types."""
        if isinstance(node, str):
            # A name not seen yet is a primitive, or a type that contains itself, which other code refuses.
            return self._named.get(node, (1, 1))
        if isinstance(node, list):
            self._check_union(node)
        size = self._within(node if isinstance(node, list) else self._inner(node))
        if isinstance(node, dict) and isinstance(node.get("name"), str):
            self._named[node["name"]] = size
        return size

    def _inner(self, node: dict[str, Any]) -> list[AvroType]:
        match node["type"]:
            case "record" | "error":
                self._check_name(node["name"], "a record")
                names = [field["name"] for field in node["fields"]]
                for name in names:
                    self._check_name(name, f"each field of {node['name']}")
                if len(set(names)) < len(names):  # fastavro takes it
                    twice = next(name for name in names if names.count(name) > 1)
                    raise BadSchemaError(
                        f"{self._place}: expected fields of different names in {node['name']}, found {twice} twice: rename one"
                    )
                return [field["type"] for field in node["fields"]]
            case "array":
                return [node["items"]]
            case "map":
                return [node["values"]]
            case "fixed":
                self._check_name(node["name"], "a fixed type")
                self._check_fixed(node)
            case "enum":
                self._check_name(node["name"], "an enum")
                self._check_symbols(node)
            case str():
                return []
            case other:
                return [other]
        return []

    def _within(self, inner: list[AvroType]) -> tuple[int, int]:
        sizes = [self.of(one) for one in inner]
        return 1 + sum(types for types, _ in sizes), 1 + max((levels for _, levels in sizes), default=0)

    def _check_union(self, branches: list[AvroType]) -> None:
        # Avro forbids it, and readers that accept it read different values.
        if any(isinstance(branch, list) for branch in branches):
            raise BadSchemaError(f"{self._place}: expected no union directly within a union: make it one union")

    def _check_name(self, name: Any, of: str) -> None:
        # Half of a surrogate pair is no text either.
        if not isinstance(name, str) or not name or name.encode(errors="replace").decode() != name:
            raise BadSchemaError(
                f"{self._place}: expected text as the name of {of}, found {name!r:.60}: correct the schema"
            )

    def _check_symbols(self, node: dict[str, Any]) -> None:
        if not isinstance(node["symbols"], list):  # fastavro takes the keys of an object, too
            raise BadSchemaError(
                f"{self._place}: expected a list as the symbols of {node['name']}, found {node['symbols']!r:.60}: "
                "correct the schema"
            )

    def _check_fixed(self, node: dict[str, Any]) -> None:
        size = node["size"]
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_FIXED:
            found = repr(size) if not isinstance(size, int) or abs(size) < 10**30 else "a much larger number"
            raise BadSchemaError(
                f"{self._place}: expected a size from 0 to {MAX_FIXED} for the fixed type {node['name']}, found "
                f"{found:.60}: correct the schema"
            )
