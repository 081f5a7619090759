"""A worker's instance ID: a name that stays the same over restarts. One worker has it at a time."""

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
    """Holds an instance ID on this machine with a file lock. The operating system releases the lock when the process ends.

    Workers on other machines don't see this lock. If a second worker starts there with the same instance ID, the broker fences
    the first one, which then raises `InstanceIdTaken`.
    """

    def __init__(self, name: str, *, group: str, bootstrap: str) -> None:
        """Take the instance ID.

        Raises:
            InstanceIdTaken: another worker on this machine has it.
            WorkerError: other users can write to the folder of the locks, or the lock can't be taken.
        """
        self.short_name = name  # as `--instance-id` gives it
        self.name = f"{group}-{name}"  # the worker's name in the group, and its transactional ID
        known_as = hashlib.sha256(f"{bootstrap} {self.name}".encode()).hexdigest()[:24]
        try:
            self._path = _own_folder() / f"slot-{known_as}"  # the name in earlier versions, whose locks count too
            self._take(name, group)
        except OSError as error:  # the file system has no locks, is full, or may not be written to
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
            self._file.close()  # its holder removed it after we had opened it
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
                f"instance ID of its own: `millstream run` with --instance-id-prefix, `millstream work` with --instance-id "
                f"{name}-2, for example. Without this option, `work` takes the next one that is free."
            ) from None

    def release(self) -> None:
        """Release the instance ID and remove the file. When a process just ends, the ID is free too, but the file stays."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def _own_folder() -> Path:
    """The folder of this user's locks. It must belong to this user alone, because its parent is open to all users.

    XDG_RUNTIME_DIR is no alternative: it is removed when the user logs out, while workers may still run.
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
    """Open the lock's file for reading and appending. A symbolic link is refused."""
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
    """Take the named instance ID. Without a name, take this machine's first free one, so that a restarted worker gets the same.

    Raises:
        InstanceIdTaken: another worker has the named one.
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
