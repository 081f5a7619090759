"""Looks at the rollout again and again while it is this process's turn, and stands by otherwise."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.autopilot.autopilot import Autopilot
    from millstream.consumers.autopilot.report import Report
    from millstream.consumers.observability.health import Health
    from millstream.pipeline.rollout_section import Rollout

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.5  # between two polls of the group, so that a signal is soon seen
LOOKS_PER_STEP: Final = 20
LOOK_SECONDS: Final = (0.5, 10.0)
"""Between two looks: a twentieth of the least time of a step, but not less or more than this."""


class Turn(Protocol):
    """As `topics.turn.Turn`."""

    @property
    def is_ours(self) -> bool:
        """Whether it is this process's turn."""
        ...

    @property
    def error(self) -> str:
        """Why this process can't be in the group."""
        ...

    def poll(self, timeout: float) -> None:
        """Keep the membership."""


def look_interval(rollout: Rollout) -> float:
    """Seconds between two looks."""
    least, most = LOOK_SECONDS
    return min(max(rollout.bake / LOOKS_PER_STEP, least), most)


def run_until_stopped(
    autopilot: Autopilot,
    turn: Turn,
    report: Report,
    health: Health,
    *,
    every: float,
    stop: threading.Event,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run until `stop` is set.

    Args:
        autopilot: looks.
        turn: says whether it is this process's turn.
        report: gets that.
        health: gets each turn of the loop. A process that stands by is ready, too.
        every: seconds between two looks.
        stop: ends it.
        clock: seconds.
    """
    was_ours: bool | None = None
    due = error = None
    while not stop.is_set():
        health.turn()
        now = clock()
        turn.poll(POLL_SECONDS if due is None else min(max(due - now, 0), POLL_SECONDS))
        if turn.error != error and turn.error:
            log.warning("the group can't be joined: %s", turn.error)
        error = turn.error
        if turn.is_ours != was_ours:
            was_ours = turn.is_ours
            _begin(autopilot, report, is_ours=was_ours)
            due = clock() if was_ours else None
            health.ready = True
        if due is not None and clock() >= due and not stop.is_set():
            autopilot.look()
            due = clock() + every


def _begin(autopilot: Autopilot, report: Report, *, is_ours: bool) -> None:
    report.turn(is_ours=is_ours)
    if is_ours:
        autopilot.since = time.time_ns() // 1_000_000
        log.info("active: decides on the rollout")
    else:
        autopilot.close()
        log.info("stands by: another autopilot of this pipeline decides, or the group is still being joined")
