"""Which model made which row of a batch, for the encoders of predictions and comparisons."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from millstream.schemas.arrays import Ints
from millstream.schemas.interleave import Piece
from millstream.schemas.packed import Packed

Model = tuple[str, int]
"""A model's name and version."""


class RowModels(NamedTuple):
    """The models that made the rows of a batch."""

    models: Sequence[Model]  # at least one
    answered_by: Ints | None = (
        None  # for each row, the index of its model in `models`; None: the first one made all rows
    )

    def take(self, rows: Ints) -> "RowModels":
        """The models of these rows."""
        return self if self.answered_by is None else RowModels(self.models, self.answered_by[rows])

    def between(self, start: int, stop: int) -> "RowModels":
        """The models of the rows from `start` to `stop`."""
        return self if self.answered_by is None else RowModels(self.models, self.answered_by[start:stop])

    def piece(self, encoded: Callable[[Model], bytes]) -> Piece:
        """What `encoded` returns for each row's model. It is called once for each model that made a row."""
        if self.answered_by is None:
            return encoded(self.models[0])
        used, places = np.unique(self.answered_by, return_inverse=True)
        if len(used) == 1:
            return encoded(self.models[int(used[0])])
        return Packed.of([encoded(self.models[at]) for at in used.tolist()]).reordered(places)

    def counts(self, rows: int) -> list[tuple[Model, int]]:
        """Each model that made a row, with the number of its rows. `rows`: of the batch."""
        if self.answered_by is None:
            return [(self.models[0], rows)]
        counts = np.bincount(self.answered_by)
        return [(self.models[at], int(counts[at])) for at in np.flatnonzero(counts).tolist()]
