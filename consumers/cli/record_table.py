"""Prints records for people, as wide as the terminal: one line each, and in a narrow terminal two."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from millstream.pipeline.printable import printable, printable_json

TIME_WIDTH, PLACE_WIDTH, KEY_WIDTH = 23, 10, 14
MIN_VALUE_WIDTH = 50  # columns; with fewer, the value gets a line of its own
INDENT = "    "  # of such a line
MAX_VALUE_LENGTH = 1000  # characters; no terminal is wider


class RecordTable:
    """A table that grows with each record, so its columns have fixed widths. JSON lines show what it leaves out."""

    def __init__(self, topics: Sequence[str], console: Console | None = None) -> None:
        """Args:
        topics: the topics of the records. If there are several, the table names them.
        console: where to print; by default, stdout.
        """
        self._console = console or Console(highlight=False)
        self._topic_width = max(map(len, topics)) if len(topics) > 1 else 0
        self._has_heading = False

    def show(self, record: dict[str, Any]) -> None:
        """Print a record, given as `tail.as_json` returns it. The first one comes with the heading."""
        if not self._has_heading:
            self._print("time (UTC)", "topic", "position", "key", "value", style="bold")
            self._has_heading = True
        time = str(record["timestamp"] or "-").removesuffix("Z").replace("T", " ")
        place = f"{record['partition']}@{record['offset']}"
        self._print(time, record["topic"], place, _cell(record["key"]), summary(record))

    def _print(self, time: str, topic: str, place: str, key: str, value: str, style: str = "") -> None:
        of_topic = f"{topic:<{self._topic_width}}  " if self._topic_width else ""
        key = key if len(key) <= KEY_WIDTH else f"{key[: KEY_WIDTH - 1]}\N{HORIZONTAL ELLIPSIS}"
        line = f"{time:<{TIME_WIDTH}}  {of_topic}{place:<{PLACE_WIDTH}}  {key:<{KEY_WIDTH}}  "
        is_narrow = self._console.width - len(line) < MIN_VALUE_WIDTH
        for text in (line.rstrip(), INDENT + value) if is_narrow else (line + value,):
            self._console.print(Text(text, style), no_wrap=True, overflow="ellipsis")


def summary(record: dict[str, Any]) -> str:
    """What a reader looks for first in a record's value, on one line."""
    value = record["value"]
    if "error" in record:
        text = f"can't be decoded: {record['error']}"
    elif isinstance(value, dict) and {"event_id", "outputs"} <= value.keys():  # a prediction
        text = f"{value['event_id']}  {_fields({**value['outputs'], **(value.get('event') or {})})}"
    elif isinstance(value, dict) and {"reason", "error"} <= value.keys():  # a dead letter
        text = f"{value['reason']}: {value['error']}"
    elif isinstance(value, dict):
        text = _fields(value)
    else:
        text = _cell(value)
    return printable(text)[:MAX_VALUE_LENGTH]


def _fields(value: dict[str, Any]) -> str:
    return "  ".join(f"{name}={_cell(each)}" for name, each in value.items())


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list) and all(isinstance(each, float) for each in value):
        return f"[{', '.join(map(_cell, value))}]"
    return printable(value) if isinstance(value, str) else printable_json(value)
