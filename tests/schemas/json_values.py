"""What a prediction in JSON has for a value."""

import math
from typing import Any


def as_json(value: Any) -> Any:
    """The value with texts in place of NaN and infinity, which JSON doesn't have."""
    if isinstance(value, list):
        return [as_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
