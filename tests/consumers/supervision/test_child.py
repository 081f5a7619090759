"""What is read from a child's log; tests/cli has them end with their parents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.consumers.errors import NEEDS_CHANGE
from millstream.consumers.supervision.child import CommandProcess, reported_port

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "log",
    [
        "starting\n2026-03-01 12:00:00,000 INFO millstream: serving /metrics, /live and /ready on port 4321\nready\n",
        "serving the lag of group flights at /metrics on port 4321, until Ctrl-C\n",
    ],
)
def test_port_is_what_the_command_says_it_serves_at(log: str) -> None:
    assert reported_port(log) == 4321


def test_port_of_something_else_is_none_of_ours() -> None:
    assert reported_port("model: connecting to the feature store on port 6379\n") is None


@pytest.mark.process
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_worker_whose_pipeline_is_wrong_ends_with_the_message_that_names_it(tmp_path: Path, log_format: str) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("name: p\nfoo: 1\nbar: 2\n")
    with CommandProcess("work", file, "--log-format", log_format) as worker:
        assert worker.wait(60) == worker.status() == NEEDS_CHANGE
        lines = worker.message().splitlines()
    assert len(lines) >= 2
    assert all(line.startswith(f"    {file}:") for line in lines)
