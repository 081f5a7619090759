"""Kills a group of processes when our parent ends, even if it is killed: `end_group.py GROUP`, with a pipe as standard input.

The parent holds the other end of the pipe and never writes. When it ends, the pipe is closed. A request to Linux as in
die_with_parent.py would not do for processes that a child starts: each process has to make it, and these run others' code.
"""

import contextlib
import os
import signal
import sys

if __name__ == "__main__":
    sys.stdin.buffer.read()
    with contextlib.suppress(ProcessLookupError):  # they have ended
        os.killpg(int(sys.argv[1]), signal.SIGKILL)
