"""The log of the Kafka producer's client: lines that alarm a reader without need are lowered."""

import logging

SAID_BY_US = frozenset({"TXNERR", "FATAL", "ADDPARTS", "ADDOFFSETS"})
"""What these lines report, an aborted transaction or a fenced worker, the worker logs in its own words."""


def producer_log() -> logging.Logger:
    """The logger for the client."""
    log = logging.getLogger("kafka.producer")
    log.addFilter(_lower)
    return log


def _lower(record: logging.LogRecord) -> bool:
    """Give a line the level that it deserves; whether that is still logged."""
    text = record.getMessage()
    kind = text.partition(" ")[0]
    if kind in SAID_BY_US:
        _set_level(record, logging.DEBUG)
    elif kind == "GETPID" and text.endswith("retrying"):
        _set_level(record, logging.INFO)
        record.msg, record.args = f"the broker isn't ready for this producer yet, the client asks again: {text}", ()
    return logging.getLogger(record.name).isEnabledFor(record.levelno)


def _set_level(record: logging.LogRecord, level: int) -> None:
    record.levelno, record.levelname = level, logging.getLevelName(level)
