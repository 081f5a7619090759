"""Finds keys that a JSON object has more than once. Of these, the last one counts."""

import json
from collections import Counter
from contextlib import suppress
from typing import Any

from millstream.schemas.wire import without_head


def repeated_keys(value: bytes) -> list[str]:
    """The keys that some object of this event has more than once, each named once; empty if it isn't JSON."""
    found: dict[str, None] = {}

    def look(pairs: list[tuple[str, Any]]) -> None:
        found.update(dict.fromkeys(name for name, times in Counter(name for name, _ in pairs).items() if times > 1))

    with suppress(ValueError, RecursionError):
        json.loads(without_head(value), object_pairs_hook=look)
    return list(found)
