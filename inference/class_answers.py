"""Reads what a multi-class model predicted for an event: its class, and the probability of each class.

A prediction has one of these forms ([models.md](../docs/models.md#classes-and-thresholds)). The names are examples.

| outputs | class | probabilities |
|---|---|---|
| `scores.bird`, `scores.cat`, ...: a number for each class | the largest | all |
| `scores`: an array with a number for each class | the largest | all |
| `best` and `best_scores`: the best classes and their scores | the first | all, if each class is among the best |
| `label`: a class by its name or its index | itself | none |
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from millstream.inference.signature import class_name, scores_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_PROBABILITIES: Final = 64
"""Most classes whose probabilities are kept. With more, each event would take too much memory, so there is no log loss."""
NO_CLASS: Final = -1
_TOLERANCE: Final = 0.01  # how far probabilities may be outside 0 to 1, and their sum from 1: float16 is not more exact
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_Answer = tuple[int, "list[float] | None"]
_NONE: Final[_Answer] = (NO_CLASS, None)


class Classes:
    """The names of a model's classes, in the order of its scores."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._places = {name: place for place, name in enumerate(self.names)}
        # If names are numbers, 2 means the class with this name, not the third one.
        self._has_indices = not any(_WHOLE.fullmatch(name) for name in self.names)

    @property
    def probabilities(self) -> int:
        """How many probabilities of an event are kept: one for each class, or none if there are too many classes."""
        return len(self.names) if len(self.names) <= MAX_PROBABILITIES else 0

    def place_of(self, value: object) -> int:
        """The index of the class that a value names, or `NO_CLASS`. It may be a name or an index, also as text or as 2.0."""
        match value:
            case None:
                return NO_CLASS
            case bool() if (name := str(value).lower()) in self._places:
                return self._places[name]
            case bool() | float() if float(value).is_integer():
                value = int(value)
        text = str(value).strip()
        if text in self._places:
            return self._places[text]
        index = int(text) if self._has_indices and _WHOLE.fullmatch(text) else NO_CLASS
        return index if 0 <= index < len(self.names) else NO_CLASS

    def answers(self, outputs: Mapping[str, Any]) -> dict[str, bool]:
        """The outputs that hold a class: name -> whether they also hold the probability of each class.

        Where there is one output for each class, the name is the part before the dot.
        """
        names = {*outputs, *(name.rpartition(".")[0] for name in outputs if "." in name)}
        read = {name: self.read(name, outputs) for name in sorted(names)}
        return {name: scores is not None for name, (place, scores) in read.items() if place != NO_CLASS}

    def read(self, name: str, outputs: Mapping[str, Any]) -> _Answer:
        """The index of the predicted class, or `NO_CLASS`; and the score of each class, or None if not all are known.

        Args:
            name: an output, or the part before the dot of the outputs of all classes.
            outputs: name -> value, of one event.
        """
        value = outputs.get(name)
        match value:
            case None:
                return self._largest([outputs.get(class_name(name, each)) for each in self.names])
            case list() if (scores := outputs.get(scores_name(name))) is not None:
                return self._best(value, scores)
            case list():
                return self._largest(value)
            case float() if not value.is_integer():
                return _NONE
        return self.place_of(value), None

    def _largest(self, scores: list[Any]) -> _Answer:
        if len(scores) != len(self.names) or not all(
            isinstance(score, int | float) and not math.isnan(score) for score in scores
        ):
            return _NONE
        return max(range(len(scores)), key=scores.__getitem__), scores

    def _best(self, best: list[Any], scores: Any) -> _Answer:
        places = [self.place_of(each) for each in best]
        if not places:
            return _NONE
        if not isinstance(scores, list) or sorted(places) != list(range(len(self.names))) or len(scores) != len(places):
            return places[0], None
        return places[0], [score for _, score in sorted(zip(places, scores, strict=True))]


def are_probabilities(scores: Sequence[float]) -> bool:
    """Whether the scores of all classes are probabilities: between 0 and 1, with the sum 1. Logits, for example, aren't.

    Rounding may move them a little outside: random forests in ONNX give 1.0000004 for a class that all trees choose.
    """
    return all(-_TOLERANCE <= score <= 1 + _TOLERANCE for score in scores) and abs(sum(scores) - 1) <= _TOLERANCE


def compared_classes(
    classes: Classes, named: str | None, primary: Mapping[str, Any], shadow: Mapping[str, Any]
) -> str | None:
    """The output that is compared: the one that `comparison.output` names, or the best that both models have.

    Without a name, an output with the probability of each class is best. Of equally good ones, it is the first by name.
    """
    if named is not None:
        return named
    ours, theirs = classes.answers(primary), classes.answers(shadow)
    return min(ours.keys() & theirs.keys(), key=lambda name: (not (ours[name] and theirs[name]), name), default=None)
