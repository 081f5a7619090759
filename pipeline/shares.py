"""Shares of events, in percent: "5%", "0.5%" or 5."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, WithJsonSchema

from millstream.schemas.wording import shown

SLOTS: Final = 10_000
"""100 %, in slots. A slot is 0.01 %, the smallest share (docs/rollout-rules.md)."""
_PER_PERCENT: Final = 100
_SHARE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,18})?) ?(%?)", re.ASCII)


def parse_share(value: object) -> int:
    """Return the slots of a share such as 5, "5%" or "0.5%": 500 or 50.

    Without the sign, a number from 1 on is a percentage. Below 1 it could be a fraction as well, so it needs the sign.

    Raises ValueError, saying what was expected and found, also for a share above 100 % and for parts of a slot.
    """
    text = "" if isinstance(value, bool) or not isinstance(value, str | int | float) else str(value).strip()
    match = _SHARE.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a share from 0% to 100%, found {shown(value)}.")
    percent = Decimal(match[1])
    if not match[2] and 0 < percent < 1:
        raise ValueError(
            f"expected a share such as 5%, found {percent} without a unit: write {percent}% or {percent:.0%}."
        )
    if percent > 100:
        raise ValueError(f"expected a share from 0% to 100%, found {shown(value)}.")
    slots = percent * _PER_PERCENT
    if slots != int(slots):
        raise ValueError(f"expected whole hundredths of a percent, found {shown(value)}.")
    return int(slots)


def share_text(slots: int) -> str:
    """The share as it is written in the file, such as `5%`."""
    return f"{slots / _PER_PERCENT:g}%"


Share = Annotated[
    int,
    BeforeValidator(parse_share),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 100},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?%$"},
                {"type": "string", "pattern": r"\$\{"},
            ],
            "$comment": "percent",
        }
    ),
]
