"""Child processes of the tests: how they start and end."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

from millstream.consumers.supervision.child import bound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_STOP_TIMEOUT_S = 20.0


def start(
    command: Sequence[str], log: Path, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command, `bound`, whose output is added to `log`; `cwd` and `env` are ours where not given."""
    with log.open("ab") as out:
        return subprocess.Popen(
            bound(command), cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )


def end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    """Signal a child and wait for its end; one that takes too long is killed."""
    process.send_signal(how)
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
