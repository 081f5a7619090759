"""Shows the demo while it runs: as a live table in a terminal, or as one line per second."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from millstream.consumers.demo.results import Latency, Tally

SAMPLE_ROWS = 6  # predictions on the screen


@dataclass(frozen=True, slots=True)
class VersionLook:
    """The state of one model version."""

    version: int
    tally: Tally
    latency: Latency  # of the latest predictions
    rate: float  # results per second since the last look
    batch_events: float  # mean number of events per micro-batch since the last look; NaN if there was no micro-batch
    max_events: int  # most events of a micro-batch


@dataclass(frozen=True, slots=True)
class Look:
    """The state of the demo."""

    seconds: float  # since the first event
    sent: int
    events: int  # total number of events
    rate: float  # events sent per second since the last look
    versions: Sequence[VersionLook]
    sample: str  # a prediction with its outcome; "" if there is none yet


class Screen(Protocol):
    """Shows looks; a context manager."""

    def show(self, look: Look) -> None: ...  # noqa: D102
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class PlainScreen:
    """Prints one line for each look."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, look: Look) -> None:
        """Print the line."""
        parts = [f"{look.seconds:5.1f} s  in {look.rate:6,.0f}/s  sent {look.sent:,}"]
        for version in look.versions:
            tally = version.tally
            parts.append(
                f"v{version.version} out {version.rate:6,.0f}/s  lag {tally.unanswered:,}  ms {latency_text(version.latency)}  "
                f"batch {_batch(version)}  dead {tally.dead}"
            )
        self._console.print("  |  ".join(parts), markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class LiveScreen:
    """Shows a table, and updates it in place."""

    def __init__(self, console: Console, note: str = "") -> None:
        """`note` goes below the table."""
        self._note = note
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._samples: deque[str] = deque(maxlen=SAMPLE_ROWS)

    def show(self, look: Look) -> None:
        """Update the table."""
        if look.sample and look.sample not in self._samples:
            self._samples.append(look.sample)
        done = f"{look.sent:,} of {look.events:,} events, {look.rate:,.0f}/s in, {look.seconds:.0f} s"
        samples = Panel("\n".join(self._samples) or "none yet", title="predictions and true outcomes")
        group = Group(
            Panel(_table(look), title=f"Millstream: {done}"), samples, Text(f"{self._note}Ctrl-C drains and sums up")
        )
        self._live.update(group, refresh=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)


def latency_text(latency: Latency) -> str:
    """p50/p95/p99 in ms."""
    return "/".join("-" if math.isnan(value) else f"{value:.0f}" for value in latency)


def _batch(version: VersionLook) -> str:
    mean = version.batch_events
    return "-" if math.isnan(mean) else f"{mean:.0f} ({mean / version.max_events:.0%} full)"


def _table(look: Look) -> Table:
    table = Table(box=None, expand=True, pad_edge=False)
    table.add_column("")
    for version in look.versions:
        table.add_column(f"model version {version.version}", justify="right")
    tallies = [version.tally for version in look.versions]
    rows = {
        "predictions out": [f"{version.rate:,.0f}/s" for version in look.versions],
        "lag (events not answered)": [f"{tally.unanswered:,}" for tally in tallies],
        "latency p50/p95/p99, ms": [latency_text(version.latency) for version in look.versions],
        "events a micro-batch": [_batch(version) for version in look.versions],
        "predictions": [f"{tally.predicted:,}" for tally in tallies],
        "dead letters": [
            ", ".join(f"{reason} {count}" for reason, count in tally.reasons.items()) or "0" for tally in tallies
        ],
    }
    for title, cells in rows.items():
        table.add_row(title, *cells)
    return table
