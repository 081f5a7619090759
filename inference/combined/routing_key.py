"""Reads the field by which events are routed: texts, whole numbers and booleans, all as texts."""

from collections.abc import Callable
from dataclasses import dataclass

from millstream.inference.conversions import Conversion, Converted
from millstream.inference.signature import TensorInput
from millstream.schemas.arrays import Ints
from millstream.schemas.column import Column, StringColumn
from millstream.schemas.ids import ids_of


@dataclass(frozen=True, slots=True)
class RoutingKey:
    """Makes texts of a field's values: `7` of the number 7, and `true` of true."""

    boolean: bool  # whether it is a boolean in JSON without a schema; otherwise a text or a whole number

    @property
    def leaf(self) -> str:
        """See Reader."""
        return "boolean" if self.boolean else "scalar"

    @property
    def takes(self) -> tuple[str, ...]:
        """See Reader."""
        return ("string", "int32", "int64", "boolean", "scalar", "mixed")

    @property
    def expected(self) -> str:
        """See Reader."""
        return "a text, a whole number, or true or false"

    def convert(self, column: Column, event_times: Callable[[], Ints]) -> Converted:  # noqa: ARG002
        """See Converter."""
        return Converted(StringColumn(ids_of(column).utf8, True, column.valid), None)


def key_input(field: str, mapped_at: str, *, boolean: bool = False) -> TensorInput:
    """The input with a field's values as texts, empty for a null. `mapped_at`: the place in the pipeline file."""
    name = f"route({field} as text)"
    conversion = Conversion(RoutingKey(boolean), "", is_mapped=False)
    return TensorInput(name, (field,), False, "string", (), mapped_at=mapped_at, conversions=(conversion,))


def number_input(field: str, mapped_at: str) -> TensorInput:
    """The input with a field's numbers, NaN for a null. `mapped_at`: the place in the pipeline file."""
    conversion = Conversion(missing=float("nan"), is_mapped=False)
    return TensorInput(
        f"route({field})", (field,), False, "float64", (), mapped_at=mapped_at, conversions=(conversion,)
    )
