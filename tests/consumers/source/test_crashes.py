from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.source.crashes import ALONE_ATTEMPTS, MAX_SUSPECT_EVENTS, Attempts, CrashGuard

P = ("in", 0)


@given(st.integers(0, 10**8), st.integers(0, 10**8), st.integers(0, 10**8))
def test_attempts_come_back_from_the_metadata(starts: int, running: int, alone: int) -> None:
    attempts = Attempts(starts, running, alone)
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
            most = guard.most
            batch = range(at, min(at + (self.commit_every if most is None else most), self.events))
            if guard.refuses(P):
                assert len(batch) == 1
                self.refused.append(at)
            else:
                if (attempts := guard.note(P, len(batch))) is not None:
                    self.metadata = attempts.metadata()
                if self.fatal & set(batch):
                    return False
                self.answered += batch
            at = batch.stop
            guard.done(P, len(batch))
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
        assert crashes <= (limit + 1 + ALONE_ATTEMPTS) * (len(fatal) + 1) * (commit_every // span + 2)
    assert sorted(partition.refused) == sorted(fatal)
    assert partition.answered == [event for event in range(events) if event not in fatal]


def test_workers_that_get_on_are_never_careful() -> None:
    guard = CrashGuard(3, 10)
    assert guard.assigned({P: Attempts()}) == {P: Attempts(1)}
    assert guard.most is None
    assert guard.note(P, 5) is None
    assert not guard.refuses(P)


def test_partition_that_goes_takes_its_care_along() -> None:
    guard = CrashGuard(3, 10)
    guard.assigned({P: Attempts(3)})
    assert guard.most == MAX_SUSPECT_EVENTS
    guard.gone(P)
    assert guard.most is None


def test_events_that_a_worker_ended_with_run_one_by_one_and_those_behind_them_few_at_a_time() -> None:
    guard = CrashGuard(3, 10)
    guard.assigned({P: Attempts(3, running=2)})
    assert guard.most == 1
    guard.done(P, 1)
    assert guard.most == 1
    guard.done(P, 1)
    assert guard.most == MAX_SUSPECT_EVENTS
    guard.done(P, 8)
    assert guard.most is None


def test_event_that_ran_with_others_is_not_refused() -> None:
    guard = CrashGuard(3, 10)
    guard.assigned({P: Attempts(3, running=2)})
    noted = guard.note(P, 1)
    assert noted == Attempts(3, running=1, alone=1)
    guard.assigned({P: noted})
    assert not guard.refuses(P)
    noted = guard.note(P, 1)
    assert noted is not None
    guard.assigned({P: noted})
    assert guard.refuses(P)
