"""How far back the baseline's events are read at 100 %, where it answers none. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.consumers.evaluation.figures import StepFigures
    from millstream.consumers.evaluation.settings import StepSettings

ENOUGH: Final = 20_000
"""Events of the baseline that decide about the latency, also if some calls of the model wait for a busy machine."""


def last_shared(settings: StepSettings, steps: Sequence[StepFigures]) -> int | None:
    """When the last step began in which the baseline had a share and events, ms since the epoch; None: not known.

    Args:
        settings: of the step at 100 %.
        steps: the figures of all steps so far.
    """
    ours = [own for own in steps if own.rollout == settings.rollout and own.epoch < settings.epoch]
    for own in sorted(ours, key=lambda step: -step.epoch):
        if own.variants[0].share > 0 and own.variants[0].events > 0:
            return max(own.since, settings.resumed)
    return None


def most_before(settings: StepSettings, steps: Sequence[StepFigures]) -> int:
    """The longest time before the step that may be read, in ms: to the begin of the last step in which the baseline had a share.

    The candidate passed there, so this is enough.

    Args:
        settings: of the step.
        steps: the figures of all steps so far.
    """
    begin = last_shared(settings, steps)
    return settings.before if begin is None else max(settings.before, settings.since - begin)


def next_before(settings: StepSettings, most: int, events: float) -> int:
    """The time to read next: twice as long, until the events are enough.

    Args:
        settings: of the step. Its time before the step has been read.
        most: of `most_before`.
        events: of the baseline, that were read from this time.
    """
    return settings.before if events >= ENOUGH else min(2 * settings.before, most)
