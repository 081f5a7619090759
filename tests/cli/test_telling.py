"""What a long command tells of its progress where each line stays."""

import json
import logging
import sys

import pytest

from millstream.consumers.cli import telling
from millstream.consumers.cli.telling import Telling
from millstream.consumers.observability.json_log import JsonFormatter


def test_last_line_of_what_is_read_has_the_final_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(telling, "TELL_EVERY", {True: 0.0, False: 0.0})
    told = Telling()
    told.reading("predictions", 5_000)
    told.reading("labels", 1)
    monkeypatch.setattr(telling, "TELL_EVERY", {True: 1e9, False: 1e9})
    told.reading("labels", 199_487)
    told.clear()
    told.clear()
    assert capsys.readouterr().err.splitlines() == ["5,000 predictions read", "1 label read", "199,487 labels read"]


def test_quick_reading_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    told = Telling()
    told.reading("labels", 3)
    told.clear()
    assert capsys.readouterr().err == ""


def test_progress_in_a_log_of_json_is_objects_also_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    monkeypatch.setattr(logging.root, "handlers", [handler])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(telling, "TELL_EVERY", {True: 0.0, False: 0.0})
    told = Telling()
    told.reading("predictions", 5_000)
    told.clear()
    assert [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()] == ["5,000 predictions read"]
