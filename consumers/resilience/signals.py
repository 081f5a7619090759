"""Ctrl-C, SIGTERM and SIGHUP: the first drains, and the next one stops at once."""

import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

# A second signal counts only after this time: a launcher (uv, npm, make) may pass on the Ctrl-C that the terminal already sends,
# and `timeout` sends SIGTERM first to the command, and then to all processes of its group.
SAME_SIGNAL = 0.5  # seconds
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that tell a command to stop. SIGHUP comes when the terminal closes, for example with an SSH session."""


def stop_on_signals(drain: Callable[[str], object], stop_at_once: Callable[[str], object]) -> None:
    """Handle SIGINT, SIGTERM and SIGHUP in this process.

    Args:
        drain: gets what users call the signal, Ctrl-C, SIGTERM or SIGHUP. It must return soon.
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

    set_handler(handle)


def set_handler(handler: Any, numbers: Iterable[signal.Signals] = STOPPING) -> None:
    """Handle these signals in this way. If SIGHUP is ignored, it stays so: `nohup` asked for it.

    Args:
        handler: what `signal.signal` takes.
        numbers: the signals.
    """
    for number in numbers:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
