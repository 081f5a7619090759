"""Decides on a rollout that is on its way, by its strategy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.consumers.autopilot.bandit_decision import BanditRules, BanditSight, decide_bandit, periods
from millstream.consumers.autopilot.step_decision import decide
from millstream.consumers.rollout.declared import bandit_settings, steps_of

if TYPE_CHECKING:
    from millstream.consumers.autopilot.step_reading import Reading
    from millstream.consumers.rollout.bandit import Arms
    from millstream.consumers.rollout.changes import Memory
    from millstream.consumers.rollout.progress import Decision, Evaluation
    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.pipeline.rollout_section import Rollout, Strategy


@dataclass(frozen=True, slots=True)
class Choice:
    """What happens."""

    decision: Decision
    found: Evaluation  # that it is decided on; with several candidates, that of the first one
    arms: Arms | None = None  # of a bandit, after the decision
    shares: tuple[int, ...] = ()  # of all variants, for a bandit


def choose(rollout: Rollout, record: RolloutRecord, memory: Memory, reading: Reading) -> Choice:
    """The decision.

    Args:
        rollout: the section.
        record: the newest one.
        memory: that the record has.
        reading: of its step.
    """
    if memory.arms is not None:
        return _of_bandit(rollout, record, memory, memory.arms, reading)
    strategy: Strategy = record.strategy  # type: ignore[assignment]  # the record was checked when it was read
    found = reading.evaluation()
    return Choice(decide(steps_of(rollout, strategy), memory.progress, found, reading.doubts), found)


def _of_bandit(rollout: Rollout, record: RolloutRecord, memory: Memory, arms: Arms, reading: Reading) -> Choice:
    rules = BanditRules(
        bandit_settings(rollout, len(record.variants)),
        every_ms=round(rollout.bake * 1000),
        renew_ms=round(rollout.longest * 1000),
        on_breach=rollout.on_breach,
        advises=rollout.mode == "advise",
    )
    evaluations = tuple(reading.evaluation(variant) for variant in range(1, len(record.variants)))
    sight = BanditSight(
        reading.now,
        tuple(variant.name for variant in record.variants),
        evaluations,
        lambda: tuple(
            reading.evaluator.rewards(after, until)
            for after, until in periods(rules, memory.progress, arms, reading.until)
        ),
        reading.until,
        reading.doubts,
    )
    chosen = decide_bandit(rules, memory.progress, arms, sight)
    return Choice(chosen.decision, evaluations[0], chosen.arms, chosen.shares)
