"""The words of autopilot: its name in records, and what two reasons have in common."""

from __future__ import annotations

import re
from typing import Final

AUTOPILOT: Final = "autopilot"
"""Who makes the changes that nobody asked for. A person's name in a record is another one."""
_NUMBER: Final = re.compile(
    r"(\bversion \d+|\bv\d+)|[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?%?|[-+]?\b(?:inf|nan)\b"
)


def kind_of(reason: str) -> str:
    """A reason without its numbers, except for versions: "12 of 500 labels" and "13 of 500 labels" are of the same kind."""
    return _NUMBER.sub(lambda found: found[1] or "#", reason)


def seconds(ms: float) -> str:
    """A span of time, such as `12 s`."""
    return f"{max(0.0, ms) / 1000:.3g} s" if ms < 100_000 else f"{ms / 60_000:.0f} min"
