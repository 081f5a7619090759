"""What a model answered, as numbers: one row per event with its score and what agreement is judged by.

The rows follow the same rules as those of the comparison job (`comparison.rows.Scoring`), for one model at a time.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from millstream.consumers.comparison.rows import class_answer
from millstream.inference.class_answers import NO_CLASS, OTHER_CLASS, compared_classes
from millstream.schemas.arrays import Floats, Ints
from millstream.schemas.comparisons import compared_output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.inference.class_answers import Classes
    from millstream.pipeline.comparison_sections import Comparison

Rows = npt.NDArray[np.void]
NO_ANSWER: Final = np.iinfo(np.int64).min
"""The answer of an event without the compared output."""
_NAN: Final = NO_ANSWER + 1  # the answer NaN, which agrees with no other one
_LIST: Final = 1 << 60  # is added to the answer of a list, which agrees only with that of another list
_WITH_SCORE: Final = 0  # the answer of an event with a score: the scores say whether two of them agree


def row_type(probabilities: int) -> np.dtype[np.void]:
    """The type of a row; `probabilities`: how many are kept."""
    return np.dtype(
        [
            ("id", "<u8"),  # hash of the event ID
            ("time", "<i8"),  # of the event, ms since the epoch
            ("score", "<f8"),  # NaN: none
            ("answer", "<i8"),  # equal ones agree; with several classes the class
            ("ms", "<f4"),  # how long the answer took
            ("model", "<u2"),  # index into the models that answered
            ("segment", "<u2"),  # index into the values of the segments' field
            *([("probabilities", "<f4", (probabilities,))] if probabilities else []),  # NaN: not known
        ]
    )


@dataclass(frozen=True, slots=True)
class Answering:
    """Turns outputs into scores and answers."""

    output: str | None  # None: the models have no output in common
    item: int | None
    classes: Classes | None

    @classmethod
    def of(
        cls, section: Comparison, classes: Classes | None, first: Mapping[str, Any], second: Mapping[str, Any]
    ) -> Answering:
        """Choose the compared output, as the comparison job does, by one event's outputs of both models."""
        if classes is not None:
            return cls(compared_classes(classes, section.output, first, second), section.item, classes)
        return cls(compared_output(section.output, first, second, item=section.item), section.item, None)

    @property
    def row_type(self) -> np.dtype[np.void]:
        """See `row_type`."""
        return row_type(0 if self.classes is None else self.classes.probabilities)

    def fill(self, rows: Rows, outputs: Mapping[str, npt.NDArray[Any]]) -> None:
        """Fill in scores and answers. `outputs`: name -> [rows, ...]."""
        if self.classes is not None:
            self._fill_classes(rows, _events(outputs, len(rows)))
            return
        values = outputs.get(self.output or "")
        if values is None:
            rows["score"], rows["answer"] = math.nan, NO_ANSWER
        else:
            rows["score"], rows["answer"] = _scores(values, self.item)

    def fill_from(self, rows: Rows, outputs: Sequence[Mapping[str, Any]]) -> None:
        """Fill in scores and answers of predictions; `outputs`: of each, by name."""
        if self.classes is not None:
            self._fill_classes(rows, outputs)
            return
        name = self.output or ""
        values = [of_event.get(name) for of_event in outputs]
        kinds = set(map(type, values))
        if kinds <= {float} or kinds <= {int}:
            rows["score"], rows["answer"] = _scores(np.array(values), self.item)
            return
        for row, value in zip(rows, values, strict=True):
            if value is None:
                row["score"], row["answer"] = math.nan, NO_ANSWER
            else:
                (row["score"],), (row["answer"],) = _scores(_as_array(value), self.item)

    def _fill_classes(self, rows: Rows, outputs: Sequence[Mapping[str, Any]]) -> None:
        assert self.classes is not None
        for row, of_event in zip(rows, outputs, strict=True):
            place, probabilities = class_answer(self.classes, self.output or "", of_event)
            row["answer"] = NO_ANSWER if place == NO_CLASS else place
            row["score"] = probabilities.max()
            if self.classes.probabilities:
                row["probabilities"] = probabilities


