"""The entry of the `millstream` command and of `python -m millstream`."""

import sys

from millstream.consumers.cli.early_signals import end_early, end_late


def main() -> int:
    """Run the command line; returns the exit code."""
    end_early(sys.argv[1:])
    # Imported here, because it takes a while, in which Ctrl-C may come.
    from millstream.consumers.cli import main as cli  # noqa: PLC0415
    from millstream.consumers.resilience.leaving import leave  # noqa: PLC0415

    code = cli.run(sys.argv[1:])
    end_late(code)
    leave(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
