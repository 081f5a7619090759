"""Ctrl-C and SIGTERM: the first drains, and the next one stops at once."""

import signal
import time
from collections.abc import Callable
from types import FrameType

# A second signal counts only after this time: a launcher (uv, npm, make) may pass on the Ctrl-C that the terminal already sends,
# and `timeout` sends SIGTERM first to the command, and then to all processes of its group.
SAME_SIGNAL = 0.5  # seconds


def stop_on_signals(drain: Callable[[str], object], stop_at_once: Callable[[str], object]) -> None:
    """Handle SIGINT and SIGTERM in this process.

    Args:
        drain: gets what users call the signal, Ctrl-C or SIGTERM. It must return soon.
        stop_at_once: the same.
    """
    first: list[tuple[int, float]] = []  # which one came first, and when, in seconds on the monotonic clock

    def handle(number: int, _frame: FrameType | None) -> None:
        name, now = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name, time.monotonic()
        if not first:
            first.append((number, now))
            drain(name)
        elif number != first[0][0] or now - first[0][1] >= SAME_SIGNAL:
            stop_at_once(name)

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
