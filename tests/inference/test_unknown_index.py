"""`unknown` of a vocabulary, as docs/models.md describes it."""

import numpy as np

from millstream.inference.vocabulary import Vocabulary
from millstream.schemas.column import NumberColumn, column_of


def test_unknown_names_an_index_and_moves_no_entry() -> None:
    texts = column_of(["DE", "FR", "XX"], "string")
    indices = []
    for unknown in (0, 2):
        column = Vocabulary(("DE", "FR"), unknown).convert(texts, lambda: np.empty(0, np.int64)).column
        assert isinstance(column, NumberColumn)
        indices.append(column.values.tolist())
    assert indices == [[0, 1, 0], [0, 1, 2]]
