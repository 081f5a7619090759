"""Tells on standard error how far a long command is."""

import shutil
import sys
import time
from collections.abc import Callable

from millstream.consumers.cli.extras import needs_comparison
from millstream.consumers.cli.say import say
from millstream.consumers.errors import WorkerError
from millstream.consumers.observability.json_log import json_formatter
from millstream.consumers.replay.folder import About
from millstream.consumers.replay.row_sink import RowSink

SCHEMA_TIMEOUT = 60.0  # seconds that the schema registry may be away
TELL_EVERY = {True: 0.5, False: 10.0}  # seconds between two lines about the progress: on a terminal, and elsewhere


def require_scipy(command: str) -> None:
    """Refuse to begin if the figures could not be computed at the end. Raises WorkerError."""
    try:
        import scipy  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise WorkerError(needs_comparison(f"millstream {command}", error)) from None


class Telling:
    """Tells the progress: one line that changes on a terminal, else a line now and then."""

    def __init__(self, about: About | None = None) -> None:
        """`about`: the replay, if the command runs one."""
        self._about = about
        self._terminal = sys.stderr.isatty() and json_formatter() is None
        self._began = self._told = self._first = time.monotonic()
        self._reading = ""  # how much of a topic is read, if one is
        self._what = ""  # is read
        self._last = ""  # the line that was told last

    def turn(self, read: int, sink: RowSink) -> None:
        """Tell how far the replay is, if it is time to."""
        if not read:
            self._first = time.monotonic()
            return
        self._tell(lambda: self._line(read, sink))

    def reading(self, what: str, read: int) -> None:
        """Tell how many records of a topic are read."""
        if what != self._what:
            self._end_reading()
        self._what, self._reading = what, f"{read:,} {what.removesuffix('s') if read == 1 else what} read"
        self._tell(lambda: self._reading)

    def end(self, sink: RowSink) -> None:
        """Tell the end of the events."""
        self.clear()
        done, seconds = sink.stored, time.monotonic() - self._began
        rejected = f", {done.rejected.total():,} without an answer" if done.rejected else ""
        left_out = f", {done.left_out:,} left out by input.filter" if done.left_out else ""
        say(f"{done.answered:,} events answered{rejected}{left_out}; this took {seconds:.1f} s")

    def clear(self) -> None:
        """Take the line back; where it stays, tell the final count, so that nothing seems to be missing."""
        self._end_reading()
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _end_reading(self) -> None:
        """Tell how much was read at the end, if something else was told before, and the line stays."""
        if not self._terminal and self._what and self._last not in ("", self._reading):
            say(self._reading)
        self._what = self._reading = self._last = ""

    def _tell(self, line: Callable[[], str]) -> None:
        now = time.monotonic()
        if now - self._told < TELL_EVERY[self._terminal]:
            return
        self._told, self._last = now, line()
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\033[K{self._last[:width]}", end="", file=sys.stderr, flush=True)
        else:
            say(self._last)

    def _line(self, read: int, sink: RowSink) -> str:
        about = self._about
        assert about is not None
        before = sum(sink.begun.offsets.get(place, start) - start for place, (start, _) in about.ranges.items())
        rate = read / max(time.monotonic() - self._first, 1e-9)
        left = max(about.events - before - read, 0)
        rejected = f", {sink.stored.rejected.total():,} without an answer" if sink.stored.rejected else ""
        return (
            f"{before + read:,} of at most {about.events:,} events, {rate:,.0f} events/s, about "
            f"{left / rate:,.0f} s left{rejected}"
        )
