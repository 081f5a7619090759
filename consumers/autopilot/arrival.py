"""Whether a version that arrives starts a rollout. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.consumers.autopilot.words import AUTOPILOT
from millstream.consumers.rollout.changes import standing
from millstream.consumers.rollout.progress import ENDED
from millstream.consumers.rollout.slots import percent

if TYPE_CHECKING:
    from millstream.consumers.autopilot.history import History
    from millstream.consumers.rollout.record import RolloutRecord


@dataclass(frozen=True, slots=True)
class Arrival:
    """A version that the pipeline file wants."""

    model: str
    version: int
    why: str  # a sentence, such as "rollout.candidate (latest) names version 3"


@dataclass(frozen=True, slots=True)
class Start:
    """It starts."""

    version: int
    reason: str


def arrived(arrival: Arrival, current: RolloutRecord | None, history: History, baseline: int | None) -> Start | str:
    """What an arrival leads to: a start, or why there is none.

    Args:
        arrival: the version.
        current: the newest record, if there is one.
        history: of the pipeline.
        baseline: the version that answers without a record; None: the only one.
    """
    version = arrival.version
    answers = baseline if current is None else standing(current).version
    if current is not None and current.state not in ENDED:
        return _beside(arrival, current, history)
    if current is not None and current.state == "concluded":
        tested = current.variants[1].version
        return f"{arrival.why}, but the A/B test of version {tested} is concluded: promote it, or roll it back"
    if version == answers:
        return f"no rollout: version {version} answers already, and is the newest one that is wanted"
    if history.was_tried(arrival.model, version):
        return f"no rollout: {arrival.why}, which was tried before: only another version or `millstream rollout start` starts one"
    return Start(version, arrival.why)


def _beside(arrival: Arrival, current: RolloutRecord, history: History) -> Start | str:
    """While a rollout is on its way."""
    version = arrival.version
    if version in (own.version for own in current.variants):
        return ""
    candidate = current.variants[1].version if len(current.variants) > 1 else 0
    if history.was_tried(arrival.model, version) or (history.by_person and version < candidate):
        return ""  # a person chose the one on its way
    if current.strategy in ("bandit", "manual"):
        return f"{arrival.why}, but a {current.strategy} rollout is on its way, which only a person replaces"
    if current.state == "paused" and current.by != AUTOPILOT:
        return f"{arrival.why}, but {current.by} has paused the rollout of version {candidate}: resume it, or start the other one"
    return Start(
        version,
        f"{arrival.why}: it arrived while version {candidate} was at {percent(current.shares[1])}, and starts anew",
    )
