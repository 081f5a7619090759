"""Asks the model's repository now and then which version `rollout.candidate` names, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the repository said last."""

    version: int | None = None  # None: not known
    problem: str = "the model's repository has not answered yet"
    """Why the newest answer is not known; empty: it is. With a problem, the version is of an older answer."""


class CandidateWatch:
    """See the module. A context manager, which ends the thread. A repository that is slow delays no decision."""

    def __init__(self, find: Callable[[], int], every: float) -> None:
        """Args:
        find: asks the repository; it raises an exception with a message for people.
        every: seconds between two questions.
        """
        self._find = find
        self._every = every
        self._ended = threading.Event()
        self.answer = Answer()
        self._thread = threading.Thread(target=self._run, name="candidate", daemon=True)

    def look(self) -> None:
        """Ask now."""
        try:
            self.answer = Answer(self._find(), "")
        except Exception as error:
            log.debug("the candidate is not known", exc_info=True)
            self.answer = Answer(self.answer.version, str(error) or type(error).__name__)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _run(self) -> None:
        self.look()
        while not self._ended.wait(self._every):
            self.look()
