"""Servers as child processes of the tests. They never outlive the process that started them, nor (on Linux) the thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_STOP_TIMEOUT_S = 20.0
_DIE_WITH_PARENT = Path(__file__).parents[2] / "consumers" / "demo" / "die_with_parent.py"


def spawn(command: Sequence[str], cwd: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start a command in `cwd` whose output is added to `log`."""
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *command],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C in the terminal reaches the tests first, and they stop it
        )


def end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Signal a child and wait for its end; one that takes too long is killed."""
    process.send_signal(how)
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
