"""What strategies read and decide: a rollout's progress, the evaluation of its current step, and the decision with its reason."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Final, Literal, get_args

from millstream.pipeline.shares import SLOTS

if TYPE_CHECKING:
    from millstream.consumers.rollout.verdicts import Verdict

State = Literal[
    "running",  # the current step is evaluated
    "inconclusive",  # as running, but the step takes longer than it should
    "awaiting_approval",  # the step is passed, and a person must agree to the next one
    "paused",  # evaluated, but only a person goes on
    "watching",  # the candidate has all events; a breach still rolls back
    "promoted",  # ended: the candidate is the new baseline
    "concluded",  # ended: the report is final, and the shares stay until a person decides
    "rolled_back",  # ended: the baseline has all events
]
Action = Literal[
    "hold", "step", "watch", "promote", "rollback", "pause", "resume", "await_approval", "conclude", "inconclusive", "start",
    "restart", "set",
]  # fmt: skip
ENDED: Final = ("promoted", "concluded", "rolled_back")
MOST_STEPS: Final = SLOTS + 1
"""Steps have different shares, and the last one has all events."""


@dataclass(frozen=True, slots=True)
class Progress:
    """All that a strategy remembers. It goes into the control record as JSON."""

    candidate: str  # model:version, or the arms
    state: State = "running"
    step: int = 0  # index in the strategy's steps
    share: int = 0  # the candidate's slots, of 10,000
    since: int = 0  # when the step began, ms since the epoch
    epoch: int = 1  # steps begun in all; an evaluation belongs to one
    attempts: tuple[int, ...] = (1,)  # how often each step so far was begun
    resumed: int = (
        0  # when somebody last resumed below 100 %, ms since the epoch: no event of before counts; 0: nobody has
    )

    @property
    def attempt(self) -> int:
        """How often the current step was begun, from 1 on."""
        return self.attempts[self.step] if self.step < len(self.attempts) else 1

    @property
    def ended(self) -> bool:
        """Whether no evaluation changes it any more."""
        return self.state in ENDED

    def begun(self, step: int, share: int, now: int, state: State = "running") -> Progress:
        """At the begin of a step, which is evaluated from now on."""
        attempts = [*self.attempts, *[0] * (step + 1 - len(self.attempts))]
        attempts[step] += 1
        return replace(
            self,
            state=state,
            step=step,
            share=share,
            since=now,
            epoch=self.epoch + 1,
            attempts=tuple(attempts),
        )

    def to_json(self) -> str:
        """For the control record."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Progress:
        """What `to_json` wrote.

        Raises:
            ValueError: the text is something else.
        """
        try:
            found = {"resumed": 0} | json.loads(text)  # older versions did not write it
            known = {own.name: found[own.name] for own in fields(cls)}
            progress = cls(**known | {"attempts": tuple(known["attempts"])})
            if (wrong := _wrong(progress)) is not None:
                raise ValueError(wrong)
            return progress
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"progress of a rollout: expected the JSON that Millstream wrote, found {text[:80]!r} ({error}): "
                "start the rollout anew"
            ) from error


def _wrong(progress: Progress) -> str | None:
    """The first field that no strategy writes; None: there is none. A step far away would take all memory when it begins."""
    numbers = {"step": MOST_STEPS, "share": SLOTS, "since": 2**53, "epoch": 2**53, "resumed": 2**53}
    for name, most in numbers.items():
        value = getattr(progress, name)
        if type(value) is not int or not 0 <= value <= most:
            return f"{name} {value!r}"
    if not isinstance(progress.candidate, str) or progress.state not in get_args(State):
        return f"candidate {progress.candidate!r}, state {progress.state!r}"
    if len(progress.attempts) > MOST_STEPS or any(type(own) is not int or own < 0 for own in progress.attempts):
        return f"attempts {progress.attempts!r}"
    return None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The current step's results so far: cumulative since it began, of matured events only."""

    epoch: int  # the step's, as in `Progress.epoch`
    now: int  # ms since the epoch
    labels: int  # matured events with a label, of the side that has fewer
    verdicts: tuple[Verdict, ...]
    invalid: tuple[str, ...] = ()  # why quality can't be compared, such as a skewed sample ratio
    unmatured_share: float = 0.0  # of the step's events
    late: int = 0  # how far the reading of the topics is behind, ms


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens now, and why. `progress` is the state after it."""

    action: Action
    reason: str  # a sentence for people, never empty
    progress: Progress
    advised: bool = False  # only a report: nothing changed
    emergency: bool = False  # checks were skipped on purpose


class BadCommandError(ValueError):
    """A command that the rollout's state doesn't allow; the message says what it allows."""
