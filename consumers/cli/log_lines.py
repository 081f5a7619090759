"""Sets up the log of a process that runs until it is told to end."""

import logging
import sys
import threading
from collections.abc import Iterable

from millstream.consumers.cli.early_signals import EndAtOnce
from millstream.consumers.observability.json_log import JsonFormatter, message_line, note

log = logging.getLogger("millstream")


def log_to_stderr(level: str, loggers: Iterable[str]) -> None:
    """Print lines of this level and more severe ones of the named loggers, and warnings of all others."""
    # After `log_as_json`, this call changes nothing.
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    for name in loggers:
        logging.getLogger(name).setLevel(level.upper())


def log_as_json(instance_id: str | None = None) -> None:
    """Write the log as JSON from now on, and to it what Python prints to standard error: warnings, and errors nobody catches.

    `instance_id`: of a worker, if the command line gives it.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.root.addHandler(handler)
    if instance_id is not None:
        note(instance=instance_id)
    logging.captureWarnings(True)
    EndAtOnce.written = message_line
    sys.excepthook = lambda _kind, error, _trace: log.critical("unexpected error", exc_info=error)
    threading.excepthook = _log_thread_error
    sys.unraisablehook = lambda found: log.error(
        "%s: %r", found.err_msg or "Exception ignored in", found.object, exc_info=found.exc_value
    )


def _log_thread_error(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_type is not SystemExit:
        name = None if ended.thread is None else ended.thread.name
        log.error("unexpected error in thread %s", name, exc_info=ended.exc_value)
