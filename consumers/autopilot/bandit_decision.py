"""What happens next in a bandit: shares follow the rewards. Pure.

A change is only written if it changes a share, and shares are whole percents. Until then, each look takes the rewards since the
last change again, one period after the other. So the shares are those that a change in every period would have led to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from millstream.consumers.autopilot.words import seconds
from millstream.consumers.rollout.bandit import stopped, updated
from millstream.consumers.rollout.judging import breaches
from millstream.consumers.rollout.progress import Decision
from millstream.consumers.rollout.slots import percent
from millstream.consumers.rollout.verdicts import first_of
from millstream.pipeline.shares import SLOTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.consumers.rollout.bandit import Arms, BanditSettings, Rewards
    from millstream.consumers.rollout.progress import Evaluation, Progress
    from millstream.consumers.rollout.steps import OnBreach

MOST_PERIODS: Final = 10
"""After so many updates without another share, a change is written all the same: a look must not take ever more rewards again."""


@dataclass(frozen=True, slots=True)
class BanditRules:
    """How a bandit goes on."""

    settings: BanditSettings
    every_ms: int  # the least time between two updates of the shares
    renew_ms: int | None  # after that, its guardrails begin anew, so that they don't need all events since the start
    on_breach: OnBreach
    advises: bool


Found = tuple[tuple["Rewards", ...], ...]
"""The rewards of each arm that matured since `Arms.until`, by the period of `periods`."""


@dataclass(frozen=True, slots=True)
class BanditSight:
    """What was found. The arms are in the order of the variants, the baseline first."""

    now: int  # ms since the epoch
    names: tuple[str, ...]
    evaluations: tuple[Evaluation, ...]  # of the arms beside the baseline
    rewards: Callable[[], Found]  # takes long with many events, so it is only called if an update is due
    until: int  # rewards that matured until then are among them, ms since the epoch
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BanditDecision:
    """What happens, and the arms after it."""

    decision: Decision
    arms: Arms

    @property
    def shares(self) -> tuple[int, ...]:
        """Of all variants, in slots."""
        return self.arms.shares


def periods(rules: BanditRules, progress: Progress, arms: Arms, until: int) -> list[tuple[int, int]]:
    """The times from the last change to `until`, of one update each: rewards that mature after the first and until the second.

    Args:
        rules: of the pipeline.
        progress: of the record.
        arms: likewise.
        until: ms since the epoch.
    """
    begin = max(arms.until, progress.since)
    count = min(max((until - begin) // max(rules.every_ms, 1), 1), MOST_PERIODS)
    ends = [arms.until, *(begin + number * rules.every_ms for number in range(1, count)), until]
    return list(pairwise(ends))


def decide_bandit(rules: BanditRules, progress: Progress, arms: Arms, sight: BanditSight) -> BanditDecision:
    """What an evaluation leads to. With `advises`, the arms stay as they are.

    Args:
        rules: of the pipeline.
        progress: of the record.
        arms: likewise.
        sight: what was found.
    """
    found = _decided(rules, progress, arms, sight)
    if rules.advises and found.decision.action != "hold":
        action, reason = found.decision.action, found.decision.reason
        return BanditDecision(Decision(action, f"would {action}: {reason}", progress, advised=True), arms)
    return found


def _decided(rules: BanditRules, progress: Progress, arms: Arms, sight: BanditSight) -> BanditDecision:
    bad = [breaches(own.verdicts, (*own.invalid, *sight.doubts)) for own in sight.evaluations]
    breached = (False, *(bool(own) and not old for own, old in zip(bad, arms.stopped[1:], strict=True)))
    why = "; ".join(
        f"{name}: {first_of(own, 'also too bad')}"
        for name, own, new in zip(sight.names[1:], bad, breached[1:], strict=True)
        if new
    )
    if any(breached) and rules.on_breach == "rollback":
        return _stopped(rules, progress, arms, breached, why)
    if any(breached) and progress.state != "paused":
        return BanditDecision(Decision("pause", why, replace(progress, state="paused")), arms)
    if (missing := _missing(rules, progress, arms, sight)) is not None:
        return BanditDecision(Decision("hold", missing, progress), arms)
    rewards = sight.rewards()
    if not any(own.events for period in rewards for own in period):
        ago = seconds(_since_update(progress, arms, sight))
        return BanditDecision(
            Decision("hold", f"no reward has matured since the last update, {ago} ago", progress), arms
        )
    after = _after(rules, arms, rewards, breached, sight.until)
    is_due = rules.renew_ms is not None and sight.now - progress.since >= rules.renew_ms
    if after.shares == arms.shares and len(rewards) < MOST_PERIODS and not is_due:
        return BanditDecision(Decision("hold", f"no share changes by 1 %: {_listed(sight, after)}", progress), arms)
    if is_due:
        progress = progress.begun(0, progress.share, sight.now)
    return _shifted(progress, after, f"rewards: {_listed(sight, after)}")


def _after(rules: BanditRules, arms: Arms, found: Found, breached: Sequence[bool], until: int) -> Arms:
    """The arms after the updates of all periods."""
    for rewards in found:
        arms = updated(rules.settings, arms, rewards, breached)
    return replace(arms, until=until)


def _since_update(progress: Progress, arms: Arms, sight: BanditSight) -> int:
    """How long ago the shares were updated, in ms."""
    return sight.now - max(arms.until, progress.since)


def _stopped(rules: BanditRules, progress: Progress, arms: Arms, breached: Sequence[bool], why: str) -> BanditDecision:
    """Arms with a breach get no more events. Without any other arm, the rollout has ended.

    The next update counts the rewards: a breach also counts while labels can't be read, and rewards are missing.
    """
    after = stopped(rules.settings, arms, breached)
    if all(after.stopped[1:]):
        return BanditDecision(Decision("rollback", why, replace(progress, state="rolled_back", share=0)), after)
    return _shifted(progress, after, f"stopped {why}")


def _shifted(progress: Progress, after: Arms, reason: str) -> BanditDecision:
    return BanditDecision(Decision("set", reason, replace(progress, share=SLOTS - after.shares[0])), after)


def _missing(rules: BanditRules, progress: Progress, arms: Arms, sight: BanditSight) -> str | None:
    """Why the shares stay whatever the rewards are; None: an update is due."""
    if progress.state == "paused":
        return "paused: resume, promote or roll back"
    running = [own for own, is_stopped in zip(sight.evaluations, arms.stopped[1:], strict=True) if not is_stopped]
    invalid = {reason for own in running for reason in own.invalid}
    if invalid or sight.doubts:
        return "; ".join([*sorted(invalid), *sight.doubts])
    if (since := _since_update(progress, arms, sight)) < rules.every_ms:
        return f"the shares were updated {seconds(since)} ago, and are every {seconds(rules.every_ms)}"
    return None


def _listed(sight: BanditSight, after: Arms) -> str:
    return ", ".join(
        f"{name} {_mean(total, weight)} -> {percent(share)}"
        for name, total, weight, share in zip(sight.names, after.totals, after.weights, after.shares, strict=True)
    )


def _mean(total: float, weight: float) -> str:
    return f"{total / weight:.4g}" if weight > 0 else "none"
