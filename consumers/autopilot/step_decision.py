"""What happens next in a rollout with steps. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.consumers.rollout.progress import Decision
from millstream.consumers.rollout.steps import decided

if TYPE_CHECKING:
    from millstream.consumers.rollout.progress import Evaluation, Progress
    from millstream.consumers.rollout.steps import Steps

FORWARD: Final = ("step", "watch", "promote", "conclude", "await_approval")
"""Actions that need trust in what was read. The others hold, or go back."""


def decide(steps: Steps, progress: Progress, found: Evaluation, doubts: tuple[str, ...] = ()) -> Decision:
    """As `steps.decided`, and never forward while there are doubts.

    Args:
        steps: the strategy.
        progress: of the record.
        found: the evaluation of its step.
        doubts: of `doubts`.
    """
    decision = decided(steps, progress, replace(found, invalid=(*doubts, *found.invalid)))
    if doubts and decision.action in FORWARD:  # at 100 %, an invalid comparison doesn't hold, but a doubt does
        return Decision("hold", "; ".join(doubts), progress)
    return decision
