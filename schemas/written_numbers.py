"""Numbers in decimal digits, as people write them in files."""

import re
from math import isfinite

_DECIMAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")


def is_decimal(text: str) -> bool:
    """Whether the text writes a number, of any size."""
    return _DECIMAL.fullmatch(text) is not None


def number_of(text: str) -> float | None:
    """The number that the text writes, such as `1.50` and `-1e9`; None: it writes none, or one beyond a double."""
    number = float(text) if is_decimal(text) else None
    return number if number is not None and isfinite(number) else None
