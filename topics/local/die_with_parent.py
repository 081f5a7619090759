"""Runs a command that ends when its parent ends, even if the parent is killed: `die_with_parent.py PARENT_PID COMMAND...`.

This process asks Linux for a signal when its parent dies, and then becomes the command with `exec`, which keeps the request. A
`preexec_fn` would not do: it runs Python between fork and exec, and may deadlock in a process with threads, such as those of
Kafka clients. On other systems, the command just runs.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the call of prctl
            sys.exit(1)
    os.execvp(command[0], command)
