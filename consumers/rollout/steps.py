"""Canary, blue-green, A/B and manual rollouts: one state machine that goes through steps. It has no clock and no randomness.

| strategy | steps | after the last one |
|---|---|---|
| canary | shares such as 1, 5, 25 and 50 % | 100 % |
| blue-green | 0 %: both versions are loaded, and shadows judge the candidate | 100 % at once, then it is watched |
| A/B | one share | the report; a person decides, or the candidate is promoted |
| manual | any share by command | nothing happens by itself |

An evaluation leads to a larger share only if it belongs to the current step, its comparison is valid, it has enough labels, the
step took its time, and every metric passes. A breach leads to 0 % at once, or to a pause. Everything else holds, and says why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from millstream.consumers.rollout.judging import breaches
from millstream.consumers.rollout.progress import ENDED, BadCommandError, Decision, Evaluation, Progress, State
from millstream.consumers.rollout.slots import percent
from millstream.consumers.rollout.verdicts import closest, first_of
from millstream.pipeline.shares import SLOTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.consumers.rollout.verdicts import Verdict

_WAITING: Final[dict[State, str]] = {
    "paused": "paused: resume, promote or roll back",
    "awaiting_approval": "waits for approval",
}
_ALLOWED: Final[dict[State, tuple[str, ...]]] = {
    "running": ("step", "promote", "rollback", "pause", "set"),
    "inconclusive": ("step", "promote", "rollback", "pause", "set"),
    "awaiting_approval": ("approve", "step", "promote", "rollback", "pause", "set"),
    "paused": ("resume", "step", "promote", "rollback", "set"),
    "watching": ("promote", "rollback", "pause"),
    "promoted": ("rollback",),
    "concluded": ("promote", "rollback"),
    "rolled_back": (),
}
_STILL_TO_COME: Final = 0.5  # of the events may be so young that it is no wonder that no label is there
_STILL_READING_MS: Final = 5_000
"""How far the reading may be behind if no label is there: labels may be among what is not read yet."""
OnBreach = Literal["rollback", "pause"]
Finish = Literal["promote", "report"]


@dataclass(frozen=True, slots=True)
class Steps:
    """How a rollout goes on. `CANARY`, `BLUE_GREEN`, `AB_TEST` and `MANUAL` have the usual values.

    Raises:
        ValueError: shares that don't rise, or are not from 0 to 100 %.
    """

    shares: tuple[int, ...]  # the candidate's slots in each evaluated step, ascending; empty: manual
    bake_ms: int = 0  # the least time of a step
    least_labels: int = 0  # matured labels that a step needs
    longest_ms: int | None = None  # after that, a step is inconclusive
    watch_ms: int = 0  # how long the candidate is watched at 100 %
    finish: Finish = "promote"
    on_breach: OnBreach = "rollback"
    mode: Literal["act", "advise"] = "act"
    approvals: frozenset[int] = frozenset()  # steps that a person must approve; len(shares) is the step to 100 %

    def __post_init__(self) -> None:
        rising = all(one < other for one, other in zip(self.shares, self.shares[1:], strict=False))
        if not rising or any(not 0 <= share <= SLOTS for share in self.shares):
            listed = ", ".join(map(percent, self.shares))
            raise ValueError(f"steps: expected rising shares from 0 % to 100 %, found {listed}: put them in order")


CANARY: Final = Steps((100, 500, 2500, 5000))
"""1, 5, 25, 50, then 100 %."""
BLUE_GREEN: Final = Steps((0,), watch_ms=3_600_000)
"""0 %, then 100 % at once, watched for an hour."""
AB_TEST: Final = Steps((SLOTS // 2,), finish="report")
"""50 %, then a report."""
MANUAL: Final = Steps((), mode="advise")
"""Only commands change anything."""


def started(
    steps: Steps, candidate: str, now: int, earlier: Progress | None = None, share: int | None = None
) -> Decision:
    """The first step. A candidate that arrives while another one is on its way starts from the first step, with a new rollout ID.

    Args:
        steps: the strategy.
        candidate: model:version.
        now: ms since the epoch.
        earlier: the pipeline's progress so far, if there is one.
        share: in slots, in place of the first step's.
    """
    if share is None:
        share = steps.shares[0] if steps.shares else 0
    progress = Progress(candidate, share=share, since=now)
    if earlier is None or earlier.ended:
        return Decision("start", f"{candidate} starts at {percent(share)}", progress)
    reason = (
        f"{candidate} arrived while {earlier.candidate} was at {percent(earlier.share)}: it starts from the first step"
    )
    return Decision("restart", reason, progress)


def decided(steps: Steps, progress: Progress, found: Evaluation) -> Decision:
    """What an evaluation leads to. In the mode `advise`, the decision says what would happen, and the progress stays."""
    decision = _decided(steps, progress, found)
    if steps.mode == "advise" and decision.action != "hold":
        return Decision(decision.action, f"would {decision.action}: {decision.reason}", progress, advised=True)
    return decision


def _decided(steps: Steps, progress: Progress, found: Evaluation) -> Decision:
    if progress.ended or found.epoch != progress.epoch:
        return _hold(progress, _without_effect(progress, found))
    if bad := breaches(found.verdicts, found.invalid):
        return _breached(steps, progress, found, bad)
    if progress.state in _WAITING:
        return _hold(progress, _WAITING[progress.state])
    if missing := _missing(steps, progress, found):
        late = steps.longest_ms is not None and found.now - progress.since >= steps.longest_ms
        if late and progress.state == "running":
            return Decision("inconclusive", f"inconclusive: {missing}", replace(progress, state="inconclusive"))
        return _hold(progress, missing)
    return _passed(steps, progress, found)


def _without_effect(progress: Progress, found: Evaluation) -> str:
    if progress.ended:
        return f"the rollout has ended: {progress.state}"
    return f"the evaluation is of step {found.epoch}, but step {progress.epoch} has begun"


def _missing(steps: Steps, progress: Progress, found: Evaluation) -> str:
    """Why the step is not passed; empty if it is."""
    wait = steps.watch_ms if progress.state == "watching" else steps.bake_ms
    verdicts = _needed(progress, found)
    if found.invalid and progress.state != "watching":
        return "the comparison is invalid: " + "; ".join(found.invalid)
    if found.now - progress.since < wait:
        return f"the step has taken {max(0, found.now - progress.since) / 1000:g} of {wait / 1000:g} s"
    if progress.state != "watching" and found.labels < steps.least_labels:
        return _missing_labels(steps, found)
    if not any(own.segment is None for own in verdicts):
        return "no metric has a result"
    # Quality first: it takes the longest, so the reason seldom changes.
    missing = sorted((own for own in verdicts if own.outcome != "pass"), key=lambda own: own.service)
    return first_of(missing, "also not decided") if missing else ""


def _needed(progress: Progress, found: Evaluation) -> list[Verdict]:
    """The verdicts that must be good. At 100 %, there is no baseline to compare quality with."""
    return [own for own in found.verdicts if own.service or progress.state != "watching"]


def _missing_labels(steps: Steps, found: Evaluation) -> str:
    said = f"{found.labels} of {steps.least_labels} matured labels"
    if found.labels or found.unmatured_share > _STILL_TO_COME:
        return f"{said}; {found.unmatured_share:.0%} of the events are not matured"
    if found.late > _STILL_READING_MS:
        return (
            f"{said}; autopilot is still reading the topics: it has read what came until {found.late / 1000:.0f} s ago"
        )
    return (
        f"{said}, although {1 - found.unmatured_share:.0%} of the events are matured: no label came in time for a version. Look "
        "whether the labels' topic gets records, and whether they name the events' IDs"
    )


def _breached(steps: Steps, progress: Progress, found: Evaluation, bad: list[Verdict]) -> Decision:
    if steps.on_breach == "pause" and progress.state == "paused":
        return _hold(progress, f"paused: {first_of(bad, 'also too bad')}")
    reason = first_of(bad, "also too bad", f"{found.labels:,} labels" if bad[0].needs_labels else "")
    if steps.on_breach == "rollback":
        return Decision("rollback", reason, replace(progress, state="rolled_back", share=0))
    return Decision("pause", reason, replace(progress, state="paused"))


def _passed(steps: Steps, progress: Progress, found: Evaluation) -> Decision:
    which = "errors and latency" if progress.state == "watching" else "all metrics"
    reason = f"{which} passed: {_decisive(progress, found)}"
    if progress.state == "watching":
        return Decision("promote", reason, replace(progress, state="promoted"))
    if following_step(steps, progress) in steps.approvals:
        return Decision("await_approval", reason, replace(progress, state="awaiting_approval"))
    return _next_step(steps, progress, found.now, reason)


def _decisive(progress: Progress, found: Evaluation) -> str:
    """The metric that decided, and how much it is based on. The evaluation has all others."""
    passed = [own for own in _needed(progress, found) if own.segment is None]
    counts = [f"{len(passed)} metrics"] if len(passed) > 1 else []
    if found.labels and progress.state != "watching":
        counts.append(f"{found.labels:,} labels")
    return "; ".join(filter(None, (closest(passed).words(), ", ".join(counts))))


def _next_step(steps: Steps, progress: Progress, now: int, reason: str) -> Decision:
    following = following_step(steps, progress)
    if following < len(steps.shares):
        return Decision("step", reason, progress.begun(following, steps.shares[following], now))
    if steps.finish == "report":
        return Decision("conclude", reason, replace(progress, state="concluded"))
    if steps.watch_ms:
        return Decision("watch", reason, progress.begun(following, SLOTS, now, "watching"))
    return Decision("promote", reason, replace(progress, state="promoted", share=SLOTS))


def _hold(progress: Progress, reason: str) -> Decision:
    return Decision("hold", reason, progress)


def commanded(
    steps: Steps, progress: Progress, command: str, *, now: int, reason: str, share: int | None = None
) -> Decision:
    """What a person's command leads to. Commands act in the mode `advise`, too.

    Args:
        steps: the strategy.
        progress: the state.
        command: step, promote, rollback, pause, resume, approve or set.
        now: ms since the epoch.
        reason: why; kept with the change.
        share: of `set`, in slots.

    Raises:
        BadCommandError: the reason is missing, or the state doesn't allow the command.
    """
    if not reason.strip():
        raise BadCommandError(f"{command}: expected a reason, found none: it is kept in the rollout's history")
    is_manual = not steps.shares
    if is_manual and command in {"step", "approve"}:
        raise BadCommandError(f"{command}: a manual rollout has no steps: set a share, or promote")
    allowed = [name for name in allowed_commands(progress) if not (is_manual and name == "step")]
    if command not in allowed:
        raise BadCommandError(
            f"{command}: the rollout of {progress.candidate} is {progress.state}, which allows "
            f"{listed_commands(progress.state, allowed)}"
        )
    match command:
        case "rollback":
            return Decision("rollback", reason, replace(progress, state="rolled_back", share=0))
        case "promote":
            return Decision("promote", reason, replace(progress, state="promoted", share=SLOTS), emergency=True)
        case "pause":
            return Decision("pause", reason, replace(progress, state="paused"))
        case "resume":
            return Decision("resume", reason, _resumed(progress, now))
        case "set":
            if share is None or not 0 <= share <= SLOTS:
                raise BadCommandError(f"set: expected a share from 0 % to 100 %, found {percent(share or 0)}")
            # A person has chosen the share, so a person goes on. In a manual rollout, nobody else would.
            after: State = progress.state if is_manual else "paused"
            return Decision("set", reason, progress.begun(progress.step, share, now, after))
    decision = _next_step(steps, progress, now, reason)
    return replace(decision, emergency=command == "step")


def _resumed(progress: Progress, now: int) -> Progress:
    """Results from before the pause don't count: whoever resumes has changed something, or waited for it."""
    if progress.share == SLOTS:  # the baseline has no other events than those from before
        return progress.begun(progress.step, SLOTS, now, "watching")
    return replace(progress.begun(progress.step, progress.share, now, "running"), resumed=now)


def following_step(steps: Steps, progress: Progress) -> int:
    """The next step with a larger share: a person may have set one between two steps. After the last one, it is 100 %."""
    following = progress.step + 1
    while following < len(steps.shares) and steps.shares[following] <= progress.share:
        following += 1
    return following


def allowed_commands(progress: Progress) -> tuple[str, ...]:
    """The commands that a state allows."""
    return _ALLOWED[progress.state]


def listed_commands(state: State | str, names: Sequence[str]) -> str:
    """What a person may do, for messages. While a rollout is on its way, only another one starts."""
    return ", ".join([*names, "start" if state in ENDED else "start of another version"])
