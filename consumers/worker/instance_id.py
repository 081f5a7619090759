"""A worker's instance ID: a name that lasts over restarts, and makes its transactional ID. One worker has it at a time."""

import fcntl
import hashlib
import os
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from millstream.consumers.errors import InstanceIdTaken, WorkerError


class InstanceId:
    """Holds an instance ID on this machine for as long as the process lives; the lock goes with it, however it ends.

    Workers on different machines can't see each other's lock: there the broker fences the earlier one when a second
    starts with the same instance ID (`InstanceIdTaken` in the earlier).
    """

    def __init__(self, name: str, *, group: str, bootstrap: str) -> None:
        """Take the instance ID.

        Raises:
            InstanceIdTaken: a worker of this machine has it.
            WorkerError: the folder of locks is not this user's alone, or the lock can't be used.
        """
        self.name = f"{group}-{name}"  # of the worker in its group, and of its transactions
        known_as = hashlib.sha256(f"{bootstrap} {self.name}".encode()).hexdigest()[:24]
        try:
            self._path = _own_folder() / f"slot-{known_as}"  # the former name: an older worker's lock is seen
            self._take(name, group)
        except OSError as error:  # no locks on this file system, no room, no right to write
            raise WorkerError(
                f"the lock of instance ID {name} of group {group} can't be taken in {tempfile.gettempdir()}: {error.strerror}. "
                "Name a temporary folder on a local disk that this user may write to: TMPDIR=..."
            ) from None

    def _take(self, name: str, group: str) -> None:
        while True:
            self._file = _opened(self._path)
            self._lock(name, group)
            if _is_file(self._file, self._path):
                break
            self._file.close()  # its last holder removed it between our opening and our locking
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def _lock(self, name: str, group: str) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise InstanceIdTaken(
                f"instance ID {name} of group {group} is taken by process {holder} on this machine. Give each worker an "
                f"instance ID of its own: --instance-id {name}-2, for example; without --instance-id each takes the next one "
                "that is free."
            ) from None

    def release(self) -> None:
        """Give the instance ID back; a process that just ends gives it back too, and leaves an empty file behind."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def _own_folder() -> Path:
    """The folder of this user's locks. Others may write beside it: what they put in its place is refused.

    Not in XDG_RUNTIME_DIR: that goes when its user logs out, under workers that still run.
    """
    folder = Path(tempfile.gettempdir()) / f"millstream-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a link" if stat.S_ISLNK(found.st_mode) else "a file"
        raise WorkerError(
            f"{folder}: expected a folder of user {os.getuid()} with mode 700, for the locks of instance IDs, found {kind} of "
            f"user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):o}. Remove it, or name another temporary folder: "
            "TMPDIR=..."
        )
    return folder


def _opened(path: Path) -> IO[str]:
    """The lock's file, open for reading and appending; a link in its place is not followed."""
    try:
        return open(path, "a+", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise WorkerError(
            f"{path}: the instance ID's lock can't be opened: {error.strerror}. Remove what is there."
        ) from None


def _is_file(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def take_instance_id(name: str | None, *, group: str, bootstrap: str) -> InstanceId:
    """Take the named instance ID, or else this machine's first free one: a restarted worker finds its predecessor's again.

    Raises:
        InstanceIdTaken: the named one is taken.
        WorkerError: see `InstanceId`.
    """
    if name is not None:
        return InstanceId(name, group=group, bootstrap=bootstrap)
    number = 0
    while True:
        try:
            return InstanceId(f"{socket.gethostname()}-{number}", group=group, bootstrap=bootstrap)
        except InstanceIdTaken:
            number += 1
