"""The entry of the `millstream` command and of `python -m millstream`."""

import sys

from millstream.consumers.cli import main as cli
from millstream.consumers.resilience.leaving import leave


def main() -> int:
    """Run the command line; returns the exit code."""
    code = cli.run(sys.argv[1:])
    leave(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
