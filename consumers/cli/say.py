"""Tells the person who runs a command something that is no part of its output."""

import logging
import sys

from millstream.consumers.observability.json_log import message_line


def say(text: str, level: int = logging.INFO) -> None:
    """Print a line on standard error. `level`: of the message, if the log is JSON."""
    sys.stderr.write(
        f"{message_line(text, level)}\n"
    )  # in one call: log records of other threads must not come between
    sys.stderr.flush()
