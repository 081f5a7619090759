"""Keeps a number of workers running on this machine: starts, restarts and drains them."""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from millstream.consumers.errors import NEEDS_CHANGE, WorkersFailed, WorkersStopped
from millstream.consumers.resilience.signals import SAME_SIGNAL
from millstream.consumers.supervision.restarts import Restarts

# The run gives up if a worker ended this many times in a row and no worker was ever ready: then the pipeline is broken.
GIVE_UP = 3
AT_ONCE_TIMEOUT = 10.0  # seconds that a worker told to stop at once has to leave the group
WELL = (0, -signal.SIGTERM)  # good statuses of a worker told to end: it drained, or it had not read any events yet


class Worker(Protocol):
    """A supervised process; `child.CommandProcess` describes the methods."""

    @property
    def pid(self) -> int: ...  # noqa: D102
    @property
    def was_ready(self) -> bool: ...  # noqa: D102
    @property
    def told_totals(self) -> bool: ...  # noqa: D102
    def status(self) -> int | None: ...  # noqa: D102
    def log_end(self) -> str: ...  # noqa: D102
    def message(self) -> str: ...  # noqa: D102
    def drain(self) -> None: ...  # noqa: D102
    def kill(self) -> None: ...  # noqa: D102
    def scrape(self) -> str | None: ...  # noqa: D102
    def readiness(self) -> str | None: ...  # noqa: D102


@dataclass(slots=True)
class _Supervised:
    """A worker that should run, and its restarts."""

    worker: Worker | None = None
    due: float = 0.0  # when to restart it
    stopped: bool = False  # True: don't restart it, because it would end the same way
    restarts: Restarts = field(default_factory=Restarts)


@dataclass(slots=True)
class _Draining:
    """A worker that was told to end."""

    number: int
    worker: Worker
    until: float  # the time at which it is killed


