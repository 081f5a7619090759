"""Events with what two models of three classes predicted, and the true classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from millstream.inference.class_evaluation import Answers, summarise_classes
from millstream.inference.evaluation import Columns

if TYPE_CHECKING:
    from millstream.inference.evaluation import Summary

CLASSES = 3


@dataclass(frozen=True)
class ClassEvents:
    """One entry per event."""

    primary: Answers
    shadow: Answers
    labels: npt.NDArray[np.int64]

    @classmethod
    def make(cls, events: int, *, seed: int = 1, primary: float = 1.0, shadow: float = 1.0) -> ClassEvents:
        """Each model sees the true class through noise of its own: the larger its number, the worse the model."""
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=(events, CLASSES))
        labels = (truth + rng.normal(size=(events, CLASSES))).argmax(axis=1)
        first, second = (answers(truth + noise * rng.normal(size=truth.shape)) for noise in (primary, shadow))
        return cls(first, second, labels)

    def columns(self) -> Columns:
        zeros = np.zeros(len(self.labels))
        primary, shadow = (each.probabilities.max(axis=1).astype(np.float64) for each in (self.primary, self.shadow))
        agreed = (self.primary.classes == self.shadow.classes).astype(np.int8)
        return Columns(primary, shadow, agreed, zeros > 0, zeros, zeros, self.labels.astype(np.float64))

    def summary(self) -> Summary:
        return summarise_classes(self.columns(), self.primary, self.shadow)


def answers(logits: npt.NDArray[np.float64]) -> Answers:
    """The predictions of a model with these logits."""
    odds = np.exp(logits)
    return Answers(logits.argmax(axis=1).astype(np.int32), (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32))


def part(events: ClassEvents, first: int, last: int) -> ClassEvents:
    """The events from `first` to before `last`."""
    rows = slice(first, last)
    primary, shadow = [
        Answers(each.classes[rows], each.probabilities[rows]) for each in (events.primary, events.shadow)
    ]
    return ClassEvents(primary, shadow, events.labels[rows])
