"""The output of `millstream run`: a status line, and a line for each thing that happens.

In a terminal, the status line stays at the bottom and is updated every second. Elsewhere it is printed when the workers, the
decision or what is known of the lag changes, when the workers fall behind or have caught up, and once a minute.
"""

import logging
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from millstream.consumers.observability.json_log import as_text
from millstream.consumers.observability.lag_metrics import oldest_age
from millstream.consumers.supervision.autoscaler import Status
from millstream.schemas.wording import counted
from millstream.topics.lag_trend import MIN_BACKLOG_SECONDS, WINDOW_SECONDS, drain_text

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_LEVEL = re.compile(rf"\S+ \S+ ({'|'.join(_LEVELS)}) ")  # start of a log line that has a level
STATUS_INTERVAL = 60.0  # seconds between two status lines outside of a terminal, if nothing changes
BEHIND_SECONDS = 10.0  # with this lag, the workers are behind, until it is below MIN_BACKLOG_SECONDS


class Screen:
    """Prints the output; a context manager."""

    def __init__(
        self, console: Console, *, plain: bool, log_level: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._shown_levels = _LEVELS[_LEVELS.index(log_level.upper()) :]
        self._clock = clock
        self._shown: object = None  # what the last status line outside of a terminal was about
        self._shown_at = 0.0
        self._behind = False  # whether the workers have fallen behind and not caught up yet
        self._live = None if plain else Live(console=console, auto_refresh=False, transient=True)

    def show(self, status: Status, problem: str) -> None:
        """Print or update the status line."""
        text = status_text(status, problem)
        if self._live is not None:
            with _unwritten():
                self._live.update(Text(text), refresh=True)
        elif (
            about := (self._are_behind(status), _about(status, problem))
        ) != self._shown or self._clock() - self._shown_at >= STATUS_INTERVAL:
            self._shown, self._shown_at = about, self._clock()
            self._print_status(text)

    def _print_status(self, text: str) -> None:
        self._print(text)

    def _are_behind(self, status: Status) -> bool:
        if status.lag is not None and (age := oldest_age(status.lag.lags)) is not None:
            self._behind = age >= (MIN_BACKLOG_SECONDS if self._behind else BEHIND_SECONDS)
        return self._behind

    def say(self, sentence: str, level: int = logging.INFO) -> None:  # noqa: ARG002
        """Print a sentence about something that happened. `level`: how severe it is, which only JSON shows."""
        self._print(f"-- {sentence}")

    def log(self, number: int, line: str) -> None:
        """Print a line of a worker's log. A line without a level is also printed: it belongs to an error."""
        level = _LEVEL.match(as_text(line))
        if level is None or level[1] in self._shown_levels:
            self._print_log(number, line)

    def _print_log(self, number: int, line: str) -> None:
        self._print(f"[{number}] {line}")

    def end_line(self) -> None:
        """Remove the status line for good. It would be out of date from now on, and would be drawn again below each sentence."""
        if self._live is not None:
            with _unwritten():
                self._live.update(Text(""))  # `stop` draws it once more
                self._live.stop()

    def _print(self, text: str) -> None:
        with _unwritten():
            self._console.print(text, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            with _unwritten():
                self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_line()


@contextmanager
def _unwritten() -> Iterator[None]:
    """Go on if the output can't be written, such as to a full disk: the workers are more than their log."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


def _about(status: Status, problem: str) -> object:
    """The part of the status that changes only if something happens: no rates, no lag."""
    fleet, decision = status.fleet, status.decision
    return (
        status.ready,
        fleet.size,
        fleet.draining,
        fleet.given_up,
        _without_partitions(status),
        decision.workers,
        decision.action,
        status.lag is None,
        bool(problem),
    )


def _without_partitions(status: Status) -> int:
    """The ready workers to which the others have not given any partition yet, or for which there is none."""
    return sum(reading.ready and not reading.assigned for reading in status.fleet.readings.values())


def status_text(status: Status, problem: str) -> str:
    """The status line: number of workers, rates, lag, and the decision with its reason."""
    lag = status.lag
    size = f"{status.ready}/{counted(status.fleet.size, 'worker')}"
    if status.fleet.draining:
        size += f", {status.fleet.draining} drain"
    if without := _without_partitions(status):
        size += f", {without} without partitions"
    if lag is None:
        return f"{size}  lag not known: {problem or 'no response yet'}  |  {status.reason}"
    arrival = "?" if lag.total is None else f"{lag.total.arrival:,.0f}"
    oldest = oldest_age(lag.lags)
    age = "?" if oldest is None else f"{oldest:.1f}"
    behind = oldest is not None and oldest >= MIN_BACKLOG_SECONDS
    # Before, the trend is also of the time in which no worker was ready, and says that the lag doesn't shrink.
    known = status.trend_known_for >= WINDOW_SECONDS
    # The total may shrink while a partition that nobody moves keeps its backlog.
    ends = math.inf if status.decision.stuck else lag.drain
    drain = f", {_drain(ends)}" if behind and known and ends is not None else ""
    busy = f"{status.utilisation:.0%}"
    # A worker counts a batch's time only when the batch ends. While events wait, it is not idle.
    busy = f", {busy} busy" if status.ready and not (behind and busy == "0%") else ""
    return (
        f"{size}{busy}  in {arrival}/s out {status.done_rate:,.0f}/s  "
        f"lag {lag.messages:,} ({age} s{drain})  |  {status.reason}"
    )


def _drain(seconds: float) -> str:
    return "not catching up" if math.isinf(seconds) else f"caught up in {drain_text(seconds)}"
