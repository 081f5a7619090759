"""Ends the process although a thread may be in a call of a library."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable

from millstream.consumers.observability.json_log import message_line

EXIT_TIMEOUT = 10.0  # seconds that Python may wait for threads before the process ends without them


class LibraryThread(threading.Thread):
    """A daemon thread that runs or loads models: a call may take long, or never come back, and can't be stopped."""

    def __init__(self, run: Callable[[], object], name: str) -> None:
        """`run`: what the thread runs."""
        super().__init__(target=run, name=name, daemon=True)


def leave(code: int) -> None:
    """End the process with this exit code at once if a `LibraryThread` still runs. Otherwise return, and see to it that it ends.

    When Python ends, a thread that comes back from a library is unwound through it. A library in C++, such as ONNX Runtime, then
    aborts the process: a worker that drained while a version was loaded would have ended as if it had crashed.

    Python also waits for threads that are no daemons, without a limit. A model may have started one.
    """
    if any(isinstance(thread, LibraryThread) for thread in threading.enumerate()):
        _end(code)
    if _waited_for():
        threading.Thread(target=_end_late, args=(code,), daemon=True).start()


def _waited_for() -> list[str]:
    """The names of the threads that Python waits for when it ends."""
    return [each.name for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]


def _end_late(code: int) -> None:
    time.sleep(EXIT_TIMEOUT)
    named = ", ".join(_waited_for()) or "none"
    said = (
        f"Python has not ended for {EXIT_TIMEOUT:g} s. Threads that it waits for: {named}. The process ends without them. If a "
        f"model started them, write daemon=True there, or end them in its close()."
    )
    sys.stderr.write(f"{message_line(said, logging.ERROR)}\n")
    _end(code)


def _end(code: int) -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
