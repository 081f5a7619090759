"""Fetches servers in Java with Maven, once. A folder keeps them."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from millstream.topics.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

OUTPUT = "out"  # folder where Maven's goals put what they fetch
_TIMEOUT_S = 600


def missing_for(folder: Path) -> str | None:
    """What this machine lacks to run the server in `folder`, or to fetch it there, as a sentence's end; None if nothing."""
    if shutil.which("java") is None:
        return "java is not installed"
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', shown)
    if version is None or int(version[1]) < 17:
        return f"java 17 or later is needed, found {version[1] if version else shown.strip()!r}"
    if shutil.which("mvn") is None and not folder.exists():
        return "mvn is not installed"
    return None


def fetched(folder: Path, goal: Sequence[str], *, what: str, instead: str, pom: str | None = None) -> Path:
    """Return `folder`. If it is missing, run Maven's goal, and keep what that put into `OUTPUT`.

    Raises BrokerError: it names `what` could not be fetched, and ends with what to do `instead`.
    """
    cache = folder.parent
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # a file, a link to nothing, or a folder of somebody else
        raise BrokerError(
            f"The folder {cache} can't be created: {error.strerror}. Name another one with --cache."
        ) from None
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be fetching it
        if not folder.exists():
            _fetch(folder, goal, what, instead, pom)
    return folder


def log_end(log: Path, heading: str, count: int = 15) -> str:
    """The end of a log file for an error message, without Java's stack frames; empty if the log is.

    Args:
        log: the file.
        heading: stands before the lines, such as "Its log ends:".
        count: lines at most.
    """
    lines = [
        line for line in log.read_text(errors="replace").splitlines() if line.strip() and not line.startswith("\t")
    ]
    return "\n".join([f" {heading}", *(f"    {line}" for line in lines[-count:])]) if lines else ""


def _fetch(folder: Path, goal: Sequence[str], what: str, instead: str, pom: str | None) -> None:
    """Let Maven put the files aside and move them in place at the end: `folder` exists only complete."""
    project = folder.parent / "fetch"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    if pom is not None:
        (project / "pom.xml").write_text(pom)
    log = folder.parent / "maven.log"
    with log.open("w") as out:
        try:
            status: int | str = subprocess.run(
                ["mvn", "-B", "-q", *goal], cwd=project, stdout=out, stderr=out, timeout=_TIMEOUT_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = f"no end after {_TIMEOUT_S} s"
    if status != 0:
        raise BrokerError(
            f"Maven could not fetch {what} ({status}). Check the network, or {instead}."
            f"{log_end(log, f'Its last lines ({log}):')}"
        )
    (project / OUTPUT).rename(folder)
    shutil.rmtree(project)
