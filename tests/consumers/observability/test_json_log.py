"""The log as JSON: objects that any parser reads, and the same log as text."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import msgspec
import pytest

from millstream.consumers.observability.json_log import JsonFormatter, as_text, json_object, without_half_line


def record(message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    caught = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("millstream.worker", logging.WARNING, "file.py", 1, message, arguments, caught)
    made.created = 1767225600.0625
    return made


def parsed(line: str) -> dict[str, Any]:
    """The object on a line, as a strict parser reads it."""
    assert line.isascii()
    assert len(line.splitlines()) == 1
    found: dict[str, Any] = msgspec.json.decode(line)
    return found


def test_record_has_its_time_its_level_its_logger_and_what_is_known_of_the_process() -> None:
    formatter = JsonFormatter()
    formatter.fields.update(pipeline="flights", instance="host-0")
    assert parsed(formatter.format(record("%d events", 3))) == {
        "time": "2026-01-01T00:00:00.062Z",
        "level": "WARNING",
        "logger": "millstream.worker",
        "message": "3 events",
        "pipeline": "flights",
        "instance": "host-0",
    }


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("two\nlines\r\nand\u2028more\x85", None),
        ('"quotes" {"level": "ERROR"} \\ back', None),
        ("é 漢字 😀 \x00\x1b[31m\x7f", None),
        ("half of a character: \ud800", "half of a character: \\ud800"),
    ],
)
def test_hostile_message_is_one_line_that_a_strict_parser_reads(message: str, shown: str | None) -> None:
    formatter = JsonFormatter()
    formatter.fields["pipeline"] = message
    expected = message if shown is None else shown
    found = parsed(formatter.format(record("%s", message)))
    assert (found["message"], found["pipeline"]) == (expected, expected)
    assert parsed(formatter.line(message))["message"] == expected


def test_exception_has_its_type_its_text_and_the_traceback() -> None:
    try:
        raise ValueError("half \ud800\nof a character")
    except ValueError as error:
        found = parsed(JsonFormatter().format(record("failed", error=error)))
    assert found["message"] == "failed"
    assert (found["error"]["type"], found["error"]["message"]) == ("ValueError", "half \\ud800\nof a character")
    assert found["error"]["traceback"].startswith("Traceback (most recent call last):\n")
    assert "test_json_log.py" in found["error"]["traceback"]


def test_record_that_names_no_exception_has_no_error() -> None:
    made = record("fine")
    made.exc_info = sys.exc_info()  # (None, None, None), as of `log.warning(..., exc_info=True)` outside of an `except`
    assert "error" not in parsed(JsonFormatter().format(made))


def test_object_as_text_is_what_the_log_in_text_has() -> None:
    formatter = JsonFormatter()
    assert as_text(formatter.format(record("ready"))) == "2026-01-01 00:00:00.062Z WARNING millstream.worker: ready"
    assert as_text(formatter.line("p.yaml: wrong\np.yaml: more")) == "p.yaml: wrong\np.yaml: more"
    try:
        raise ValueError("wrong")
    except ValueError as error:
        text = as_text(formatter.format(record("failed", error=error)))
    assert text.splitlines()[0].endswith(" WARNING millstream.worker: failed")
    assert text.splitlines()[-1] == "ValueError: wrong"


@pytest.mark.parametrize(
    "line",
    [
        *("", "text", "{", '{"time": "', '{"time": "now"}', '{"level": "INFO"}', '{"time": "' + "[" * 100_000, "[1]"),
        '{"time": "now", "logger": "app", "msg": "of a model"}',
        '{"time": "now", "level": "INFO", "logger": "app", "message": 7}',
        '{"time": "now", "level": "INFO", "logger": "app", "message": "m", "error": "boom"}',
        '{"time": "now", "level": "INFO", "logger": "app", "message": "m", "error": {"traceback": null}}',
    ],
)
def test_any_other_line_stays_as_it_is(line: str) -> None:
    assert as_text(line) == line


def test_only_an_object_is_one() -> None:
    assert json_object(json.dumps({"a": 1})) == {"a": 1}
    assert [json_object(line) for line in ("", "[1]", "1", "text", "[" * 100_000)] == [None] * 5


def test_object_behind_half_a_line_is_a_line_of_its_own() -> None:
    whole = JsonFormatter().format(record("failed"))
    assert without_half_line(f"epoch 1: 50%{whole}") == ["epoch 1: 50%", whole]
    for line in (whole, "text", "", f"half{whole}half", 'half{"time": "now'):
        assert without_half_line(line) == [line]


def test_record_whose_arguments_do_not_fit_is_a_line_all_the_same() -> None:
    made = record("%d of %s", "x")
    made.stack_info = "Stack (most recent call last): ..."
    found = parsed(JsonFormatter().format(made))
    assert found["message"].startswith("%d of %s [its arguments don't fit: ")
    assert found["stack"] == made.stack_info
