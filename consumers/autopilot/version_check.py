"""Checks in threads of their own whether versions can take part in a rollout: to fetch a version may take an hour."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Final

from millstream.consumers.errors import WorkerError
from millstream.consumers.rollout.changes import standing
from millstream.inference.errors import InferenceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.consumers.rollout.changes import Entry
    from millstream.consumers.rollout.record import RolloutRecord, RolloutVariant
    from millstream.consumers.rollout.steps import Steps

log = logging.getLogger(__name__)

RETRY: Final = 30.0
"""Seconds after which a version is checked again: its files may have been corrected, or removed."""
MOST_AGE: Final = 300.0
"""Seconds for which a result counts. It gets older than `RETRY` if nobody asks, or while the version is checked again."""
MOST_CHECKS: Final = 4
"""Checks at the same time, with those of versions that nobody asks for any more: nothing can end a check from outside."""


class Refusal(str):
    """Why a version that should take part can't, for people. A version that is not checked yet is not refused."""

    __slots__ = ()


def in_thread(check: Callable[[], None]) -> None:
    """Run it in a thread of its own."""
    threading.Thread(target=check, name="version-check", daemon=True).start()


class VersionCheck:
    """See the module. It knows one version: the one that was asked for last. For one thread."""

    def __init__(
        self,
        check: Callable[[int, RolloutRecord | None], tuple[Steps, Entry]],
        clock: Callable[[], float] = time.monotonic,
        run: Callable[[Callable[[], None]], None] = in_thread,
    ) -> None:
        """Args:
        check: version and newest record -> how a rollout of it starts. It raises an error with a message if the version can't
            take part, and may take long. The record counts only for the baseline that it names.
        clock: seconds.
        run: runs a check.
        """
        self._check = check
        self._clock = clock
        self._run = run
        self._lock = threading.Lock()  # of all below
        self._asked: tuple[int, RolloutVariant | None] | None = None  # version and baseline
        self._checking: set[tuple[int, RolloutVariant | None]] = set()  # those whose check is on its way
        self._found: tuple[Steps, Entry] | Refusal | None = None  # None: not known yet
        self._found_at = 0.0
        self._again = -math.inf  # when to check it again

    def of(self, version: int, current: RolloutRecord | None) -> tuple[Steps, Entry] | str:
        """How a rollout of the version starts, or why it does not start yet: a Refusal if it can't. It returns at once.

        Args:
            version: the candidate.
            current: the newest record, if there is one.
        """
        asked = version, None if current is None else standing(current)
        with self._lock:
            is_old = self._found is not None and self._clock() - self._found_at >= MOST_AGE
            if asked != self._asked or (is_old and not isinstance(self._found, Refusal)):
                self._asked, self._found, self._again = asked, None, -math.inf
            is_due = self._clock() >= self._again and asked not in self._checking
            begins = is_due and len(self._checking) < MOST_CHECKS
            if begins:
                self._checking.add(asked)
        if begins:
            self._begin(asked, current)
        with self._lock:
            if self._found is not None:
                return self._found
            if asked in self._checking:
                return f"version {version} is being fetched and checked"
            others = ", ".join(sorted({str(own) for own, _ in self._checking}))
            return f"version {version} waits: the checks of version {others} have not ended yet"

    def _begin(self, asked: tuple[int, RolloutVariant | None], current: RolloutRecord | None) -> None:
        try:
            self._run(lambda: self._end(asked, self._checked(asked[0], current)))
        except RuntimeError as error:  # the system starts no thread
            self._end(asked, Refusal(f"version {asked[0]} does not start: it can't be checked: {error}"))

    def _end(self, asked: tuple[int, RolloutVariant | None], found: tuple[Steps, Entry] | Refusal) -> None:
        with self._lock:
            self._checking.remove(asked)
            if asked == self._asked:  # otherwise, another one was asked for meanwhile
                self._found, self._found_at = found, self._clock()
                self._again = self._found_at + RETRY

    def _checked(self, version: int, current: RolloutRecord | None) -> tuple[Steps, Entry] | Refusal:
        try:
            return self._check(version, current)
        except (WorkerError, InferenceError) as error:
            said = str(error).rstrip(".")
        except Exception as error:  # a bug must not end autopilot
            log.exception("an unexpected error")
            said = f"unexpected {type(error).__name__}: {error}"
        return Refusal(f"version {version} does not start: {said}")
