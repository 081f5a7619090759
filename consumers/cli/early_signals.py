"""Signals while a command has nothing to finish: before it begins, while it only reads, and while Python ends."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import ClassVar

SUPERVISED = ("work", "run")
"""Commands that a supervisor stops and restarts. If a restart can't help, they end with the exit code `NEEDS_CHANGE`."""


class EndAtOnce:
    """A signal handler that ends the process.

    An exception would not do: raised in the middle of an import, or while Python ends, it becomes another error or a traceback.
    """

    written: ClassVar[Callable[[str], str]] = str
    """Returns what to write for the line: the line itself, or a JSON object."""

    def __init__(self, line: str, code: int) -> None:
        """Args:
        line: says on standard error what happened; may be empty.
        code: the exit code.
        """
        self._line = line
        self._code = code

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """End the process."""
        with suppress(OSError):  # nobody reads standard error any more
            if self._line:
                os.write(
                    2, f"{EndAtOnce.written(self._line)}\n".encode()
                )  # `print` is no choice: the signal may have interrupted one
        os._exit(self._code)

    def take(self, *numbers: signal.Signals) -> None:
        """Handle these signals from now on, except those that this process was told to ignore, as by `nohup`."""
        for number in numbers:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self)


def command_of(arguments: Sequence[str]) -> str | None:
    """The command of a command line; None: it names none."""
    return next((word for word in arguments if not word.startswith("-")), None)


def end_early(arguments: Sequence[str]) -> None:
    """Let Ctrl-C end the command of this command line at once, until it handles the signal itself.

    SIGTERM and SIGHUP end `work` and `run` in the same way. Without a handler, the kernel would ignore them in the first process
    of a container. Both have read nothing yet, so they end as if they had drained. With `--until-idle`, that is a failure: a
    script would go on without the predictions.
    """
    if command_of(arguments) in SUPERVISED:
        end = EndAtOnce("interrupted before it was ready; nothing was read", int("--until-idle" in arguments))
        end.take(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    else:
        EndAtOnce("interrupted", 1).take(signal.SIGINT)


def raise_on_ctrl_c() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, if `end_early` has handled it so far."""
    if isinstance(signal.getsignal(signal.SIGINT), EndAtOnce):
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def ctrl_c_ends() -> Iterator[None]:
    """Let Ctrl-C end the process at once, also while the Kafka client waits: Python runs no handler then, for seconds.

    For the main thread, and for steps that only read. What was printed before must be flushed.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    watch = threading.Thread(target=_end_on_ctrl_c, args=(reading,), name="ctrl-c", daemon=True)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    watch.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)
        watch.join()
        os.close(reading)


def _end_on_ctrl_c(reading: int) -> None:
    """End the process if the number of Ctrl-C's signal comes out of this pipe; return when it is closed."""
    while numbers := os.read(reading, 64):
        if signal.SIGINT in numbers:
            EndAtOnce("interrupted", 1)(signal.SIGINT, None)


def end_late(code: int) -> None:
    """Let Ctrl-C end the process with this code at once: Python takes a moment to end.

    A command that has handled signals itself is done, so a further one is ignored. Python takes its handlers back before it has
    ended, and the signal would then kill the process.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        EndAtOnce("", code).take(signal.SIGINT)
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(handler := signal.getsignal(number)) and not isinstance(handler, EndAtOnce):
            signal.signal(number, signal.SIG_IGN)
