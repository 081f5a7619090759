"""The text that the rollout demo prints at its end. Pure."""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from millstream.consumers.demo.rollout.account import Account, Answer
from millstream.consumers.demo.rollout.story import BROKEN, Expectation, rollout_of
from millstream.consumers.rollout.record import RolloutRecord

THRESHOLD = 0.5  # probability from which on a flight is predicted to be late


def summary(
    account: Account,
    records: Sequence[RolloutRecord],
    answers: Sequence[Answer],
    late: pl.Series,
    expected: Sequence[Expectation],
) -> str:
    """The text, without a newline at the end.

    Args:
        account: of all events.
        records: all changes.
        answers: all predictions.
        late: whether each event's flight arrived late; null if its arrival is unknown: [events].
        expected: what should have come true.
    """
    lines = _events(account)
    for version, count in account.versions.items():
        lines.append(f"Version {version}   {count:7,} events; {quality(version, answers, late)}")
    return "\n".join(
        [*lines, _caught(account, records), *(f"{'yes' if own.came_true else 'NO':<12}{own.text}" for own in expected)]
    )


def _events(account: Account) -> list[str]:
    verdict = "each with one prediction, of the version that it names" if account.adds_up else "DOES NOT ADD UP"
    return [
        f"Events      {account.sent:,} departures, {verdict}",
        f"            {account.missing:,} missing, {account.twice:,} twice, {account.strangers:,} of no event; "
        f"{account.fallbacks:,} answered in place of another version",
        f"            computed again: {account.misrouted:,} routed otherwise, {account.misnamed:,} with another version's score",
    ]


def _caught(account: Account, records: Sequence[RolloutRecord]) -> str:
    """How many events the broken version answered before it was caught."""
    broken = rollout_of(records, BROKEN)
    if not broken or broken[-1].action != "rollback":
        return f"Caught      version {BROKEN} was not rolled back"
    count, seconds = account.versions.get(BROKEN, 0), (broken[-1].at - broken[0].at) / 1000
    return (
        f"Caught      version {BROKEN} answered {count:,} events, {count / max(account.sent, 1):.1%} of all, in the "
        f"{seconds:.1f} s until it was rolled back"
    )


def quality(version: int, answers: Sequence[Answer], late: pl.Series) -> str:
    """How many answers of a version were right, and how long its model calls took."""
    own = [answer for answer in answers if answer.version == version]
    right = [(answer.score >= THRESHOLD) == truth for answer, truth in _with_outcome(own, late)]
    said = f"{np.mean(right):.1%} right" if right else "no outcome is known"
    times = [answer.choice.model_ms for answer in own if answer.choice is not None]
    return said if not times else f"{said}; median of the model calls {np.median(times):.2f} ms"


def _with_outcome(answers: Sequence[Answer], late: pl.Series) -> Iterator[tuple[Answer, bool]]:
    known = late.to_list()
    for answer in answers:
        truth = known[answer.number] if answer.number is not None and answer.number < len(known) else None
        if truth is not None:
            yield answer, truth
