"""How far back the baseline's events are read at 100 %, where it answers none. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.consumers.evaluation.figures import StepFigures
    from millstream.consumers.evaluation.settings import StepSettings

ENOUGH: Final = 20_000
"""Events of the baseline that decide about the latency, also if some calls of the model wait for a busy machine."""


def with_enough_before(settings: StepSettings, steps: Sequence[StepFigures], sample_rate: float = 1.0) -> StepSettings:
    """The settings with a longer time before the step, if the baseline answered few events in the hour before.

    They reach back into the last step in which the baseline had a share: for so long that it answered enough events, or for all
    of the step. The candidate passed there, so this is enough.

    Args:
        settings: of the step.
        steps: the figures of all steps so far.
        sample_rate: of the candidate's shadow; 1: it has none. A step of blue-green counts comparisons, not predictions.
    """
    if not settings.before:
        return settings
    ours = [own for own in steps if own.rollout == settings.rollout and own.epoch < settings.epoch]
    for own in sorted(ours, key=lambda step: -step.epoch):
        baseline = own.variants[0]
        if baseline.share > 0 and baseline.events > 0:
            kept = baseline.sampled * (sample_rate if own.variants[1].share == 0 else 1)
            length = (own.now - own.since) * min(ENOUGH * kept / baseline.events, 1)
            return replace(settings, before=max(settings.before, settings.since - own.now + round(length)))
    return settings
