"""Which model made which row of a batch, for the encoders of predictions and comparisons."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.dead_letters import LetterModel
from millstream.schemas.interleave import Piece
from millstream.schemas.packed import Picked
from millstream.schemas.rollout_choices import RolloutChoice, RowChoices

Model = tuple[str, int]
"""A model's name and version."""


class RowModels(NamedTuple):
    """The models that made the rows of a batch."""

    models: Sequence[Model]  # at least one
    answered_by: Ints | None = (
        None  # for each row, the index of its model in `models`; None: the first one made all rows
    )
    variants: Sequence[str] | None = None  # of each of `models`, in a rollout; None: all have the encoder's
    choices: RowChoices | None = None  # how a rollout chose them; None: there was no rollout

    def take(self, rows: Ints) -> "RowModels":
        """The models of these rows."""
        if self.answered_by is None and self.choices is None:
            return self
        return self._replace(
            answered_by=None if self.answered_by is None else self.answered_by[rows],
            choices=None if self.choices is None else self.choices.take(rows),
        )

    def between(self, start: int, stop: int) -> "RowModels":
        """The models of the rows from `start` to `stop`."""
        if self.answered_by is None and self.choices is None:
            return self
        return self._replace(
            answered_by=None if self.answered_by is None else self.answered_by[start:stop],
            choices=None if self.choices is None else self.choices.between(start, stop),
        )

    def others_than(self, model: Model, rows: Ints) -> Mask:
        """Whether another model than this one made each of these rows."""
        others = np.array([own != model for own in self.models])
        return np.full(len(rows), others[0]) if self.answered_by is None else others[self.answered_by[rows]]

    def piece(self, encoded: Callable[[Model], bytes]) -> Piece:
        """What `encoded` returns for each row's model. It is called once for each model that made a row."""
        return self._piece(lambda at: encoded(self.models[at]))

    def variant_piece(self, encoded: Callable[[Model, str], bytes], own: str) -> Piece:
        """What `encoded` returns for each row's model and variant, called as in `piece`. `own`: the encoder's variant."""
        variants = self.variants
        return self._piece(lambda at: encoded(self.models[at], own if variants is None else variants[at]))

    def choice_piece(self, encoded: Callable[[RolloutChoice | None], bytes]) -> Piece:
        """What `encoded` returns for each row's choice. It is called once for each choice of a row."""
        choices = self.choices
        if choices is None:
            return encoded(None)
        return _picked(choices.of_rows, lambda at: encoded(choices.choices[at]))

    def letter_model(self, row: int) -> LetterModel | None:
        """For the dead letter of a row that can't be written; None: there was no rollout."""
        if self.variants is None:
            return None
        at = 0 if self.answered_by is None else int(self.answered_by[row])
        name, version = self.models[at]
        return LetterModel(name, version, self.variants[at], None if self.choices is None else self.choices.at(row))

    def counts(self, rows: int) -> list[tuple[int, int]]:
        """The index in `models` of each model that made a row, with the number of its rows. `rows`: of the batch."""
        if self.answered_by is None:
            return [(0, rows)]
        counts = np.bincount(self.answered_by)
        return [(at, int(counts[at])) for at in np.flatnonzero(counts).tolist()]

    def _piece(self, encoded: Callable[[int], bytes]) -> Piece:
        return encoded(0) if self.answered_by is None else _picked(self.answered_by, encoded)


def _picked(places: Ints, encoded: Callable[[int], bytes]) -> Piece:
    """What `encoded` returns for each row's place, [rows]. It is called once for each place that a row has."""
    used = np.flatnonzero(np.bincount(places))
    if len(used) < 2:
        return encoded(int(used.max(initial=0)))
    strings = [b""] * (int(used[-1]) + 1)
    for at in used.tolist():
        strings[at] = encoded(at)
    return Picked(strings, places)
