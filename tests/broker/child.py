"""How servers of the tests, child processes, end."""

from __future__ import annotations

import signal
import subprocess

_STOP_TIMEOUT_S = 20.0


def end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Signal a child and wait for its end; one that takes too long is killed."""
    process.send_signal(how)
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
