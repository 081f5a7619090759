"""Reads what a multi-class model predicted for an event: its class, and the probability of each class.

A prediction has one of these forms ([models.md](../docs/models.md#classes-and-thresholds)). The names are examples.

| outputs | class | probabilities |
|---|---|---|
| `scores.bird`, `scores.cat`, ...: a number for each class | the largest | all |
| `scores`: an array with a number for each class | the largest | all |
| `best` and `best_scores`: the best classes and their scores | the first | all, if each class is among the best |
| `label`: a class by its name or its index | itself | none |

A model may know more classes than those that are compared. If it chooses one of the others, its answer is wrong.
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
NO_CLASS: Final = -1  # there is no answer, or it isn't known
OTHER_CLASS: Final = -2  # the answer is none of the compared classes
_TOLERANCE: Final = 0.01  # how far probabilities may be outside 0 to 1, and their sum from 1: float16 is not more exact
_FEWEST: Final = 2  # outputs of one name that are taken for scores of classes
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,17}")
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
        index = int(text) if self._has_indices and _INDEX.fullmatch(text) else NO_CLASS
        return index if 0 <= index < len(self.names) else NO_CLASS

    def answers(self, outputs: Mapping[str, Any]) -> dict[str, bool]:
        """The outputs that hold a class: name -> whether they also hold the probability of each class.

        Where there is one output for each class, the name is the part before the dot.
        """
        return {name: scores is not None for name, (place, scores) in self.held(outputs).items() if place >= 0}

    def held(self, outputs: Mapping[str, Any]) -> dict[str, _Answer]:
        """The outputs that may hold a class, each with what `read` returns. A text may be another class than those compared."""
        names = {*outputs, *(name.rpartition(".")[0] for name in outputs if "." in name)}
        read = {name: self.read(name, outputs) for name in sorted(names)}
        return {name: answer for name, answer in read.items() if answer[0] != NO_CLASS}

    def read(self, name: str, outputs: Mapping[str, Any]) -> _Answer:
        """The index of the predicted class, `OTHER_CLASS` or `NO_CLASS`; and each class's score, or None if not all are known.

        Args:
            name: an output, or the part before the dot of the outputs of all classes.
            outputs: name -> value, of one event.
        """
        value = outputs.get(name)
        match value:
            case None:
                return self._largest_of_named(name, outputs)
            case list() if (scores := outputs.get(scores_name(name))) is not None:
                return self._best(value, scores)
            case list():
                return self._largest(value)
            case float() if not value.is_integer():
                return _NONE
        return self._chosen(value), None

    def _chosen(self, value: object) -> int:
        """As `place_of`, for what a model chose."""
        place = self.place_of(value)
        return OTHER_CLASS if place == NO_CLASS and value is not None else place

    def _largest_of_named(self, name: str, outputs: Mapping[str, Any]) -> _Answer:
        """The answer of a model with one output for each class. It may lack some of the compared classes, and have others."""
        others = {output: score for output, score in outputs.items() if output.startswith(class_name(name, ""))}
        scores = [others.pop(class_name(name, each), None) for each in self.names]
        there = [place for place, score in enumerate(scores) if score is not None]
        if len(there) < _FEWEST or not all(_is_score(scores[place]) for place in there):
            return _NONE
        best = max(there, key=lambda place: scores[place])
        is_other = any(_is_score(score) and score > scores[best] for score in others.values())
        return OTHER_CLASS if is_other else best, scores if len(there) == len(scores) else None

    def _largest(self, scores: list[Any]) -> _Answer:
        if len(scores) != len(self.names) or not all(map(_is_score, scores)):
            return _NONE
        return max(range(len(scores)), key=scores.__getitem__), scores

    def _best(self, best: list[Any], scores: Any) -> _Answer:
        places = [self._chosen(each) for each in best]
        if not places:
            return _NONE
        if not isinstance(scores, list) or sorted(places) != list(range(len(self.names))) or len(scores) != len(places):
            return places[0], None
        return places[0], [score for _, score in sorted(zip(places, scores, strict=True))]


def _is_score(value: object) -> bool:
    return isinstance(value, int | float) and not math.isnan(value)


def are_probabilities(scores: Sequence[float]) -> bool:
    """Whether the scores of all classes are probabilities: between 0 and 1, with the sum 1. Logits, for example, aren't.

    Rounding may move them a little outside: random forests in ONNX give 1.0000004 for a class that all trees choose.
    """
    return all(-_TOLERANCE <= score <= 1 + _TOLERANCE for score in scores) and abs(sum(scores) - 1) <= _TOLERANCE


def compared_classes(
    classes: Classes, named: str | None, primary: Mapping[str, Any], shadow: Mapping[str, Any]
) -> str | None:
    """The output that is compared: the one that `comparison.output` names, or the best that both models have.

    Without a name, an output with the probability of each class is best. Of equally good ones, it is the first by name. One of
    the models may have chosen another class than those compared.
    """
    if named is not None:
        return named
    ours, theirs = classes.held(primary), classes.held(shadow)
    common = [name for name in ours.keys() & theirs.keys() if max(ours[name][0], theirs[name][0]) >= 0]
    return min(common, key=lambda name: (ours[name][1] is None or theirs[name][1] is None, name), default=None)
