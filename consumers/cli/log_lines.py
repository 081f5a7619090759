"""Sets up the log of a process that runs until it is told to end."""

import logging
import sys
from collections.abc import Iterable


def log_to_stderr(level: str, loggers: Iterable[str]) -> None:
    """Print lines of this level and more severe ones of the named loggers, and warnings of all others."""
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    for name in loggers:
        logging.getLogger(name).setLevel(level.upper())
