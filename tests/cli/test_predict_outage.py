"""`millstream predict` while the model's server refuses requests: it waits as a worker does, and keeps what was answered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.cli import main as cli
from tests.broker.choice import Broker
from tests.consumers.service import write_service

pytest.importorskip("jinja2", reason="needs the extra `openai`")

from tests.inference.executors.openai.models import write_config
from tests.inference.executors.openai.server import OpenAIServer, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
TEXTS = ["a+", "b-", "c+", "d-"]
BUSY = {"error": {"message": "slow down"}}


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


@pytest.fixture
def command(tmp_path: Path, server: OpenAIServer) -> list[str]:
    """The command that predicts four events of a file."""
    write_config(tmp_path / "models", server.url)
    sections: dict[str, Any] = {
        "input": {"format": "json", "event_id": "id"},
        "model": {"name": "llm"},
        "output": {"format": "json"},
    }
    service = write_service(tmp_path, NOWHERE, with_topics=False, **sections)
    events = tmp_path / "events.jsonl"
    events.write_text("".join(f"{json.dumps({'id': text[0], 'text': text})}\n" for text in TEXTS), encoding="utf-8")
    return ["predict", str(service.file), str(events), "--json"]


def texts_of(output: str) -> list[str]:
    return [json.loads(line)["outputs"]["text"].strip() for line in output.splitlines()]


@pytest.mark.parametrize("status", [429, 503, 500, 408])
def test_refused_request_is_sent_again(
    command: list[str], server: OpenAIServer, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    server.script += [server.complete, refuse(status, BUSY)]
    assert cli.run(command) == 0
    said = capsys.readouterr()
    assert texts_of(said.out) == ["pos", "neg", "pos", "neg"]
    assert said.err == "4 events predicted, 0 dead letters\n"  # a short wait is not worth a line
    assert len(server.asked) == len(TEXTS) + 1


def test_longer_wait_says_what_it_waits_for(
    command: list[str], server: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.script += [server.complete, refuse(429, BUSY, retry_after_ms="1100")]
    assert cli.run(command) == 0
    said = capsys.readouterr()
    assert texts_of(said.out) == ["pos", "neg", "pos", "neg"]
    assert "has no room (HTTP 429): slow down; waiting for up to 60 s, Ctrl-C ends" in said.err
    assert "it answers again, after 1 s" in said.err
    assert server.asked[2].at - server.asked[1].at >= 1.1


@pytest.mark.parametrize(
    ("headers", "end"),
    [
        ({}, "--timeout is 0.3 s. Run the command again"),
        ({"retry_after": "600"}, "It asks to wait 600 s, and --timeout"),
    ],
    ids=["refuses", "asks for a long wait"],
)
def test_end_keeps_what_was_answered_and_says_what_was_not(
    command: list[str], server: OpenAIServer, capsys: pytest.CaptureFixture[str], headers: dict[str, str], end: str
) -> None:
    server.script += [server.complete, server.complete]
    server.always = refuse(429, BUSY, **headers)
    assert cli.run([*command, "--timeout", "0.3"]) == 1
    said = capsys.readouterr()
    assert texts_of(said.out) == ["pos", "neg"]
    assert f"2 events predicted, 0 dead letters; {command[2]}:3 and all events after it were not run" in said.err
    assert "has no room (HTTP 429): slow down. " in said.err
    assert end in said.err
