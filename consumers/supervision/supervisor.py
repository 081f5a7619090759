"""Keeps a number of workers running on this machine: starts them, starts them again, drains them."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from millstream.consumers.errors import NEEDS_CHANGE, WorkersFailed, WorkersStopped
from millstream.consumers.supervision.restarts import Restarts

GIVE_UP = (
    3  # ends in a row of a worker, where none was ever ready: it is the pipeline, not the worker, that does not work
)
WELL = (0, -signal.SIGTERM)  # ends of a worker told to go: drained, or not so far yet that it held anything


class Worker(Protocol):
    """What is supervised; `child.CommandProcess` says what each does."""

    @property
    def pid(self) -> int: ...  # noqa: D102
    @property
    def was_ready(self) -> bool: ...  # noqa: D102
    def status(self) -> int | None: ...  # noqa: D102
    def log_end(self) -> str: ...  # noqa: D102
    def message(self) -> str: ...  # noqa: D102
    def drain(self) -> None: ...  # noqa: D102
    def kill(self) -> None: ...  # noqa: D102
    def scrape(self) -> str | None: ...  # noqa: D102


@dataclass(slots=True)
class _Supervised:
    """A worker that should run, and its restarts."""

    worker: Worker | None = None
    due: float = 0.0  # when to start it again
    stopped: bool = False  # it is not started again: it would end the same way
    restarts: Restarts = field(default_factory=Restarts)


@dataclass(slots=True)
class _Draining:
    """A worker that was told to go."""

    number: int
    worker: Worker
    until: float  # then it is ended


class Supervisor:
    """Numbered workers. One thread calls it, and the workers live no longer than that thread.

    Times are seconds on the monotonic clock, and come in as arguments.
    """

    def __init__(self, start: Callable[[int], Worker], *, drain_timeout: float, say: Callable[[str], None]) -> None:
        """Args:
        start: starts the worker of a number.
        drain_timeout: seconds that a worker told to go may take.
        say: called with each sentence about what happens.
        """
        self._start = start
        self._drain_timeout = drain_timeout
        self._say = say
        self._supervised: dict[int, _Supervised] = {}
        self._draining: list[_Draining] = []
        self._ever_ready = False
        self.restarts = 0  # so far

    @property
    def size(self) -> int:
        """Workers that are meant to run."""
        return len(self._supervised)

    @property
    def running(self) -> int:
        """Workers that do, without those that drain."""
        return sum(entry.worker is not None for entry in self._supervised.values())

    @property
    def draining(self) -> int:
        """Workers that were told to go and have not gone yet."""
        return len(self._draining)

    @property
    def looping(self) -> list[int]:
        """The numbers whose workers end again and again."""
        return [number for number, entry in self._supervised.items() if entry.restarts.looping]

    def workers(self) -> dict[int, Worker]:
        """The workers that run, by number."""
        return {number: entry.worker for number, entry in list(self._supervised.items()) if entry.worker is not None}

    def note_ready(self) -> None:
        """A worker has been ready: from here on nothing that workers do makes the supervisor give up."""
        self._ever_ready = True

    def resize(self, size: int, now: float) -> None:
        """Start workers with the lowest free numbers. Or let workers go: first those that stopped, then the highest numbers."""
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
        """See to what has happened since the last call.

        Raises:
            WorkersFailed: a worker ended again and again and none was ever ready.
            WorkersStopped: all workers ended because somebody has to change something.
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
            self._see_off(draining, now)

    def stop(self) -> bool:
        """Drain all and wait for it; whether all of them finished what they held."""
        self.resize(0, time.monotonic())
        good = True
        while self._draining:
            for draining in list(self._draining):
                good = self._see_off(draining, time.monotonic()) and good
            time.sleep(0.02)
        return good

    def kill(self) -> None:
        """End all at once."""
        for worker in [*self.workers().values(), *(draining.worker for draining in self._draining)]:
            worker.kill()
        self._supervised.clear()
        self._draining.clear()

    def _launch(self, number: int, entry: _Supervised, now: float) -> None:
        entry.worker = self._start(number)
        entry.restarts.started(now)

    def _ended(self, number: int, entry: _Supervised, status: int, now: float) -> None:
        """A worker ended by itself."""
        assert entry.worker is not None
        worker, entry.worker = entry.worker, None
        # One that ended soon after it was ready may not have been seen so: an event in the backlog may take it down at once.
        self._ever_ready = self._ever_ready or worker.was_ready
        how = f"worker {number} (pid {worker.pid}) ended {_how(status)}"
        if status == NEEDS_CHANGE:
            entry.stopped = True
            self._stopped(how, worker)
            return
        was_looping = entry.restarts.looping
        wait = entry.restarts.ended(now)
        entry.due = now + wait
        if not self._ever_ready and entry.restarts.in_a_row >= GIVE_UP:
            raise WorkersFailed(
                f"{how}, the {GIVE_UP}rd time in a row, and no worker was ever ready: mend what it says and start again. "
                f"Its log ends:\n{worker.log_end()}"
            )
        self._say(f"{how}; it is started again in {wait:.0f} s")
        if entry.restarts.looping and not was_looping:
            self._say(
                f"worker {number} is in a crash loop: {entry.restarts.in_a_row} ends in {entry.restarts.over:.0f} s, none after "
                f"a minute's work. It is tried again, at most every 30 s; the others go on. Its log ends:\n"
                f"{worker.log_end()}"
            )

    def _stopped(self, how: str, worker: Worker) -> None:
        how = f"{how}: it stops at something that a restart doesn't change"
        if all(entry.stopped for entry in self._supervised.values()):
            raise WorkersStopped(
                f"{how}. No worker is left. Do what its message says, then start `millstream run` again:\n{worker.message()}"
            )
        self._say(
            f"{how}, so it isn't started again. Another worker takes its partitions over, and may stop at "
            f"the same place. Do what its message above says, then start "
            f"`millstream run` again"
        )

    def _drain(self, number: int, worker: Worker, now: float) -> None:
        worker.drain()
        self._draining.append(_Draining(number, worker, now + self._drain_timeout))

    def _see_off(self, draining: _Draining, now: float) -> bool:
        """Whether it went as it should, or still may."""
        status = draining.worker.status()
        if status is None and now < draining.until:
            return True
        self._draining.remove(draining)
        if status is None:
            draining.worker.kill()
            self._say(
                f"worker {draining.number} (pid {draining.worker.pid}) did not end within {self._drain_timeout:g} s and was "
                f"killed; what it held is read again. With a slow model, raise `limits.drain_timeout`, or lower "
                f"`limits.in_flight_events`"
            )
        elif status not in WELL:
            self._say(f"worker {draining.number} (pid {draining.worker.pid}) ended {_how(status)} while it drained")
        return status in WELL


def _how(status: int) -> str:
    return f"by signal {-status}" if status < 0 else f"with status {status}"
