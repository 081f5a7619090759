"""Parses durations ("5ms") and sizes ("1MiB") in YAML files."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from millstream.schemas.wording import shown

_NUMBER_AND_UNIT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?) ?([A-Za-z]*)", re.ASCII)
_SECONDS_OF = {"us": Decimal("1e-6"), "ms": Decimal("1e-3"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_PARSED = {**_SECONDS_OF, "d": Decimal(86_400)}  # written are hours: most durations are of that size
_BYTES_OF = {
    "B": 1,
    "KB": 1000,
    "KiB": 1024,
    "MB": 1000**2,
    "MiB": 1024**2,
    "GB": 1000**3,
    "GiB": 1024**3,
}
# A longer time has a wrong unit; a much longer one would overflow the operating system's timers.
_MAX_SECONDS = 30 * 24 * 3600


def parse_duration(value: object) -> float:
    """Return the seconds of a text such as "5ms", "0.5s" or "2m" (units us, ms, s, m, h, d).

    Raises ValueError, saying what was expected and found, also for a number without a unit and for more than 30 days.
    """
    amount, unit = _split(value)
    if amount is not None and not unit:
        raise ValueError(f"expected a duration, found {amount} without a unit: write {amount}ms or {amount}s.")
    if amount is None or unit not in _PARSED:
        raise ValueError(f"expected a duration such as 5ms, 0.5s, 2m, 1h or 7d, found {shown(value)}")
    seconds = float(amount * _PARSED[unit])
    if seconds > _MAX_SECONDS:
        raise ValueError(f"expected a duration of at most 30 days (30d), found {shown(value)}")
    return seconds


def written_duration(seconds: float) -> str:
    """The duration as a YAML file takes it, in the largest unit that gives a whole number: "6h", "90m", "1500ms"."""
    amount = Decimal(str(seconds))
    for unit, size in sorted(_SECONDS_OF.items(), key=lambda entry: -entry[1]):
        if amount and amount % size == 0:
            return f"{int(amount / size)}{unit}"
    return f"{seconds:g}s"


def parse_size(value: object) -> int:
    """Return the bytes of a text such as "512KiB" or "1.5MB" (units B, KB, KiB, MB, MiB, GB, GiB).

    Raises ValueError, saying what was expected and found, also for a number without a unit and for parts of a byte.
    """
    amount, unit = _split(value)
    if amount is not None and not unit:
        raise ValueError(f"expected a size, found {amount} without a unit: write {amount}B or, say, 1MiB.")
    if amount is None or unit not in _BYTES_OF:
        raise ValueError(f"expected a size such as 512KiB, 1MiB or 2GiB, found {shown(value)}")
    size = amount * _BYTES_OF[unit]
    if size != int(size):
        raise ValueError(f"expected a whole number of bytes, found {shown(value)}, which is {size.normalize():f} bytes")
    return int(size)


def _split(value: object) -> tuple[Decimal | None, str]:
    """Return number and unit; (None, "") if the value has another form."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None, ""
    match = _NUMBER_AND_UNIT.fullmatch(str(value).strip())
    return (Decimal(match[1]), match[2]) if match else (None, "")


# `$comment` is the type's name in the reference page.
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?(us|ms|s|m|h)$", "$comment": "duration"}),
]
PositiveDuration = Annotated[Duration, Field(gt=0)]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    Field(gt=0),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?(B|KB|KiB|MB|MiB|GB|GiB)$", "$comment": "size"}),
]
