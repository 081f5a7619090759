"""Names of the columns that a look-up fills: `[customer].orders` is the field `orders` of the look-up `customer`.

No path of an event begins like this (see `schemas.paths`), so the columns of events and of look-ups can be in one table.
"""

import re
from typing import NamedTuple

LOOKUP_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


class LookedUp(NamedTuple):
    """A field of a look-up."""

    lookup: str
    field: str  # a path within the store's entry


def column_of(lookup: str | None, field: str) -> str:
    """The column of a field of this look-up; of the event's own field if `lookup` is None."""
    return field if lookup is None else f"[{lookup}].{field}"


def age_column_of(lookup: str) -> str:
    """The column of the age of a look-up's entries, in seconds."""
    return f"[{lookup}] age"


def looked_up(column: str) -> LookedUp | None:
    """The field of a look-up that fills this column; None: a field of the event does."""
    if not column.startswith("[") or column.startswith('["'):
        return None
    lookup, _, field = column[1:].partition("].")
    return LookedUp(lookup, field)
