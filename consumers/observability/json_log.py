"""The log as JSON (`--log-format json`): one object per line, for programs that collect logs."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

MESSAGES = "millstream.cli"
"""The logger in the objects of messages that commands print past the log, such as the error that ends one."""
_START = '{"time": "'


class JsonFormatter(logging.Formatter):
    """Writes log records as JSON objects. They are in ASCII, so the encoding of standard error doesn't matter."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}  # of each object: what is known of the process, such as the pipeline's name

    def format(self, record: logging.LogRecord) -> str:
        """See `logging`."""
        return self._object(record, self.fields)

    def line(self, message: str, level: int = logging.INFO, **fields: str) -> str:
        """The object of a message that is no log record. `fields`: more of its fields."""
        record = {"name": MESSAGES, "levelno": level, "levelname": logging.getLevelName(level), "msg": message}
        return self._object(logging.makeLogRecord(record), self.fields | fields)

    def _object(self, record: logging.LogRecord, fields: dict[str, str]) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        shown: dict[str, Any] = {
            "time": time,
            "level": record.levelname,
            "logger": record.name,
            "message": _valid(_message_of(record)),
            **{name: _valid(value) for name, value in fields.items()},
        }
        if record.exc_info and (error := record.exc_info[1]) is not None:
            trace = _valid(self.formatException(record.exc_info))
            shown["error"] = {"type": type(error).__name__, "message": _valid(str(error)), "traceback": trace}
        if record.stack_info:
            shown["stack"] = _valid(record.stack_info)
        return json.dumps(shown)


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError) as error:  # a model's log call has other arguments than its text names
        return f"{record.msg} [its arguments don't fit: {error}]"


def json_formatter() -> JsonFormatter | None:
    """The formatter of this process's log; None: its format is text."""
    return next((one.formatter for one in logging.root.handlers if isinstance(one.formatter, JsonFormatter)), None)


def note(**fields: str) -> None:
    """Add these fields to each JSON object from now on."""
    if (formatter := json_formatter()) is not None:
        formatter.fields.update(fields)


def message_line(message: str, level: int = logging.INFO) -> str:
    """What to print for a message that is no log record: the message itself, or its object if the log is JSON."""
    formatter = json_formatter()
    return message if formatter is None else formatter.line(message, level)


def as_text(line: str) -> str:
    """One of our JSON objects as a log in text has it, on one or more lines. Any other line is returned as it is."""
    found = json_object(line) if line.startswith(_START) else None
    if found is None or not _is_ours(found):
        return line
    if found["logger"] == MESSAGES:
        return str(found["message"])
    head = f"{found['time'].replace('T', ' ')} {found['level']} {found['logger']}: {found['message']}"
    return f"{head}\n{found['error']['traceback']}" if "error" in found else head


def _is_ours(found: dict[str, Any]) -> bool:
    """Whether it has the fields of our objects. A model may log objects of its own, which begin as ours do."""
    error = found.get("error", {"traceback": ""})
    texts = [found.get(name) for name in ("time", "level", "logger", "message")]
    return all(isinstance(text, str) for text in [*texts, isinstance(error, dict) and error.get("traceback")])


def without_half_line(line: str) -> list[str]:
    """The line; or its parts, if one of our JSON objects stands behind what something else printed without an end of line."""
    place = line.find(_START)
    return [line[:place], line[place:]] if place > 0 and json_object(line[place:]) is not None else [line]


def json_object(line: str) -> dict[str, Any] | None:
    """The JSON object on this line; None: there is something else."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _valid(text: str) -> str:
    """The text without halves of characters, which strict parsers of JSON refuse."""
    return text.encode("utf-8", "backslashreplace").decode()
