"""Child processes: they end when we do, and tell in their log at which port they serve their metrics."""

import http.client
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

# -P: the working folder is not put on the import path, since it may hold packages of any name.
MILLSTREAM = (sys.executable, "-P", "-m", "millstream")
"""The command, before its arguments."""
_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
_PORT = re.compile(r"/(?:metrics|ready) on port (\d+)\b")
_ANSWER_TIMEOUT = 1.0  # seconds


def bound(command: Sequence[str]) -> list[str]:
    """The command, for a process that ends when the thread that starts it does, however that ends (on Linux)."""
    return [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *command]


def start(
    command: Sequence[str], log: Path, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command, `bound`, whose output is added to `log`; `cwd` and `env` are ours where not given."""
    with log.open("ab") as out:
        return subprocess.Popen(
            bound(command),
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C in the terminal reaches us first, and we end our children in order
        )


def told_port(log: str) -> int | None:
    """The port at which a command of ours says that it serves its metrics; None where it has not said so."""
    found = _PORT.search(log)
    return None if found is None else int(found[1])


def scrape(port: int) -> str | None:
    """The metrics that a process of this machine serves; None where it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_ANSWER_TIMEOUT) as answer:
            return str(answer.read().decode())
    except (OSError, http.client.HTTPException):
        return None
