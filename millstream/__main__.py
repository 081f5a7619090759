"""The entry of the `millstream` command and of `python -m millstream`."""

import sys

from millstream.consumers.cli import main as cli


def main() -> int:
    """Run the command line; returns the exit code."""
    return cli.run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
