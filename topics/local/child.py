"""Child processes: they end with their parent, and their output goes to a log file."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
_END_GROUP = Path(__file__).with_name("end_group.py")
_STOP_TIMEOUT_S = 20.0


def bound(command: Sequence[str]) -> list[str]:
    """The command, wrapped so that its process ends when the thread that starts it ends (on Linux), even by a kill."""
    return [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *command]


def start(
    command: Sequence[str], log: Path, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command, `bound`, whose output is added to `log`. By default, it has our folder and environment."""
    with log.open("ab") as out:
        return subprocess.Popen(
            bound(command), cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


def start_guard(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Start a process that kills a child that `start` gave, and the child's own children, when this process ends.

    Kill the guard when the child has ended: later, its process ID may be another's.
    """
    command = [sys.executable, "-I", "-S", str(_END_GROUP), str(process.pid)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def end_guard(guard: subprocess.Popen[bytes]) -> None:
    """End a guard, which then kills nothing."""
    guard.kill()
    guard.communicate()  # closes the pipe


def end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Signal a child and wait for its end. If it takes too long, it is killed."""
    process.send_signal(how)
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
