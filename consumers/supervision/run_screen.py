"""What `millstream run` says: a line a second, in its place in a terminal, and above it what happens."""

import re
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from millstream.consumers.supervision.autoscaler import Status
from millstream.topics.lag_trend import drain_text

_INFORMATION = re.compile(r"\S+ \S+ (DEBUG|INFO) ")  # how such lines of a log begin
MIN_BACKLOG_SECONDS = 1.0  # seconds of lag from which the time to drain says something


class Screen:
    """Shows it; a context manager."""

    def __init__(self, console: Console, *, plain: bool, verbose: bool) -> None:
        self._console = console
        self._verbose = verbose
        self._live = None if plain else Live(console=console, auto_refresh=False, transient=True)

    def show(self, status: Status, problem: str) -> None:
        """Tell what it does and why."""
        text = status_text(status, problem)
        if self._live is None:
            self._print(text)
        else:
            self._live.update(Text(text), refresh=True)

    def say(self, sentence: str) -> None:
        """Tell what happens, once."""
        self._print(f"-- {sentence}")

    def log(self, number: int, line: str) -> None:
        """A line of a worker's log. One without a level belongs to an error, or is the last word of a worker that fails."""
        if self._verbose or not _INFORMATION.match(line):
            self._print(f"[{number}] {line}")

    def end_line(self) -> None:
        """Take the line away, for good: from here on it would be of the past, and be drawn again below each sentence."""
        if self._live is not None:
            self._live.update(Text(""))  # the end draws it once more
            self._live.stop()

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_line()


def status_text(status: Status, problem: str) -> str:
    """One line: the size, what comes and goes, what waits, and the decision with its reason."""
    lag = status.lag
    size = f"{status.ready}/{counted(status.fleet.size)}"
    if status.fleet.draining:
        size += f", {status.fleet.draining} drain"
    if lag is None:
        return f"{size}  lag not known: {problem or 'no answer yet'}  |  {status.decision.reason}"
    arrival = "?" if lag.total is None else f"{lag.total.arrival:,.0f}"
    age = "?" if lag.seconds is None else f"{lag.seconds:.1f}"
    behind = lag.seconds is not None and lag.seconds >= MIN_BACKLOG_SECONDS
    drain = f", drained in {drain_text(lag.drain)}" if behind else ""
    return (
        f"{size}, {status.utilisation:.0%} busy  in {arrival}/s out {status.done_rate:,.0f}/s  "
        f"lag {lag.messages:,} ({age} s{drain})  |  {status.decision.reason}"
    )


def counted(workers: int) -> str:
    """ "1 worker", "2 workers"."""
    return f"{workers} worker{'' if workers == 1 else 's'}"
