"""Run a command that ends when its parent ends, also when that is killed: `die_with_parent.py PARENT_PID COMMAND...`.

The signal on a parent's death outlives `exec`, so this process becomes the command. It is a program and not a `preexec_fn`,
because that runs Python between fork and exec, which may deadlock in a process with threads (and Kafka clients have some). On
systems other than Linux the command just runs.
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
        if os.getppid() != parent:  # it died before prctl
            sys.exit(1)
    os.execvp(command[0], command)
