"""Retries calls during an outage, for a limited time: for commands, whose user waits. Workers have `retry`."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from millstream.consumers.errors import OutageLasts
from millstream.consumers.resilience.retry import BACK_OFF
from millstream.inference.errors import Throttled
from millstream.schemas.failures import failure_of

T = TypeVar("T")

SILENT_SECONDS = 1.0  # a shorter wait isn't reported: a server under load refuses some requests all the time


class LimitedRetry:
    """Repeats a call until it succeeds, or the time is over. One thread calls it."""

    def __init__(self, seconds: float, say: Callable[[str], object]) -> None:
        """Args:
        seconds: how long one call may wait.
        say: tells the user what the command waits for, and when that works again.
        """
        self._seconds = seconds
        self._say = say

    def call(self, call: Callable[[], T]) -> T:
        """Return what `call` returns, after as many tries as it needs.

        Raises:
            OutageLasts: it still fails when the time is over, or the server wants no request until then.
            Exception: an error of `call` that a retry would not help.
        """
        began, tries, said = time.monotonic(), 0, False
        while True:
            try:
                result = call()
            except Exception as error:
                if failure_of(error) != "wait":
                    raise
                waited, pause = time.monotonic() - began, _pause(error, tries)
                if waited + pause > self._seconds:
                    raise OutageLasts(_end(error, waited, self._seconds)) from error
                if not said and waited + pause >= SILENT_SECONDS:
                    self._say(f"{error}; waiting for up to {self._seconds:g} s, Ctrl-C ends")
                    said = True
            else:
                if said:
                    self._say(f"it answers again, after {time.monotonic() - began:.0f} s")
                return result
            time.sleep(pause)
            tries += 1


def _pause(error: Exception, tries: int) -> float:
    """Seconds until the next try: they double, and are no fewer than the server asks for."""
    first, longest = BACK_OFF
    pause = random.uniform(0.5, 1.0) * min(first * 2.0 ** min(tries, 60), longest)
    asked = error.retry_after if isinstance(error, Throttled) else None
    return max(pause, asked or 0.0)


def _end(error: Exception, waited: float, most: float) -> str:
    asked = error.retry_after if isinstance(error, Throttled) else None
    if asked is not None and waited + asked > most:
        return f"{error}. It asks to wait {asked:g} s, and --timeout is {most:g} s: run the command again later, or raise it."
    return f"{error}. Waited {waited:.0f} s; --timeout is {most:g} s. Run the command again when it answers."