class Supervisor:
    """Runs numbered workers. One thread must make all calls; the workers end when this thread ends.

    Times are seconds on the monotonic clock; callers pass them as arguments.
    """

    def __init__(
        self,
        start: Callable[[int], Worker],
        *,
        misread: Callable[[int], bool],
        drain_timeout: float,
        say: Callable[[str], None],
    ) -> None:
        """Args:
        start: starts the worker with a number.
        misread: whether the worker with a number may have read an unfinished pipeline file at its start.
        drain_timeout: seconds that a worker may take to drain.
        say: called with a sentence about each thing that happens.
        """
        self._start = start
        self._misread = misread
        self._drain_timeout = drain_timeout
        self._say = say
        self._supervised: dict[int, _Supervised] = {}
        self._draining: list[_Draining] = []
        self._ever_ready = False
        self.restarts = 0  # number of restarts so far

    @property
    def size(self) -> int:
        """The number of workers that should run."""
        return len(self._supervised)

    @property
    def running(self) -> int:
        """The number of workers that run, without those that drain."""
        return sum(entry.worker is not None for entry in self._supervised.values())

    @property
    def broken(self) -> int:
        """The number of workers that should run, and don't, because they ended by themselves."""
        return len(self._supervised) - self.running

    @property
    def given_up(self) -> list[int]:
        """The numbers of the workers that ended with an error that a restart doesn't solve."""
        return [number for number, entry in self._supervised.items() if entry.stopped]

    @property
    def draining(self) -> int:
        """The number of workers that still drain."""
        return len(self._draining)

    @property
    def looping(self) -> list[int]:
        """The numbers of the workers that are in a crash loop."""
        return [number for number, entry in self._supervised.items() if entry.restarts.looping]

    def workers(self) -> dict[int, Worker]:
        """The workers that run, by number."""
        return {number: entry.worker for number, entry in list(self._supervised.items()) if entry.worker is not None}

    def note_ready(self) -> None:
        """Note that a worker has been ready. From now on, the supervisor never raises WorkersFailed."""
        self._ever_ready = True

    def resize(self, size: int, now: float) -> None:
        """Start workers with the lowest free numbers, or remove workers: first the stopped ones, then the highest numbers."""
        while len(self._supervised) > size:
            number = max(self._supervised, key=lambda number: (self._supervised[number].stopped, number))
            entry = self._supervised.pop(number)
            if entry.worker is not None:
                self._drain(number, entry.worker, now)
        while len(self._supervised) < size:
            taken = {*self._supervised, *(draining.number for draining in self._draining)}
            number = next(n for n in range(len(taken) + 1) if n not in taken)
            self._supervised[number] = _Supervised()
            self._launch(number, self._supervised[number], now)

    def tick(self, now: float) -> None:
        """Handle workers that ended since the last call, and restart those that are due.

        Raises:
            WorkersFailed: a worker ended again and again, and none was ever ready.
            WorkersStopped: all workers ended with an error that a restart doesn't solve.
        """
        for number, entry in self._supervised.items():
            if entry.stopped:
                continue
            if entry.worker is None:
                if now >= entry.due:
                    self.restarts += 1
                    self._launch(number, entry, now)
            elif (status := entry.worker.status()) is not None:
                self._ended(number, entry, status, now)
        for draining in list(self._draining):
            self._check_draining(draining, now)

    def stop(self, at_once: threading.Event) -> bool:
        """Drain all workers and wait for their ends; returns whether all finished their events in flight.

        Args:
            at_once: once it is set, the workers are told again, which makes them end without finishing their events.
        """
        told_first = time.monotonic()
        self.resize(0, told_first)
        good, told = True, False
        while self._draining:
            # A worker takes a second signal that comes sooner for the first one.
            if at_once.is_set() and not told and time.monotonic() - told_first > SAME_SIGNAL:
                told = True
                self._stop_at_once(time.monotonic())
            for draining in list(self._draining):
                good = self._check_draining(draining, time.monotonic()) and good
            time.sleep(0.02)
        return good

    def _stop_at_once(self, now: float) -> None:
        self._say("stopping at once: the next workers read the events in flight again")
        for draining in self._draining:
            draining.worker.drain()
            draining.until = now + AT_ONCE_TIMEOUT

    def kill(self) -> None:
        """Kill all workers."""
        for worker in [*self.workers().values(), *(draining.worker for draining in self._draining)]:
            worker.kill()
        self._supervised.clear()
        self._draining.clear()

    def _launch(self, number: int, entry: _Supervised, now: float) -> None:
        entry.worker = self._start(number)
        entry.restarts.started(now)

    def _ended(self, number: int, entry: _Supervised, status: int, now: float) -> None:
        """Handle a worker that ended by itself."""
        assert entry.worker is not None
        worker, entry.worker = entry.worker, None
        # `note_ready` may have missed a worker that ended soon after it was ready, for example at an event in the backlog.
        self._ever_ready = self._ever_ready or worker.was_ready
        how = f"worker {number} (pid {worker.pid}) ended {_how(status)}"
        # A model may end the process with the same status: that is a crash, after which no totals are logged.
        if status == NEEDS_CHANGE and (worker.told_totals or not worker.was_ready):
            if worker.was_ready or not self._misread(number):
                entry.stopped = True
                self._stopped(how, worker)
                return
            how += ", and the pipeline file can't be read, or was saved meanwhile"
        was_looping = entry.restarts.looping
        wait = entry.restarts.ended(now)
        entry.due = now + wait
        if not self._ever_ready and entry.restarts.in_a_row >= GIVE_UP:
            raise WorkersFailed(
                f"{how}, the {GIVE_UP}rd time in a row, and no worker was ever ready. Fix what its log reports, and start again. "
                f"Its log ends:\n{worker.log_end()}"
            )
        self._say(f"{how}; it restarts in {wait:.0f} s")
        if entry.restarts.looping and not was_looping:
            self._say(
                f"worker {number} is in a crash loop: it ended {entry.restarts.in_a_row} times in {entry.restarts.over:.0f} s, "
                f"each time within a minute. It will be restarted, at most every 30 s. The other workers continue. Its log "
                f"ends:\n{worker.log_end()}"
            )

    def _stopped(self, how: str, worker: Worker) -> None:
        how = f"{how}: a restart would not solve its error"
        if all(entry.stopped for entry in self._supervised.values()):
            raise WorkersStopped(
                f"{how}. No worker is left. Do what its message says, then start `millstream run` again:\n{worker.message()}"
            )
        self._say(
            f"{how}, so it isn't restarted. Another worker takes its partitions over, and may stop at "
            f"the same place. Do what its message above says, then start "
            f"`millstream run` again"
        )

    def _drain(self, number: int, worker: Worker, now: float) -> None:
        worker.drain()
        self._draining.append(_Draining(number, worker, now + self._drain_timeout))

    def _check_draining(self, draining: _Draining, now: float) -> bool:
        """Check a draining worker, and kill it if it takes too long. Returns False if it ended badly."""
        status = draining.worker.status()
        if status is None and now < draining.until:
            return True
        self._draining.remove(draining)
        if status is None:
            draining.worker.kill()
            self._say(
                f"worker {draining.number} (pid {draining.worker.pid}) did not end in time and was "
                f"killed; its events in flight are read again. If the model is slow, raise `limits.drain_timeout`, or lower "
                f"`limits.in_flight_events`"
            )
        elif status not in WELL:
            self._say(f"worker {draining.number} (pid {draining.worker.pid}) ended {_how(status)} while it drained")
        return status in WELL


def _how(status: int) -> str:
    return f"by signal {-status}" if status < 0 else f"with status {status}"
