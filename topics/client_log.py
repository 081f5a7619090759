"""The log of the Kafka clients: lines that alarm a reader without need are lowered, some are said in our words."""

import logging
import re

SAID_BY_US = frozenset({"TXNERR", "FATAL", "ADDPARTS", "ADDOFFSETS", "FAIL", "REQTMOUT", "SESSTMOUT", "METADATAUPDATE"})
"""What these lines report, we log in our own words: an aborted transaction, a fenced worker, a broker that does not answer, lost
partitions; or it matters to nobody: a partition that has no leader for a moment. What `FAIL` says, a client also passes to its
`error_cb`."""

_RESET = re.compile(
    r"(\S+) \[(\d+)\]: offset reset \(at offset (\d+)\b.* to offset BEGINNING .*: Broker: Offset out of range"
)


def client_log(name: str) -> logging.Logger:
    """The logger for a client, `kafka.NAME`."""
    log = logging.getLogger(f"kafka.{name}")
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
    elif reset := _RESET.search(text):
        record.msg = (
            "%s/%s: the broker does not have offset %s, at which to read on: it is past the partition's end, retention has "
            "deleted it and maybe later ones, or the topic was deleted and created anew. The client goes to the first record "
            "that is there. A worker whose offset is past the end predicts none of these records, and ends with what to do. "
            "Deleted events get no prediction (`millstream docs runbook#millstreameventsdeletedunread`)"
        )
        record.args = reset.groups()
    return logging.getLogger(record.name).isEnabledFor(record.levelno)


def _set_level(record: logging.LogRecord, level: int) -> None:
    record.levelno, record.levelname = level, logging.getLevelName(level)
