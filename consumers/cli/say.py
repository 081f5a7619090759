"""Tells the person who runs a command something that is no part of its output."""

import sys


def say(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)
