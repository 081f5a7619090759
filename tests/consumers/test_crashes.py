from hypothesis import given
from hypothesis import strategies as st

from consumers.crashes import ALONE_ATTEMPTS, Attempts, CrashGuard

P = ("in", 0)


@given(st.integers(0, 10**8), st.integers(0, 10**8))
def test_attempts_come_back_from_the_metadata(starts: int, alone: int) -> None:
    attempts = Attempts(starts, alone)
    assert Attempts.read(attempts.metadata()) == attempts


@given(st.one_of(st.none(), st.text(max_size=30)))
def test_metadata_of_others_says_nothing(metadata: str | None) -> None:
    assert Attempts.read(metadata) == Attempts()


class Partition:
    """One partition through workers that end: the committed offset with its metadata is all that lasts."""

    def __init__(self, fatal: set[int], events: int, limit: int, span: int, commit_every: int) -> None:
        self.fatal = fatal
        self.events = events
        self.limit, self.span, self.commit_every = limit, span, commit_every
        self.committed = 0
        self.metadata = ""
        self.answered: list[int] = []
        self.refused: list[int] = []

    def work(self) -> bool:
        """One worker's life; False where it crashed."""
        guard = CrashGuard(self.limit, self.span)
        self.metadata = guard.assigned({P: Attempts.read(self.metadata)})[P].metadata()
        at = self.committed
        while at < self.events:
            verdict = guard.verdict(P)
            if verdict == "run":
                batch = range(at, min(at + self.commit_every, self.events))
                if self.fatal & set(batch):
                    return False
                self.answered += batch
                at = batch.stop
            else:
                if verdict == "crashed":
                    self.refused.append(at)
                else:
                    self.metadata = guard.note(P).metadata()
                    if at in self.fatal:
                        return False
                    self.answered.append(at)
                at += 1
                guard.done(P)
            self.committed, self.metadata = at, ""
        return True


@given(
    st.sets(st.integers(0, 60), max_size=3),
    st.integers(1, 60),
    st.integers(1, 4),
    st.integers(1, 20),
    st.integers(1, 16),
)
def test_exactly_the_fatal_events_are_refused_after_a_bounded_number_of_crashes(
    fatal: set[int], events: int, limit: int, span: int, commit_every: int
) -> None:
    fatal = {event for event in fatal if event < events}
    partition = Partition(fatal, events, limit, span, commit_every)
    crashes = 0
    while not partition.work():
        crashes += 1
        assert crashes <= (limit + ALONE_ATTEMPTS) * (len(fatal) + 1) * (commit_every // span + 2)
    assert sorted(partition.refused) == sorted(fatal)
    assert partition.answered == [event for event in range(events) if event not in fatal]


def test_workers_that_get_on_are_never_careful() -> None:
    guard = CrashGuard(3, 10)
    assert guard.assigned({P: Attempts()}) == {P: Attempts(1)}
    assert not guard.careful
    assert guard.verdict(P) == "run"


def test_partition_that_goes_takes_its_care_along() -> None:
    guard = CrashGuard(3, 10)
    guard.assigned({P: Attempts(3)})
    assert guard.careful
    guard.gone(P)
    assert not guard.careful
