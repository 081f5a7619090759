"""Shows the rollout demo while it runs: a live screen in a terminal, or one line per change."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from millstream.consumers.rollout.verdicts import Verdict
from millstream.pipeline.shares import SLOTS

SHARE_WIDTH = 40  # characters of 100 %
LINE_WIDTH = 61  # characters of the picture of an interval
EDGE = 0.3  # benefit at the picture's ends
INTERVAL_EVERY = 2.5  # seconds between two lines with the interval, without a terminal


@dataclass(frozen=True, slots=True)
class Look:
    """The state of the demo."""

    seconds: float  # since the first event
    sent: int  # events
    step: str  # such as "version 2, step 1 of 3, 20 %: running"
    shares: Mapping[int, int]  # version -> slots
    labels: int  # matured, of the side that has fewer
    verdict: Verdict | None  # on the deciding metric; None: nothing is judged at the moment
    hold: str  # why the rollout stays as it is; empty: not known


class Screen(Protocol):
    """Shows looks and changes; a context manager."""

    def show(self, look: Look) -> None: ...  # noqa: D102
    def tell(self, line: str) -> None: ...  # noqa: D102
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class PlainScreen:
    """Prints each change, and now and then the interval of the deciding metric."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._due = 0.0
        self._hold = ""
        self._shown = ""

    def show(self, look: Look) -> None:
        """Print a new reason to hold; and the interval, if it is time and it has changed."""
        if look.hold != self._hold:
            self._hold = look.hold
            self.tell(f"{look.seconds:5.1f} s      holds: {look.hold}")
        line = "" if look.verdict is None else f"{look.step}: {interval_text(look.verdict)}, {look.labels:,} labels"
        if line and line != self._shown and look.seconds >= self._due:
            self._shown, self._due = line, look.seconds + INTERVAL_EVERY
            self.tell(f"{look.seconds:5.1f} s      {line}")

    def tell(self, line: str) -> None:
        """Print the line."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class LiveScreen:
    """Shows the state in place, below the changes so far."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def show(self, look: Look) -> None:
        """Update the state."""
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column()
        table.add_row("step", look.step)
        for version, share in sorted(look.shares.items()):
            bar = "█" * round(SHARE_WIDTH * share / SLOTS)
            table.add_row(f"version {version}", Text(f"{bar:<{SHARE_WIDTH}} {share / 100:4g} %"))
        if look.verdict is not None:
            table.add_row("benefit", Text(picture(look.verdict)))
            table.add_row("", Text(f"{interval_text(look.verdict)}, {look.labels:,} matured labels"))
        if look.hold:
            table.add_row("holds", Text(look.hold))
        title = f"Millstream: {look.sent:,} events, {look.seconds:.0f} s"
        self._live.update(Group(Panel(table, title=title), Text("Ctrl-C ends the demo")), refresh=True)

    def tell(self, line: str) -> None:
        """Print the line above the state."""
        self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)


def interval_text(verdict: Verdict) -> str:
    """The interval of a metric that is a share, in percentage points."""
    if verdict.estimate is None or verdict.lower is None or verdict.upper is None:
        return f"{verdict.metric} not known yet"
    if not math.isfinite(verdict.lower) or not math.isfinite(verdict.upper):
        return f"{verdict.metric} {100 * verdict.estimate:+.1f} points [too few labels for an interval]"
    low, middle, high = (100 * value for value in (verdict.lower, verdict.estimate, verdict.upper))
    return f"{verdict.metric} {middle:+.1f} points [{low:+.1f}, {high:+.1f}]"


def picture(verdict: Verdict) -> str:
    """The interval on a line from -EDGE to +EDGE, whose middle is no difference: `......|..[--*--].....`."""
    line = ["·"] * LINE_WIDTH
    low, middle, high = (
        _place(math.nan if value is None else value) for value in (verdict.lower, verdict.estimate, verdict.upper)
    )
    if low is not None and high is not None:
        line[low : high + 1] = "─" * (high + 1 - low)
    line[LINE_WIDTH // 2] = "│"
    for mark, place in (("[", low), ("]", high), ("●", middle)):
        if place is not None:
            line[place] = mark
    return "".join(line)


def _place(value: float) -> int | None:
    if math.isnan(value):
        return None
    inside = min(max(value, -EDGE), EDGE)
    return round((inside + EDGE) / (2 * EDGE) * (LINE_WIDTH - 1))
