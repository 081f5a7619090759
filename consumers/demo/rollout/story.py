"""What should come true in the rollout demo, and whether it did, by the records of the control topic. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.consumers.autopilot.words import AUTOPILOT
from millstream.consumers.rollout.record import RolloutRecord
from millstream.consumers.rollout.slots import percent
from millstream.pipeline.shares import SLOTS

BETTER, BROKEN = 2, 3
"""The versions that arrive."""
METRIC = "accuracy"
"""The metric that decides."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A sentence, and whether it came true."""

    text: str
    came_true: bool


def expectations(records: Sequence[RolloutRecord], steps: Sequence[int]) -> list[Expectation]:
    """What the demo shows.

    Args:
        records: all changes, in order.
        steps: the candidate's shares before 100 %, in slots.
    """
    better, broken = (rollout_of(records, version) for version in (BETTER, BROKEN))
    shares = list(dict.fromkeys(candidates_share(own) for own in better))
    caught = bool(broken) and broken[-1].action == "rollback" and broken[-1].state == "rolled_back"
    return [
        Expectation(
            f"The shadow of version {BETTER} won on late labels, and started the canary",
            bool(better) and better[0].action == "start" and better[0].reason.startswith("shadow"),
        ),
        Expectation(
            f"Version {BETTER} went step by step to 100 %, and was promoted",
            shares == [*steps, SLOTS] and better[-1].state == "promoted",
        ),
        Expectation(
            f"Version {BROKEN} started as a canary of {percent(steps[0])}, and got no larger share",
            bool(broken) and broken[0].action == "start" and max(map(candidates_share, broken)) == steps[0],
        ),
        Expectation(
            f"It was rolled back because of its {METRIC}, and version {BETTER} has all events",
            caught and _is_too_bad(broken[-1].reason) and answering(broken[-1]) == {BETTER: SLOTS},
        ),
        Expectation("Nobody gave a command", bool(records) and all(own.by == AUTOPILOT for own in records)),
    ]


def rollout_of(records: Sequence[RolloutRecord], version: int) -> list[RolloutRecord]:
    """The changes of the rollout of this version."""
    return [own for own in records if own.variants[-1].version == version]


def candidates_share(record: RolloutRecord) -> int:
    """In slots."""
    return record.shares[-1]


def answering(record: RolloutRecord) -> dict[int, int]:
    """The versions that answer events, with their shares in slots."""
    return {own.version: share for own, share in zip(record.variants, record.shares, strict=True) if share}


def _is_too_bad(reason: str) -> bool:
    """Whether the reason names the metric, as the first one that was breached or as a further one."""
    first, *others = reason.split("; also too bad: ")
    return first.startswith(f"{METRIC} is too bad") or METRIC in ", ".join(others).split(", ")
