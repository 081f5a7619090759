"""The fate of each record: its row, or the reason why it was refused. A fate must not depend on the neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from millstream.schemas.decoded import Decoded
from millstream.schemas.table import Table
from tests.fuzz.case import Counts, Wrong
from tests.schemas.tables import as_stored, dtypes_of, rows_of

Fate = tuple[str, str]
"""("row", its values) or (a reason, the error)."""
_MOST_ERROR = 500  # characters, that a dead letter has of it
_REASONS = {"undecodable", "unknown_schema", "schema_incompatible"}


def texts_of(table: Table) -> list[str]:
    """Each row's values as text that tells -0.0 from 0.0 and takes NaN for equal."""
    return list(map(repr, rows_of(table)))


def fates_of(decoded: Decoded, count: int, columns: Any) -> list[Fate]:
    """The fate of each of `count` values. Raises Wrong where one has none, two, or a form that was not promised."""
    table = decoded.table
    if dtypes_of(table) != {name: as_stored(dtype) for name, dtype in columns.items()}:
        raise Wrong(f"columns are {dtypes_of(table)}, promised were {columns}")
    fates: dict[int, Fate] = {}
    good = decoded.rows.tolist()
    bad = [record.row for record in decoded.bad]
    if sorted([*good, *bad]) != list(range(count)) or good != sorted(good) or bad != sorted(bad):
        raise Wrong(f"of {count} values, rows {good} are good and {bad} bad")
    fates |= zip(good, [("row", row) for row in texts_of(table)], strict=True)
    for record in decoded.bad:
        if record.reason not in _REASONS or not record.error or len(record.error) > _MOST_ERROR:
            raise Wrong(f"the reason {record.reason!r} comes with {len(record.error)} characters of error")
        fates[record.row] = record.reason, record.error
    return [fates[row] for row in range(count)]


def check_neighbours(fate_of: Callable[[Sequence[bytes]], list[Fate]], values: Sequence[bytes]) -> list[Fate]:
    """The values' fates: the same together, in another order, and each alone."""
    together = fate_of(values)
    order = list(range(len(values)))
    Random(len(values)).shuffle(order)
    shuffled = fate_of([values[row] for row in order])
    for row, moved in zip(order, shuffled, strict=True):
        _same(together[row], moved, values[row], "in another order")
    for row, value in enumerate(values):
        _same(together[row], fate_of([value])[0], value, "alone")
    return together


def counts_of(fates: Sequence[Fate]) -> Counts:
    """How many were accepted and refused."""
    accepted = sum(kind == "row" for kind, _ in fates)
    return Counts(accepted, len(fates) - accepted)


def _same(together: Fate, other: Fate, value: bytes, how: str) -> None:
    # The words may differ: a number that is cut off is also one that goes on in the neighbour's bytes.
    if together[0] != other[0] or (together[0] == "row" and together != other):
        raise Wrong(f"{value.hex()} is {together} among its neighbours, and {other} {how}")
