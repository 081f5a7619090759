"""A worker's slot: a name that lasts over restarts, from which its transactional id comes. One worker has it at a time."""

import fcntl
import hashlib
import os
import socket
import tempfile
from pathlib import Path
from typing import IO

from consumers.errors import SlotTaken


class Slot:
    """Holds a slot on this machine for as long as the process lives; the lock goes with it, however it ends.

    Workers on different machines can't see each other's lock: there the broker fences the earlier one when a second
    starts with the same slot (`SlotTaken` in the earlier).
    """

    def __init__(self, name: str, *, group: str, bootstrap: str) -> None:
        """Take the slot.

        Raises:
            SlotTaken: a worker of this machine has it.
        """
        self.name = f"{group}-{name}"  # of the worker in its group, and of its transactions
        known_as = hashlib.sha256(f"{bootstrap} {self.name}".encode()).hexdigest()[:24]
        path = Path(tempfile.gettempdir()) / f"millstream-slot-{os.getuid()}-{known_as}"
        self._path = path
        while True:
            self._file = path.open("a+")
            self._lock(name, group)
            if _is_file(self._file, path):
                break
            self._file.close()  # its last holder removed it between our opening and our locking
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def _lock(self, name: str, group: str) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise SlotTaken(
                f"slot {name} of group {group} is taken by process {holder} on this machine. Give each worker a slot of its "
                f"own: --slot {name}-2, for example; without --slot each takes the next one that is free."
            ) from None

    def release(self) -> None:
        """Give the slot back; a process that just ends gives it back too, and leaves an empty file behind."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def _is_file(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def take_slot(name: str | None, *, group: str, bootstrap: str) -> Slot:
    """Take the named slot, or else the first free one of this machine: a restarted worker finds its predecessor's again.

    Raises:
        SlotTaken: the named one is taken.
    """
    if name is not None:
        return Slot(name, group=group, bootstrap=bootstrap)
    number = 0
    while True:
        try:
            return Slot(f"{socket.gethostname()}-{number}", group=group, bootstrap=bootstrap)
        except SlotTaken:
            number += 1
