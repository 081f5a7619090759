"""Rollouts for pools and runners in tests, with versions that are functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from millstream.consumers.events import MicroBatch
from millstream.consumers.execute.opened_rollout import Assigned, OpenedRollout, OpenedVariant
from millstream.consumers.execute.variant_outage import VariantOutage
from millstream.inference.executors.interface import Executor, Tensors
from millstream.inference.executors.opened import OpenedModel
from millstream.inference.model_id import ModelId
from millstream.schemas.arrays import Floats, Ints
from tests.consumers.execute.serving import Run, Running

NAMES = ("primary", "canary", "v3")


def ids_of(batch: MicroBatch) -> Ints:
    """The events' numbers: their tensors hold them."""
    return np.asarray(batch.tensors()["x"])[:, 0].astype(np.int64)


def by_number(variants: int) -> Any:
    """A route: the event's number, modulo the count of variants."""

    def route(batch: MicroBatch, rows: Ints | None) -> Assigned:
        numbers = ids_of(batch)
        return Assigned((numbers if rows is None else numbers[rows]) % variants, None)

    return route


def rollout_of(
    *runs: Run | None,
    route: Any = None,
    revision: int = 1,
    fallback: int = 0,
    sample: Tensors | None = None,
    outages: Sequence[VariantOutage] | None = None,
    shares: Floats | None = None,
) -> OpenedRollout:
    """A rollout whose variant n is version n + 1 and runs this function; None: it isn't loaded."""
    variants = [
        OpenedVariant(
            NAMES[at],
            ModelId("m", at + 1),
            None if run is None else OpenedModel(ModelId("m", at + 1), [cast("Executor", Running(run))]),
            outages[at] if outages else VariantOutage(NAMES[at]),
        )
        for at, run in enumerate(runs)
    ]
    equal = np.full(len(runs), 1 / len(runs))
    own = equal if shares is None else shares
    return OpenedRollout("r1", revision, variants, own, fallback, route or by_number(len(runs)), sample)
