"""Tells the person who runs a command something that is no part of its output."""

import argparse
import logging
import re
import shlex
import sys

from millstream.consumers.observability.json_log import message_line


def say(text: str, level: int = logging.INFO) -> None:
    """Print a line on standard error. `level`: of the message, if the log is JSON."""
    # In one call: log records of other threads must not come between the text and the end of its line.
    sys.stderr.write(f"{message_line(text, level)}\n")
    sys.stderr.flush()


def with_pipeline(message: str, args: argparse.Namespace) -> str:
    """The message with the pipeline file of the command line in each command that it advises."""
    if "pipeline" not in args:
        return message
    return re.sub(
        r"(millstream [a-z -]+) PIPELINE\b", lambda found: f"{found[1]} {shlex.quote(str(args.pipeline))}", message
    )
