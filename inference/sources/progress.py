"""Bounds calls that may hang.

Clients of object stores and registries have time limits of their own, or none. Calls to a file system have none, and hang if its
server is away.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from millstream.inference.errors import SourceUnavailable

T = TypeVar("T")

QUIET_TIMEOUT = 30.0  # seconds without an answer or a piece of a file after which a call is given up
CHECK_EVERY = 0.05  # seconds between two looks at a call
LOOK_EVERY = 1.0  # seconds between two looks at the files that a call writes


class Progress:
    """What a long call has done so far. The call tells it; the waiting thread looks."""

    def __init__(self) -> None:
        self.bytes = 0
        self.last = time.monotonic()  # when the last piece arrived
        self.writes_to: Path | None = None  # a folder, if the call can't tell of its pieces; its growth is progress
        self._looked = self.last

    def add(self, size: int) -> None:
        """Note a piece of this many bytes."""
        self.bytes += size
        self.last = time.monotonic()

    def quiet(self) -> float:
        """Seconds since the last piece."""
        now = time.monotonic()
        if self.writes_to is not None and now - self._looked > LOOK_EVERY:
            self._looked = now
            with suppress(OSError):  # a file may be renamed meanwhile
                written = sum(path.stat().st_size for path in self.writes_to.rglob("*"))
                if written != self.bytes:
                    self.bytes, self.last = written, now
        return now - self.last


class BoundedCalls:
    """Runs each call in a thread of its own, and gives up on one that makes no progress. Threads may share it.

    Calls may overlap: a look at the versions doesn't wait for a large download. A call can't be stopped from outside. So while
    a call that was given up still hangs, no other one to the same place begins, also not from another object: otherwise, a place
    that hangs for a day would leave thousands of threads.
    """

    def __init__(self, what: str, quiet: float) -> None:
        """Args:
        what: the place that is called, for messages.
        quiet: seconds without progress after which a call is given up.
        """
        self._what = what
        self._quiet = quiet

    def run(self, call: Callable[[Progress], T]) -> T:
        """What the call returns. It gets a `Progress`, which counts from now.

        Raises:
            SourceUnavailable: it makes no progress, or an earlier call still hangs.
            Exception: the call's own.
        """
        if _GIVEN_UP.hang(self._what):
            raise SourceUnavailable(f"{self._what} has not answered an earlier request yet. Check that it runs.")
        outcome: _Outcome[T] = _Outcome(call)
        thread = threading.Thread(target=outcome.run, name="model source", daemon=True)
        thread.start()
        while not outcome.done.wait(CHECK_EVERY):
            if outcome.progress.quiet() > self._quiet:
                _GIVEN_UP.add(self._what, thread)
                raise SourceUnavailable(
                    f"{self._what} has not answered for {self._quiet:g} s. Check that it runs, and that this machine reaches it."
                )
        return outcome.result()


class _GivenUp:
    """The threads of calls that were given up, by place. A process may open several sources of one place."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[str, list[threading.Thread]] = {}

    def add(self, place: str, thread: threading.Thread) -> None:
        with self._lock:
            self._threads.setdefault(place, []).append(thread)

    def hang(self, place: str) -> bool:
        """Whether one of the place's still hangs."""
        with self._lock:
            alive = [thread for thread in self._threads.pop(place, ()) if thread.is_alive()]
            if alive:
                self._threads[place] = alive
            return bool(alive)


_GIVEN_UP = _GivenUp()


class _Outcome(Generic[T]):
    """One call, and what came of it."""

    def __init__(self, call: Callable[[Progress], T]) -> None:
        self.progress = Progress()
        self.done = threading.Event()
        self._call = call
        self._returned: list[T] = []
        self._raised: Exception | None = None

    def run(self) -> None:
        try:
            self._returned.append(self._call(self.progress))
        except Exception as error:
            self._raised = error
        finally:
            self.done.set()

    def result(self) -> T:
        if self._raised is not None:
            raise self._raised
        return self._returned[0]
