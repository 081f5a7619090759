"""The score in a prediction's outputs: a number, or the index of a class."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from millstream.inference.class_answers import compared_classes
from millstream.schemas.comparisons import compared_output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.consumers.evaluation.settings import Scoring

_NONE: Final = (math.nan, False)
_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")  # as JSON predictions have them


class Scores:
    """Finds scores. If the pipeline file names no output, the first prediction decides which one it is."""

    def __init__(self, scoring: Scoring) -> None:
        self._scoring = scoring
        self.output = scoring.output

    def of(self, outputs: Mapping[str, Any]) -> tuple[float, bool]:
        """The score, NaN if there is none; and whether it is a number that is not finite."""
        if self.output is None:
            self.output = self._chosen(outputs)
        name, classes = self.output, self._scoring.classes
        if name is None:
            return _NONE
        if classes is not None:
            place, _ = classes.read(name, outputs)
            return (math.nan, True) if place < 0 else (float(place), False)
        value, item = outputs.get(name), self._scoring.item
        if isinstance(value, list):
            value = value[item] if item is not None and item < len(value) else None
        if isinstance(value, int | float):
            number = float(value)
            return (number, False) if math.isfinite(number) else (math.nan, True)
        return (math.nan, True) if value in _NOT_FINITE else _NONE

    def _chosen(self, outputs: Mapping[str, Any]) -> str | None:
        classes = self._scoring.classes
        if classes is not None:
            return compared_classes(classes, None, outputs, outputs)
        return compared_output(None, outputs, outputs, item=self._scoring.item)
