"""Reasons not to trust what a step's topics show. Pure.

A step with a doubt goes no further. A version whose errors or latency are shown to be too bad is still rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.consumers.autopilot.words import seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.consumers.evaluation.step_state import Arrivals
    from millstream.consumers.rollout.record import RolloutRecord

MOST_SKEW_MS: Final = 30_000
"""How far clocks may be apart."""
MOST_DELAY_MS: Final = 60_000
"""How late the reading of the topics may be."""
FOLLOWED_MS: Final = 30_000
"""How soon after a change the first prediction should name it. Workers take 2 s; a batch and its transaction, some more."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What was read. Times are in ms since the epoch."""

    now: int  # by this machine's clock
    read_until: int
    behind: int  # records that are not read yet
    since: int  # when the step began
    arrivals: Arrivals


def doubts(record: RolloutRecord, sight: Sight) -> tuple[str, ...]:
    """Why nothing should be decided on it, as sentences without a full stop; empty: nothing speaks against it."""
    return tuple(_doubts(record, sight))


def _doubts(record: RolloutRecord, sight: Sight) -> Iterator[str]:
    if (ahead := record.at - sight.now) > MOST_SKEW_MS:
        yield (
            f"clock skew: {record.by} made the newest change {seconds(ahead)} from now; correct the clock of that machine, or of "
            "this one"
        )
        return
    newest = sight.arrivals.newest
    if newest is not None and (ahead := newest - sight.now) > MOST_SKEW_MS:
        yield f"clock skew: predictions are of {seconds(ahead)} from now; correct the workers' clocks, or this machine's"
    if (late := sight.now - sight.read_until) > MOST_DELAY_MS:
        yield f"the evaluation is {seconds(late)} behind, and catches up: {sight.behind:,} records are not read yet"
    elif not sight.arrivals.events and sight.read_until - sight.since > FOLLOWED_MS:
        yield (
            f"no prediction since the step began {seconds(sight.now - sight.since)} ago: there are no events, no worker follows "
            "the rollout (metric millstream_rollout_revision), or the workers' clocks are late"
        )
