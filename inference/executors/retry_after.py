"""The header `Retry-After` of a server that has too much to do. Pure but for the date, which it compares with the clock."""

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from math import isfinite


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait; None: it doesn't say. It may write seconds, milliseconds or a date."""
    if (seconds := _number(headers.get("retry-after-ms"))) is not None:
        return seconds / 1000
    given = headers.get("retry-after")
    if given is None or (seconds := _number(given)) is not None:
        return seconds if given else None
    try:
        return max(parsedate_to_datetime(given).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):  # an offset from UTC may be of any length
        return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) and number >= 0 else None
