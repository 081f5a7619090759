"""Tells the person who runs a command something that is no part of its output."""

import logging
import sys

from millstream.consumers.observability.json_log import message_line


def say(text: str, level: int = logging.INFO) -> None:
    """Print a line on standard error. `level`: of the message, if the log is JSON."""
    print(message_line(text, level), file=sys.stderr, flush=True)
