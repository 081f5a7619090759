"""Which model answered which event of a rollout, as workers write it into predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.schemas.rollout_choices import RolloutChoice, RowChoices
from millstream.schemas.row_models import RowModels

if TYPE_CHECKING:
    import numpy.typing as npt

    from millstream.consumers.rollout.record import RolloutRecord


def row_models(
    record: RolloutRecord, variants: npt.NDArray[np.integer], randomised: npt.NDArray[np.bool_]
) -> RowModels:
    """The models of events that these variants answered; `randomised`: those whose variant their key chose."""
    choices = [
        RolloutChoice(record.rollout, record.revision, own.name, float(share), randomised=by_key, model_ms=1.0)
        for by_key in (True, False)
        for own, share in zip(record.variants, record.plan().shares, strict=True)
    ]
    return RowModels(
        [(own.model, own.version) for own in record.variants],
        variants.astype(np.int64),
        [own.name for own in record.variants],
        RowChoices(choices, variants + 2 * ~randomised),
    )
