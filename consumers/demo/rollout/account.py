"""Accounts for each event of the rollout demo: one prediction, by the version that routing chose and that it names. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from millstream.consumers.rollout.record import RolloutRecord
from millstream.consumers.rollout.routing import route

TOLERANCE = 1e-4  # largest difference of a score from the one computed again

Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Choice:
    """How the rollout chose the variant, as predictions say it."""

    revision: int
    assigned: str  # name of a variant
    randomised: bool  # False: a version was being loaded, so the baseline had its events
    model_ms: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a prediction says."""

    number: int | None  # of the event; None: it is not one of the demo's
    event_id: str
    version: int
    variant: str
    score: float
    choice: Choice | None = None  # None: there was no rollout


@dataclass(frozen=True, slots=True)
class Account:
    """The result. All counts are of events or predictions."""

    sent: int
    missing: int  # events without a prediction
    twice: int  # further predictions of events that have one
    strangers: int  # predictions of no event that was sent
    misrouted: (
        int  # the record of the named revision gives the event to another variant, or the variant to another version
    )
    fallbacks: int  # answered by another variant than the assigned one
    misnamed: int  # the score is not the named version's
    versions: Mapping[int, int]  # version -> its events

    @property
    def adds_up(self) -> bool:
        """Whether each event has one prediction, of exactly the version that it names."""
        wrong = self.missing, self.twice, self.strangers, self.misrouted, self.fallbacks, self.misnamed
        return not any(wrong) and sum(self.versions.values()) == self.sent


def account(
    sent: int,
    answers: Sequence[Answer],
    revisions: Mapping[int, RolloutRecord],
    scores: Mapping[int, Scores],
    baseline: int,
) -> Account:
    """Account for all events.

    Args:
        sent: how many events there are.
        answers: all predictions.
        revisions: the changes of the rollout, by revision.
        scores: what each version says of each event, computed again: version -> [events].
        baseline: the version that answers without a rollout.
    """
    first: dict[int, Answer] = {}
    twice = strangers = 0
    for own in answers:
        if own.number is None or own.number >= sent:
            strangers += 1
        elif own.number in first:
            twice += 1
        else:
            first[own.number] = own
    counted = list(first.values())
    return Account(
        sent=sent,
        missing=sent - len(counted),
        twice=twice,
        strangers=strangers,
        misrouted=_misrouted(counted, revisions, baseline),
        fallbacks=sum(own.choice is not None and own.variant != own.choice.assigned for own in counted),
        misnamed=sum(_is_misnamed(number, own, scores) for number, own in first.items()),
        versions=dict(sorted(Counter(own.version for own in counted).items())),
    )


def _is_misnamed(number: int, answer: Answer, scores: Mapping[int, Scores]) -> bool:
    own = scores.get(answer.version)
    return own is None or not abs(float(own[number]) - answer.score) <= TOLERANCE


def _misrouted(answers: Sequence[Answer], revisions: Mapping[int, RolloutRecord], baseline: int) -> int:
    by_revision: dict[int | None, list[Answer]] = {}
    for own in answers:
        by_revision.setdefault(None if own.choice is None else own.choice.revision, []).append(own)
    alone = by_revision.pop(None, [])
    wrong = sum((own.variant, own.version) != ("primary", baseline) for own in alone)
    return wrong + sum(_of_revision(own, revisions.get(revision or 0)) for revision, own in by_revision.items())


def _of_revision(answers: Sequence[Answer], record: RolloutRecord | None) -> int:
    """How many answers the revision doesn't explain."""
    if record is None:
        return len(answers)
    routed = route(record.plan(), [own.event_id.encode() for own in answers]).variant.tolist()
    named = {(own.name, own.version) for own in record.variants}
    wrong = 0
    for own, variant in zip(answers, routed, strict=True):
        assert own.choice is not None
        expected = record.variants[variant if own.choice.randomised else 0].name
        wrong += own.choice.assigned != expected or (own.variant, own.version) not in named
    return wrong
