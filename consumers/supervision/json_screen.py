"""The output of `millstream run --log-format json`."""

import logging

from rich.console import Console

from millstream.consumers.observability.json_log import JsonFormatter, json_object
from millstream.consumers.supervision.run_screen import Screen


class JsonScreen(Screen):
    """Prints what happens as JSON objects, and the objects of the workers as they are."""

    def __init__(self, console: Console, formatter: JsonFormatter, *, log_level: str, instance_id_prefix: str) -> None:
        super().__init__(console, plain=True, log_level=log_level)
        self._formatter = formatter
        self._prefix = instance_id_prefix

    def _print_status(self, text: str) -> None:
        self._print(self._formatter.line(text))

    def say(self, sentence: str, level: int = logging.INFO) -> None:
        """See `Screen`."""
        self._print(self._formatter.line(sentence, level))

    def _print_log(self, number: int, line: str) -> None:
        """Print a worker's line. A line that is no object comes from a model or a library, or from Python while it crashes."""
        if json_object(line) is None:
            line = self._formatter.line(line, logging.WARNING, instance=f"{self._prefix}-{number}")
        self._print(line)
