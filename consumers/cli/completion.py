"""`millstream completion`: prints a script for the shell that completes commands, options and paths."""

import argparse
import sys

from millstream.consumers.cli.completed import bash_functions
from millstream.consumers.errors import WorkerError
from millstream.consumers.shipped import pages


def run(args: argparse.Namespace) -> int:
    """Print the script. It knows all commands, so their modules are loaded here."""
    from millstream.consumers.cli.main import command_line  # noqa: PLC0415  (it imports this module)

    try:
        import shtab  # noqa: PLC0415  (only this command needs it)
    except ModuleNotFoundError:
        raise WorkerError(
            f"`millstream completion` needs the package shtab, which is not installed. Install it: "
            f"{sys.executable} -m pip install shtab"
        ) from None

    preamble = bash_functions(pages()) if args.shell == "bash" else ""
    print(shtab.complete(command_line(), args.shell, preamble=preamble))
    return 0
