"""The entry of the `millstream` command and of `python -m millstream`."""

import os
import sys
from pathlib import Path

from millstream.consumers.cli.early_signals import end_early, end_late


def main() -> int:
    """Run the command line; returns the exit code."""
    _open_closed_streams()
    end_early(sys.argv[1:])
    # Imported here, because it takes a while, in which Ctrl-C may come.
    from millstream.consumers.cli import main as cli  # noqa: PLC0415
    from millstream.consumers.resilience.leaving import leave  # noqa: PLC0415

    code = cli.run(sys.argv[1:])
    end_late(code)
    leave(code)
    return code


def _open_closed_streams() -> None:
    """Give standard streams that the caller has closed the null device, as daemons do.

    Python has None for them. And the next file or socket would get their number, which C libraries write messages to.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115


if __name__ == "__main__":
    sys.exit(main())
