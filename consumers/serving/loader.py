"""What loads and unloads versions beside the one that is served, and the thread that does so."""

import ctypes
import os
import sys
import threading
from contextlib import suppress
from typing import Protocol

from millstream.consumers.serving.loaded import Loaded
from millstream.consumers.serving.wanted_now import Target

NICE_INCREMENT = 10  # lowers the thread's priority, so that loading leaves a busy core to the events


class Loader(Protocol):
    """Loads and unloads versions, see `VersionLoader`."""

    def load(self, target: Target, served: Loaded) -> Loaded:
        """Load and warm up a version. Raises NotServed."""
        ...

    def unload(self, loaded: Loaded) -> None:
        """Free what a version takes."""


def lower_priority() -> None:
    """Lower the priority of the calling thread, where each thread has its own."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE_INCREMENT)


def give_memory_back() -> None:
    """Give freed memory back to the system at once. Workers keep up to 256 MiB of it otherwise (see `cli.work`)."""
    with suppress(AttributeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)