def scored_by(section: Comparison, classes: Classes | None) -> dict[str, Any]:
    """The settings that decide scores and answers, as JSON has them. Rows of other settings can't be compared with these."""
    return {
        "output": section.output,
        "item": section.item,
        "classes": None if classes is None else list(classes.names),
    }


def agreement(section: Comparison, first: Rows, second: Rows) -> npt.NDArray[np.int8]:
    """Whether the answers of each row agree: 1, 0, or -1 if they can't be compared."""
    known = (first["answer"] != NO_ANSWER) & (second["answer"] != NO_ANSWER)
    equal = (first["answer"] == second["answer"]) & (first["answer"] != _NAN)
    if section.task == "multiclass":
        equal &= first["answer"] != OTHER_CLASS  # nobody knows whether both are the same other class
    else:
        scored = ~(np.isnan(first["score"]) | np.isnan(second["score"]))
        if section.task == "regression":
            same = np.abs(first["score"] - second["score"]) <= section.tolerance
        else:
            same = (first["score"] >= section.threshold) == (second["score"] >= section.threshold)
        equal = np.where(scored, same, equal)
    return np.where(known, equal, -1).astype(np.int8)


def first_event(outputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """The outputs of the first event, as in a prediction."""
    return dict(_events({name: values[:1] for name, values in outputs.items()}, 1)[0])


def _events(outputs: Mapping[str, npt.NDArray[Any]], rows: int) -> list[dict[str, Any]]:
    columns = {name: _plain(values, rows) for name, values in outputs.items()}
    return [{name: column[row] for name, column in columns.items()} for row in range(rows)]


def _plain(values: npt.NDArray[Any], rows: int) -> list[Any]:
    """Values as a prediction has them: a number or text, or a flat list."""
    shape = (rows,) if values.shape[1:] in {(), (1,)} else (rows, math.prod(values.shape[1:]))
    plain: list[Any] = values.reshape(shape).tolist()
    return plain


def _as_array(value: Any) -> npt.NDArray[Any]:
    """The value of one event as an array [1, ...]. Texts, and lists of different kinds, are objects."""
    items = value if isinstance(value, list) else [value]
    numeric = all(isinstance(each, bool | int | float) for each in items)
    flat = np.array(items, None if numeric and items else object)
    return flat.reshape(1, -1, 1) if isinstance(value, list) and len(items) == 1 else flat.reshape(1, len(items))


def _scores(values: npt.NDArray[Any], item: int | None) -> tuple[Floats, Ints]:
    """The score and the answer of each event; `values`: [events, ...]."""
    rows = len(values)
    is_list = values.shape[1:] not in {(), (1,)}
    flat = values.reshape(rows, math.prod(values.shape[1:]))
    if values.dtype.kind not in "biuf":
        return np.full(rows, np.nan), _texts(flat) + (_LIST if is_list else 0)
    if not is_list:
        score = flat[:, 0].astype(np.float64)
    elif item is not None and item < flat.shape[1]:
        score = flat[:, item].astype(np.float64)
    else:
        score = np.full(rows, np.nan)
    is_nan = np.isnan(score)
    score = np.where(np.isfinite(score), score, np.nan)
    if is_list and flat.shape[1]:
        return score, flat.argmax(axis=1).astype(np.int64) + _LIST
    answer = np.where(is_nan, _NAN, _WITH_SCORE)
    infinite = np.flatnonzero(np.isnan(score) & ~is_nan)
    answer[infinite] = _texts(flat[infinite])
    return score, answer


def _texts(flat: npt.NDArray[Any]) -> Ints:
    """A hash of each row's values: texts, or numbers that are no score."""
    return np.array([_hash(repr(row)) for row in flat.tolist()], np.int64)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=7).digest(), "little") + 1
