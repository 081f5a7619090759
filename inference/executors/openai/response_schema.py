"""Checks a completion against a JSON Schema, and takes the outputs from it."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from millstream.inference.errors import ModelConfigError, ModelRejected
from millstream.schemas.errors import BadPathError, BadSchemaError
from millstream.schemas.json.json_schema import JsonSchema
from millstream.schemas.paths import Step, parse_path, text_of
from millstream.schemas.wording import shown

# Many models put JSON into a code block, even if they are told not to.
_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*\Z", re.DOTALL | re.IGNORECASE)
_DTYPES: dict[str, Any] = {"string": object, "integer": np.int64, "number": np.float64, "boolean": np.bool_}
"""Type in a JSON Schema -> the output's."""
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Field:
    """A value of the answer that becomes an output."""

    path: str
    steps: tuple[Step, ...]
    kind: str  # string, integer, number, boolean; array or object: the output is JSON text

    def taken(self, answer: Any) -> Any:
        """The value in an answer that fits the schema. Raises ModelRejected: it doesn't fit into an output."""
        value = answer
        for step in self.steps:
            value = value[step]
        if self.kind not in _DTYPES:
            return msgspec.json.encode(value).decode()
        if self.kind == "integer":
            if int(value) not in _INT64:
                raise ModelRejected(f"`{self.path}`: expected a whole number of 64 bits, found {str(value)[:40]}")
            return int(value)  # JSON Schema also takes 3.0 for an integer
        return _double(value, self.path) if self.kind == "number" else value

    @property
    def dtype(self) -> Any:
        """The type of the output's array."""
        return _DTYPES.get(self.kind, object)


class ResponseSchema:
    """The JSON Schema of completions."""

    def __init__(
        self, name: str, text: str, paths: Mapping[str, str], place: str, *, reserved: Collection[str] = ()
    ) -> None:
        """Args:
        name: how messages name the schema.
        text: the schema.
        paths: of the values that become outputs -> their places in config.yaml, for messages.
        place: the schema's, for messages.
        reserved: names of outputs that are not in the answer.

        Raises:
            ModelConfigError: the schema is wrong, it has a property with a reserved name, or it doesn't ensure a value of one
                type at each path.
        """
        try:
            self._schema = JsonSchema(name, text, "the completion")
        except BadSchemaError as error:
            raise ModelConfigError(f"{place}: {error}.") from None
        self.definition: Mapping[str, Any] = self._schema.definition
        taken = sorted(set(reserved) & set(self.definition.get("properties", ())))
        if taken:
            raise ModelConfigError(
                f"{place}: expected other properties than {', '.join(reserved)}, which every completion has as outputs; found "
                f"{', '.join(taken)}. Rename it in the schema and in the prompt."
            )
        self._fields = [self._field(path, option) for path, option in paths.items()]

    def answer(self, text: str) -> Any:
        """The answer in a completion. Raises ModelRejected: it is no JSON, or doesn't fit the schema."""
        try:
            encoded = unfenced(text).encode()
            answer = msgspec.json.decode(encoded)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise ModelRejected(f"expected JSON in the completion, found {shown(text)}") from None
        if (fault := self._schema.fault(encoded)) is not None:
            raise ModelRejected(fault)
        return answer

    def outputs(self, answers: Sequence[Any]) -> dict[str, npt.NDArray[Any]]:
        """Path -> [events], of answers that fit the schema. Raises ModelRejected: see `Field.taken`."""
        return {
            field.path: np.array([field.taken(answer) for answer in answers], field.dtype) for field in self._fields
        }

    def _field(self, path: str, place: str) -> Field:
        try:
            steps = parse_path(path).steps
        except BadPathError as error:
            raise ModelConfigError(f"{place}: {error}.") from None
        node: Any = self.definition
        for at, step in enumerate(steps):
            node = self._schema.resolved(node)
            properties = node.get("properties", {}) if isinstance(node, dict) else {}
            if not isinstance(step, str) or step not in properties:
                raise ModelConfigError(
                    f"{place}: expected the path of a value that the schema of `json_schema` lists under `properties`, found "
                    f"{path}. Write `text` for the whole completion, or one of: {', '.join(properties) or 'none'}."
                )
            if step not in node.get("required", ()):
                raise ModelConfigError(
                    f"{place}: expected a schema in `json_schema` that requires `{text_of(steps[: at + 1])}`, because a "
                    f"prediction has no null; found it optional. List it under `required`."
                )
            node = properties[step]
        return Field(path, steps, self._kind(node, path, place))

    def _kind(self, node: Any, path: str, place: str) -> str:
        """The one type that the schema allows at a path."""
        node = self._schema.resolved(node)
        found: set[str] = set()
        if isinstance(node, dict):
            stated = node.get("type", ())
            found = {stated} if isinstance(stated, str) else set(stated)
            if not found:
                values = node.get("enum", [node["const"]] if "const" in node else [])
                found = {_JSON_TYPES.get(type(value), "null") for value in values}
        if found == {"integer", "number"}:
            return "number"
        if len(found) == 1 and "null" not in found:
            return found.pop()
        raise ModelConfigError(
            f"{place}: expected a schema in `json_schema` that states one type for `{path}`, because an output has one and no "
            f"null; found {', '.join(sorted(found)) or 'none'}. State one `type` there; in place of null, use a value such as an "
            f"empty text."
        )


def _double(value: int | float, path: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ModelRejected(
            f"`{path}`: expected a number that fits into a double, found {str(value)[:40]}..."
        ) from None


def unfenced(text: str) -> str:
    """The text without a code block around it."""
    found = _FENCED.match(text)
    return found[1] if found else text.strip()
