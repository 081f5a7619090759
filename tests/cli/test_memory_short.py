"""Commands that can't get the memory to go on say so in one message, and with exit code 1."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NoReturn

import pytest

from millstream.consumers.cli import main as cli
from millstream.schemas import column_buffers
from tests.broker.choice import Broker
from tests.consumers.python_service import python_service

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
NOTHING_LOST = "Nothing is lost: the events since the last commit are read again."
ERRORS = [MemoryError("Unable to allocate 1.00 EiB"), OSError(errno.ENOMEM, "Cannot allocate memory")]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("name", "action", "tells_kept"), [("run", (), True), ("topics", ("show",), False)])
def test_command_without_memory_ends_with_one_message(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    name: str,
    action: tuple[str, ...],
    tells_kept: bool,
) -> None:
    def short(_args: object) -> NoReturn:
        raise error

    monkeypatch.setattr(f"millstream.consumers.cli.{name}.read_pipeline", short)
    assert cli.run([name, *action, "pipeline.yaml"]) == 1
    [said] = capsys.readouterr().err.splitlines()
    assert said.startswith(f"Memory ran short while `millstream {name}` ran ({error}), so it ends.")
    assert (NOTHING_LOST in said) == tells_kept
    assert "lower `batch.max_events` and `limits.in_flight_bytes`" in said


def test_predict_without_memory_says_which_events_it_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = python_service(tmp_path, NOWHERE, "return {'y': -inputs['x']}", with_topics=False)
    events = tmp_path / "events.jsonl"
    events.write_text('{"id": "a", "x": 1}\n{"id": "b", "x": 2}\n')
    monkeypatch.setattr(column_buffers, "KEPT", 2**60)  # the least size of a buffer
    monkeypatch.setattr(column_buffers, "SPARE", [])
    assert cli.run(["predict", str(service.file), str(events)]) == 1
    undone, said = capsys.readouterr().err.splitlines()
    assert undone == f"0 events predicted, 0 dead letters; {events}:1 and all events after it were not run"
    assert said.startswith("Memory ran short while `millstream predict` ran (Unable to allocate ")
