"""Checks events against a JSON Schema, with the package jsonschema-rs."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from millstream.schemas.errors import BadSchemaError
from millstream.schemas.json.mismatch import in_words, reason_of
from millstream.schemas.paths import Step, text_of
from millstream.schemas.wire import without_head

MAX_TEXT = 1 << 20  # characters of a schema, as of an Avro schema
_LONGEST_VALUE = 80  # characters of a keyword's value in a message
_MOST_REGEX_BYTES = 10 << 20  # that a compiled pattern may take
_MOST_REFERENCES = 100  # that `check_path` follows


class JsonSchema:
    """A JSON Schema that is compiled. Threads may share it."""

    def __init__(self, place: str, text: str, subject: str = "the event") -> None:
        """Args:
        place: where the schema is, for messages.
        text: the schema.
        subject: how messages name a value that is checked.

        Raises:
            BadSchemaError: the text is no valid JSON Schema, refers to another document, has a pattern that needs more than
                linear time, or is too large; or jsonschema-rs is not installed.
        """
        self.place = place
        self._subject = subject
        self.definition = _definition(place, text)
        try:
            import jsonschema_rs  # noqa: PLC0415  (an extra)
        except ImportError:
            raise BadSchemaError(
                f"{place}: checking events against a JSON Schema needs the package `jsonschema-rs`, which is not installed. "
                f"Install Millstream with the extra `json-schema` (pip install 'millstream[json-schema]')"
            ) from None
        self._error = jsonschema_rs.ValidationError
        try:
            self._validator = jsonschema_rs.validator_for(
                self.definition,
                retriever=_never,
                # Takes time that is linear in the text. With lookaround, a pattern could take exponential time.
                pattern_options=jsonschema_rs.RegexOptions(size_limit=_MOST_REGEX_BYTES),
            )
        except Exception as error:  # ValueError, ReferencingError, and for a wrong `$schema` others
            said = " ".join(str(error).partition("Failed validating")[0].split())
            advice = (
                ": patterns with lookaround or back-references aren't supported, because they can take exponential time"
                if said.endswith('is not a "regex"')
                else ": write what it refers to into the schema, under `$defs`"
                if "retrieving it failed" in said
                else ": correct it"
            )
            raise BadSchemaError(f"{place}: expected a valid JSON Schema: {said:.300}{advice}") from None

    def fault(self, value: bytes) -> str | None:
        """Where an event doesn't fit the schema, what was expected and what was found; None: it fits."""
        body = without_head(value)
        try:
            event = msgspec.json.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return reason_of(value, (), str(error))
        try:
            self._validator.validate(event)
        except self._error as error:
            return f"{self._said(error)} (JSON Schema {self.place})"
        except ValueError as error:
            return f"{self._subject} can't be checked by JSON Schema {self.place}: {error}"
        return None

    def check_path(self, steps: Sequence[Step]) -> str | None:
        """Why no event that fits the schema has a value at these steps; None: it may have one, as far as is cheap to see."""
        node: Any = self.definition
        for place, step in enumerate(steps):
            node = self.resolved(node)
            if node is False:
                return f"no value is allowed at `{text_of(steps[:place])}`"
            if not isinstance(node, dict):
                return None
            kinds = node.get("type", ())
            needed = "object" if isinstance(step, str) else "array"
            if kinds and needed not in ([kinds] if isinstance(kinds, str) else kinds):
                return f"`{text_of(steps[:place]) or 'the event'}` is of type {kinds}, not {needed}"
            if not isinstance(step, str):
                node = node.get("items", True)
                continue
            properties = node.get("properties", {})
            closed = node.get("additionalProperties") is False and "patternProperties" not in node
            if step not in properties and closed:
                return f"`{text_of(steps[: place + 1])}` is not among its properties ({', '.join(properties)[:200]})"
            node = properties.get(step, True)
        return "no value is allowed there" if node is False else None

    def resolved(self, node: Any) -> Any:
        """The schema that a schema refers to within this document; True (anything) for any other reference."""
        for _ in range(_MOST_REFERENCES):
            if not isinstance(node, dict) or "$ref" not in node:
                return node
            pointer = node["$ref"]
            if not isinstance(pointer, str) or not pointer.startswith("#"):
                return True
            node = self.definition
            for name in pointer[1:].split("/")[1:]:
                name = name.replace("~1", "/").replace("~0", "~")  # noqa: PLW2901
                node = node.get(name, True) if isinstance(node, dict) else True
        return True

    def _said(self, error: Any) -> str:
        path, kind = list(error.instance_path), error.kind.name
        if kind == "required":
            return f"{text_of([*path, error.kind.property])}: expected a value, found none"
        if kind in ("additionalProperties", "unevaluatedProperties"):
            return f"{text_of([*path, error.kind.unexpected[0]])[:_LONGEST_VALUE]}: expected no such field, found one"
        where = text_of(path) if path else self._subject
        expected = _shortened(json.dumps(self._keyword(error.schema_path)))
        found = in_words(error.instance, quoted=kind in ("enum", "const", "pattern", "format"))
        return f"{where}: expected `{kind}` {expected}, found {found}"

    def _keyword(self, path: Sequence[str | int]) -> Any:
        node = self.definition
        for step in path:
            try:
                node = node[step]
            except (KeyError, IndexError, TypeError):
                return "of the schema"
        return node


def _definition(place: str, text: str) -> Any:
    if len(text) > MAX_TEXT:
        raise BadSchemaError(
            f"{place}: expected a schema of at most {MAX_TEXT:,} characters, found {len(text):,}: shorten it"
        )
    try:
        definition = json.loads(text)
    except RecursionError:
        raise BadSchemaError(f"{place}: the JSON is nested too deeply to read: flatten the schema") from None
    except ValueError as error:
        raise BadSchemaError(f"{place}: expected a JSON Schema, found no JSON: {error}: correct it") from None
    if not isinstance(definition, dict):
        raise BadSchemaError(f"{place}: expected a JSON Schema, an object, found {in_words(definition)}: correct it")
    return definition


def _never(uri: str) -> Any:
    raise ValueError(f"{uri:.200} is another document, and none is fetched")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
