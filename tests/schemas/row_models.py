"""Which model made which row, drawn by Hypothesis."""

import numpy as np
from hypothesis import strategies as st

from millstream.schemas.row_models import Model, RowModels

ONE = RowModels([("m", 1)])
"""One model made all rows."""

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
VERSIONS = st.integers(0, 2**31 - 1)


@st.composite
def row_models(draw: st.DrawFn, rows: int) -> RowModels:
    """One to four models, of which some may have made no row."""
    models = draw(st.lists(st.tuples(NAMES, VERSIONS), min_size=1, max_size=4))
    if draw(st.booleans()):
        return RowModels(models)
    places = draw(st.lists(st.integers(0, len(models) - 1), min_size=rows, max_size=rows))
    variants = draw(st.none() | st.lists(NAMES, min_size=len(models), max_size=len(models)))
    return RowModels(models, np.array(places, np.int64), variants)


def variant_of(models: RowModels, row: int, own: str) -> str:
    """The variant of this row. `own`: the encoder's."""
    if models.variants is None:
        return own
    return models.variants[0 if models.answered_by is None else int(models.answered_by[row])]


def model_of(models: RowModels, row: int) -> Model:
    """The one that made this row."""
    return models.models[0 if models.answered_by is None else int(models.answered_by[row])]
