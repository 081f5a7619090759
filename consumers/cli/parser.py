"""The parser of the command line and of each command: its help ends with examples."""

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from millstream.consumers.cli.completed import FILES
from millstream.consumers.cli.examples import EXAMPLES

NEAR = 0.7  # of 1, how alike a word and the one that was perhaps meant must be: `abort` and `start` are 0.6


class _Help(argparse.RawDescriptionHelpFormatter):
    """Shows the value of an option as needed, also where it may be missing so that a later message says what is expected."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        if action.option_strings and action.nargs == argparse.OPTIONAL:
            return str(action.metavar)
        return super()._format_args(action, default_metavar)


class Parser(argparse.ArgumentParser):
    """Parses a command. The parsed arguments have the parser of their command as `parser`, for errors that are found later."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=_Help, **settings)
        self.epilog = examples_text(self.prog)
        self.set_defaults(parser=self)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Also tells the shell which arguments are paths."""
        action = super().add_argument(*names, **settings)
        if settings.get("type") is Path:
            action.complete = FILES  # type: ignore[attr-defined]
        return action

    def print_help(self, file: Any = None) -> None:
        """Print the help. argparse's own hides that it can't be written."""
        print(self.format_help(), end="", file=file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Also says which choice was perhaps meant."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            if near := meant(str(value), list(map(str, action.choices or ()))):
                error.message += f".{near}"
            raise


def meant(word: str, known: Sequence[str]) -> str:
    """A question behind a message about an unknown word, with a space before it; empty: no known one is near."""
    close = get_close_matches(word, known, n=1, cutoff=NEAR)
    return f" Did you mean {close[0]}?" if close else ""


def examples_text(command: str) -> str:
    """The examples of a command, as `--help` shows them."""
    examples = EXAMPLES.get(command, ())
    width = max((len(line) for line, _ in examples), default=0)
    return "\n".join(["examples:", *(f"  {line:<{width}}  # {purpose}" for line, purpose in examples)])
