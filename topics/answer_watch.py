"""Tells a person who waits that no broker answers, and that one answers again. Pure: times are arguments."""

from collections.abc import Callable

QUIET_SECONDS = 2.0  # without an answer, after which the person is told


class AnswerWatch:
    """Looks at how long a broker has been silent. One thread calls it."""

    def __init__(self, bootstrap: str, say: Callable[[str], object]) -> None:
        """Args:
        bootstrap: the brokers' addresses.
        say: tells the person.
        """
        self._bootstrap = bootstrap
        self._say = say
        self._answered = 0.0  # when a broker last answered
        self._silent_since: float | None = None  # None: the person isn't told of a silence

    def answered(self, now: float) -> None:
        """Note that a broker answered. `now`: seconds on any clock that only goes forward."""
        self._answered = now
        if self._silent_since is not None:
            self._say(f"Kafka at {self._bootstrap} answers again, after {now - self._silent_since:.0f} s")
            self._silent_since = None

    def waits(self, since: float, now: float, longest: float, why: str) -> None:
        """Note that an answer is waited for.

        Args:
            since: when the question was sent.
            now: the time.
            longest: seconds after which the command gives up.
            why: what the client says about it; may be empty.
        """
        since = max(since, self._answered)
        if self._silent_since is None and now - since >= QUIET_SECONDS:
            self._silent_since = since
            reason = f" ({why})" if why else ""
            self._say(
                f"Kafka at {self._bootstrap} does not answer; waiting for up to {longest:g} s, Ctrl-C ends{reason}"
            )
