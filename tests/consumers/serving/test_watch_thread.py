"""Each worker sees within the poll interval what the repository wants, whatever the jitter and the time of loading are."""

from __future__ import annotations

import threading
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.serving.watch_thread import FREE_INTERVAL, follow

INTERVAL = 30.0  # seconds
SLACK = 1e-6  # seconds, for rounding
TIMES = st.floats(0, 5 * INTERVAL)


class Clock:
    """A clock that only goes on while somebody waits or works. It is also the event that ends the thread."""

    def __init__(self, end: float = float("inf")) -> None:
        self.now = 0.0
        self.end = end

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return self.is_set()

    def is_set(self) -> bool:
        return self.now >= self.end


class Repository:
    """Each change is wanted from its time on."""

    def __init__(self, changes: list[float]) -> None:
        self.changes = sorted(changes)

    def wanted(self, now: float) -> int:
        return sum(change <= now for change in self.changes)


class Follower:
    """Switches to what is wanted when it looks, after the time that loading takes."""

    def __init__(self, clock: Clock, repository: Repository, load: float, batches: float = 0) -> None:
        self._clock = clock
        self._repository = repository
        self._load = load
        self._batches = batches  # seconds that the last batch of the old version takes
        self._free_at = 0.0
        self.switched: list[tuple[int, float]] = []  # what is served since when
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def look(self) -> None:
        wanted = self._repository.wanted(self._clock.now)
        if wanted != (self.switched[-1][0] if self.switched else 0):
            self._clock.now += self._load
            self.switched.append((wanted, self._clock.now))
            self._free_at = self._clock.now + self._batches

    def unload_free(self) -> bool:
        return self._clock.now < self._free_at

    def served_at(self, time: float) -> int:
        """The change that is served at this time, or a later one."""
        return max((change for change, since in self.switched if since <= time + SLACK), default=0)


def run(clock: Clock, jitter: st.DataObject, *followers: Follower) -> None:
    def wait_for(shortest: float, longest: float) -> float:
        return jitter.draw(st.floats(shortest, longest))

    follow(followers, INTERVAL, cast("threading.Event", clock), wait_for=wait_for, clock=clock)


@given(st.lists(TIMES, min_size=1, max_size=4), st.floats(0, 5), st.floats(0, 2), st.data())
def test_change_is_served_within_the_interval_and_the_time_to_load(
    changes: list[float], load: float, batches: float, jitter: st.DataObject
) -> None:
    repository = Repository(changes)
    for _ in range(2):  # two workers of a group, each with jitter of its own
        clock = Clock(end=8 * INTERVAL)
        follower = Follower(clock, repository, load, batches)
        run(clock, jitter, follower)
        for number, change in enumerate(repository.changes, 1):
            loading = any(
                since - load <= change <= since for _, since in follower.switched
            )  # an earlier change, just then
            assert follower.served_at(change + INTERVAL + load + (load if loading else 0)) >= number


@given(st.lists(st.floats(0, 5), min_size=2, max_size=4), TIMES, st.data())
def test_models_that_change_together_are_loaded_one_after_the_other(
    loads: list[float], change: float, jitter: st.DataObject
) -> None:
    clock = Clock(end=8 * INTERVAL)
    followers = [Follower(clock, Repository([change]), load) for load in loads]
    run(clock, jitter, *followers)
    # The change may come while the first ones were looked at already, and the others are loaded.
    assert all(each.served_at(change + INTERVAL + 2 * sum(loads)) == 1 for each in followers)


def test_what_was_replaced_is_unloaded_soon_after_its_last_batch() -> None:
    looks: list[float] = []

    class Busy(Follower):
        def unload_free(self) -> bool:
            looks.append(clock.now)
            return super().unload_free()

    clock = Clock(end=3.5 * INTERVAL)
    busy = Busy(clock, Repository([0.0]), load=1, batches=2)
    follow([busy], INTERVAL, cast("threading.Event", clock), wait_for=lambda _, longest: longest, clock=clock)
    ((_, switched),) = busy.switched
    free = switched + 2
    assert busy.begun == 1
    assert min(abs(look - free) for look in looks if look >= free) <= FREE_INTERVAL + SLACK


def test_thread_ends_when_the_worker_does() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=follow, args=([], 30.0, stop), kwargs={"nice": True})
    thread.start()
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
