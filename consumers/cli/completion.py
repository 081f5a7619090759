"""`millstream completion`: prints a script for the shell that completes commands, options and paths."""

import argparse

SHELLS = ("bash", "zsh", "tcsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run(args: argparse.Namespace) -> int:
    """Print the script. It knows all commands, so their modules are loaded here."""
    import shtab  # noqa: PLC0415  (only this command needs it)

    from millstream.consumers.cli.main import command_line  # noqa: PLC0415  (it imports this module)

    print(shtab.complete(command_line(), args.shell))
    return 0
