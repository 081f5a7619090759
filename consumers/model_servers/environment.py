"""Fetches a server's Python packages, pinned by hashes, into a virtual environment of their own. A folder keeps it."""

import fcntl
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from millstream.consumers.model_servers.errors import ServerMissing
from millstream.consumers.model_servers.waiting import wait_for
from millstream.topics.local.child import start

INSTALL_TIMEOUT = 1200.0  # seconds, also for another process that installs the same
LAST_LINES = 5  # lines of a failed command's output that the error shows
_PIP = ("-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check")
_PINNED = ("--no-deps", "--require-hashes", "--only-binary", ":all:")


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages of a server."""

    name: str  # of its folder
    title: str  # for messages
    requirements: Path  # with hashes
    download: str  # size of the files to fetch
    installed: str  # size of the environment


def environment(
    packages: Packages,
    cache: Path,
    *,
    tell: Callable[[str], None] = lambda _: None,
    stop: threading.Event | None = None,
) -> Path:
    """The environment's folder below `cache`. If it is missing, it is created and filled; `tell` gets a line about that before.

    Raises:
        ServerMissing: it can't be created, or the packages can't be fetched. No part of it is left.
        StopRequested: `stop` was set. No part of it is left.
    """
    folder = cache / f"{packages.name}-{_digest(packages.requirements)}"
    if folder.exists():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{packages.name}.lock", stop):
            if not folder.exists():  # another process may have filled it meanwhile
                tell(
                    f"Fetching {packages.title}: {packages.download} to download, {packages.installed} in {folder} (once) ..."
                )
                _fill(folder, packages, stop)
    except OSError as error:
        raise ServerMissing(
            f"{packages.title} can't be kept in {cache}: {error.strerror}. Name another folder with --cache."
        ) from None
    return folder


def _digest(requirements: Path) -> str:
    """Changes with the packages and with the Python that the environment refers to."""
    python = f"{platform.python_version()} {sys.base_prefix}"
    return hashlib.sha256(python.encode() + requirements.read_bytes()).hexdigest()[:12]


@contextmanager
def _locked(file: Path, stop: threading.Event | None) -> Iterator[None]:
    """Wait until no other process installs the same."""
    with file.open("w") as lock:

        def taken() -> bool:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not wait_for(taken, INSTALL_TIMEOUT, stop):
            raise ServerMissing(f"{file}: another process has held this lock for {INSTALL_TIMEOUT:g} s. End it.")
        yield


def _fill(folder: Path, packages: Packages, stop: threading.Event | None) -> None:
    """Make the environment aside and move it in place at the end: `folder` exists only complete.

    Its Python and its packages can be moved. Its scripts can't, and nothing uses them.
    """
    aside = folder.with_name(f"{folder.name}.partial")
    venv, temporary = aside / "venv", aside / "tmp"
    log = folder.with_name(f"{packages.name}.log")
    log.unlink(missing_ok=True)
    shutil.rmtree(aside, ignore_errors=True)  # what a killed process left
    temporary.mkdir(parents=True)
    pip = [str(venv / "bin" / "python"), "-I", *_PIP, *_PINNED, "-r", str(packages.requirements)]
    try:
        _run([sys.executable, "-I", "-m", "venv", str(venv)], temporary, log, _no_venv, stop)
        _run(pip, temporary, log, lambda end: _not_fetched(packages, log, end), stop)
        venv.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _run(
    command: Sequence[str],
    temporary: Path,
    log: Path,
    failed: Callable[[str], ServerMissing],
    stop: threading.Event | None,
) -> None:
    """Run it to its end. If it fails, raise what `failed` makes of the end of its output."""
    process = start(["env", f"TMPDIR={temporary}", *command], log)
    try:
        in_time = wait_for(lambda: process.poll() is not None, INSTALL_TIMEOUT, stop)
    finally:
        _end(process)
    if not in_time or process.returncode != 0:
        how = f"ended with status {process.returncode}" if in_time else f"did not end within {INSTALL_TIMEOUT:g} s"
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-LAST_LINES:]
        raise failed(f"{how}. Its output ends:\n" + "\n".join(f"    {line}" for line in lines))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill it if it still runs, with its own children: what they write is thrown away anyway."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _no_venv(end: str) -> ServerMissing:
    return ServerMissing(
        f"Python's venv module can't create an environment: it {end}\n"
        "Install what it names (Debian: apt-get install python3-venv)."
    )


def _not_fetched(packages: Packages, log: Path, end: str) -> ServerMissing:
    return ServerMissing(
        f"{packages.title} could not be fetched: pip {end}\nAll of its output is in {log}. Check the network and pip's "
        "settings (`pip config list`)."
    )
