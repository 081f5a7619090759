"""Checks in a thread of its own whether a version can take part in a rollout: to fetch a version may take an hour."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Final, Self

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


class Refusal(str):
    """Why a version that should take part can't, for people. A version that is not checked yet is not refused."""

    __slots__ = ()


class VersionCheck:
    """See the module. A context manager, which ends the thread. It knows one version: the one that was asked for last."""

    def __init__(
        self,
        check: Callable[[int, RolloutRecord | None], tuple[Steps, Entry]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        check: version and newest record -> how a rollout of it starts. It raises an error with a message if the version can't
            take part, and may take long. The record counts only for the baseline that it names.
        clock: seconds.
        """
        self._check = check
        self._clock = clock
        self._wanted = threading.Condition()
        self._asked: tuple[int, RolloutVariant | None] | None = None  # version and baseline
        self._current: RolloutRecord | None = None
        self._checking: int | None = None  # the version whose check is on its way
        self._found: tuple[Steps, Entry] | Refusal | None = None  # None: not known yet
        self._found_at = 0.0
        self._again = math.inf  # when to check it again
        self._due = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="version-check", daemon=True)

    def of(self, version: int, current: RolloutRecord | None) -> tuple[Steps, Entry] | str:
        """How a rollout of the version starts, or why it does not start yet: a Refusal if it can't. It returns at once.

        Args:
            version: the candidate.
            current: the newest record, if there is one.
        """
        asked = version, None if current is None else standing(current)
        with self._wanted:
            is_old = self._found is not None and self._clock() - self._found_at >= MOST_AGE
            if asked != self._asked or (is_old and not isinstance(self._found, Refusal)):
                self._asked, self._current, self._due, self._again = asked, current, True, math.inf
                self._found = None
            elif self._clock() >= self._again:
                self._due, self._again = True, math.inf
            if self._due:
                self._wanted.notify()
            return self._pending(version) if self._found is None else self._found

    def look(self) -> None:
        """Check the version that was asked for last, if it is due, in the caller's thread."""
        with self._wanted:
            asked, current, is_due = self._asked, self._current, self._due
            self._due = False
            if asked is None or not is_due:
                return
            self._checking = asked[0]
        found = self._checked(asked[0], current)
        with self._wanted:
            self._checking = None
            if asked == self._asked:  # otherwise, another one was asked for meanwhile
                self._found, self._found_at = found, self._clock()
                self._again = self._found_at + RETRY

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._wanted:
            self._ended = True
            self._wanted.notify()

    def _run(self) -> None:
        while True:
            with self._wanted:
                self._wanted.wait_for(lambda: self._due or self._ended)
                if self._ended:
                    return
            self.look()

    def _pending(self, version: int) -> str:
        if self._checking is not None and self._checking != version:
            return f"version {version} waits for the check of version {self._checking}"
        return f"version {version} is being fetched and checked"

    def _checked(self, version: int, current: RolloutRecord | None) -> tuple[Steps, Entry] | Refusal:
        try:
            return self._check(version, current)
        except (WorkerError, InferenceError) as error:
            said = str(error).rstrip(".")
        except Exception as error:  # a bug must not end the thread
            log.exception("an unexpected error")
            said = f"unexpected {type(error).__name__}: {error}"
        return Refusal(f"version {version} does not start: {said}")
