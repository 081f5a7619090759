"""Ends the process although a thread may be in a call of a library."""

import logging
import os
import sys
import threading
from collections.abc import Callable


class LibraryThread(threading.Thread):
    """A daemon thread that runs or loads models: a call may take long, or never come back, and can't be stopped."""

    def __init__(self, run: Callable[[], object], name: str) -> None:
        """`run`: what the thread runs."""
        super().__init__(target=run, name=name, daemon=True)


def leave(code: int) -> None:
    """End the process with this exit code at once if a `LibraryThread` still runs. Otherwise return.

    When Python ends, a thread that comes back from a library is unwound through it. A library in C++, such as ONNX Runtime, then
    aborts the process: a worker that drained while a version was loaded would have ended as if it had crashed.
    """
    if any(isinstance(thread, LibraryThread) for thread in threading.enumerate()):
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
