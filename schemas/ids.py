"""Event IDs as texts, whatever the type of their field is. An event without an ID field has the name of its place as its ID."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from millstream.schemas.arrays import Ints
from millstream.schemas.column import Column, NumberColumn, StringColumn
from millstream.schemas.decimals import decimals
from millstream.schemas.interleave import interleave
from millstream.schemas.packed import Packed, Texts

_POSITIONAL: dict[type[np.generic], tuple[float, float]] = {np.float32: (1e-6, 1e13), np.float64: (1e-5, 1e16)}
"""From where on, and up to where, floats are written without an exponent."""


def ids_of(column: Column) -> Texts:
    """The values of a column without nulls, as texts. Raises TypeError unless they are texts, numbers or booleans."""
    match column:
        case StringColumn():
            return Texts(column.packed) if column.is_text else Texts.of([value.decode() for value in column.packed])
        case NumberColumn():
            return Texts.of(_number_texts(column))
    raise TypeError("expected texts, numbers or booleans as the events' IDs, found lists or records")


def place_id(topic: str, partition: int, offset: int) -> str:
    """The ID of an event without an ID field."""
    return f"{topic}-{partition}-{offset}"


def place_ids(partitions: Mapping[int, tuple[str, int]], places: Ints, offsets: Ints) -> Texts:
    """As `place_id`, of many events.

    Args:
        partitions: topics and partition numbers, by 0, 1, 2, ...
        places: each event's key in `partitions`.
        offsets: of each event.
    """
    heads = [place_id(*partition, 0)[:-1].encode() for partition in partitions.values()]
    head = heads[0] if len(heads) == 1 else Packed.of(heads).reordered(places)
    return Texts(interleave([head, decimals(offsets)], len(offsets)))


def _number_texts(column: NumberColumn) -> list[str]:
    match column.values.dtype.kind:
        case "i":
            return list(map(str, column.values.tolist()))
        case "b":
            return ["true" if value else "false" for value in column.values.tolist()]
    return [float_text(number) for number in column.values]


def float_text(number: np.floating[Any]) -> str:
    """The shortest text of the number. It must never change: another text is the ID of another event."""
    if np.isnan(number):
        return "NaN"
    least, most = _POSITIONAL[type(number)]
    if not number or np.isinf(number) or least <= abs(number) < most:
        return np.format_float_positional(number, trim="0")
    return np.format_float_scientific(number, trim="-", exp_digits=1)
