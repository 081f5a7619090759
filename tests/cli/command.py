"""Runs the `millstream` command as users do."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.consumers.cli import main as cli
from millstream.consumers.demo.example import example_folder
from tests.conftest import MakeTopic

COMMAND = str(Path(sys.executable).with_name("millstream"))
ENVIRON = {name: value for name, value in os.environ.items() if name != "KAFKA_BOOTSTRAP"}


def millstream(*arguments: str | Path, stdin: bytes = b"", timeout: float = 60) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end, `timeout` seconds at most."""
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], input=stdin, capture_output=True, timeout=timeout, env=ENVIRON, check=False
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def millstream_here(*arguments: str | Path, stdin: bytes = b"") -> "subprocess.CompletedProcess[str]":
    """Run the command in this process: starting one takes longer than most commands. It must end by itself."""
    written, said = io.BytesIO(), io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KAFKA_BOOTSTRAP", raising=False)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin)), "utf-8"))
        patch.setattr(sys, "stdout", out := io.TextIOWrapper(written, "utf-8"))
        patch.setattr(sys, "stderr", err := io.TextIOWrapper(said, "utf-8"))
        code = cli.run([*map(str, arguments)])
        out.flush()
        err.flush()
    return subprocess.CompletedProcess(arguments, code, written.getvalue().decode(), said.getvalue().decode())


def flights_pipeline(folder: Path, bootstrap: str, make_topic: MakeTopic) -> dict[str, str]:
    """Write `folder`/pipeline.yaml: the flights with topics of their own; returns role -> topic."""
    example = example_folder()
    topics = {role: make_topic() for role in ("flights-departures", "flights-predictions", "flights-dead-letters")}
    text = (example / "pipeline.yaml").read_text().replace("${KAFKA_BOOTSTRAP:-127.0.0.1:9092}", bootstrap)
    for name, topic in topics.items():
        text = text.replace(name, topic)
    text = text.replace("directory: schemas", f"directory: {example / 'schemas'}")
    text = text.replace("repository: models", f"repository: {example / 'models'}")
    (folder / "pipeline.yaml").write_text(text)
    return {role.removeprefix("flights-"): topic for role, topic in topics.items()}
