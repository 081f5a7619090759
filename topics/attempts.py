"""How often an event was tried: a header of replayed events. It is a module of its own, for workers, which replay nothing."""

from collections.abc import Iterable
from typing import Any, Final

ATTEMPTS: Final = "millstream.attempts"
"""Header of a replayed event: how many times it was tried before, as decimal digits."""

_MAX_ATTEMPT_DIGITS = 6  # nobody replays more often, and the dead letter's field has 32 bits


def attempts_before(headers: Iterable[tuple[str, Any]]) -> int:
    """How often an event was tried before, by its headers; 0 if there is no valid header."""
    said = [value for name, value in headers if name == ATTEMPTS]
    # Anybody can write headers, and none may end a worker. `isdigit` of bytes accepts only 0 to 9.
    if not said or not isinstance(said[-1], bytes) or not said[-1].isdigit() or len(said[-1]) > _MAX_ATTEMPT_DIGITS:
        return 0
    return int(said[-1])
