"""`millstream broker` on a machine without Java; tests/harness/test_broker.py has the real broker."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import COMMAND, ENVIRON, millstream

WITHOUT_JAVA = {**ENVIRON, "PATH": "/nowhere"}


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [COMMAND, "broker", "--cache", str(tmp_path / "cache")]
    with subprocess.Popen(command, env=WITHOUT_JAVA, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_embedded_broker_serves_a_pipeline_of_ones_own(embedded: "subprocess.Popen[str]", tmp_path: Path) -> None:
    assert embedded.stdout is not None
    said = "".join(iter(embedded.stdout.readline, "Ctrl-C ends it.\n"))
    assert "when it ends, all topics and offsets are lost" in said
    assert "Apache Kafka can't run here: java is not installed." in said
    bootstrap = re.search(r"^ *export KAFKA_BOOTSTRAP=(\S+)$", said, re.MULTILINE)
    assert bootstrap is not None
    folder = tmp_path / "mine"
    assert millstream("init", folder).returncode == 0
    file = folder / "pipeline.yaml"
    file.write_text(file.read_text().replace("${KAFKA_BOOTSTRAP:-127.0.0.1:9092}", bootstrap[1]))
    made = millstream("topics", "create", folder, "--partitions", "3")
    assert made.returncode == 0, made.stderr
    assert made.stdout.count("created, but not with 3 partitions") == 3
    assert "20 events written" in millstream("produce", folder, folder / "events.jsonl").stdout
    assert millstream("work", folder, "--until-idle").returncode == 0
    read = millstream("tail", folder, "--from-beginning", "--limit", "20", "--timeout", "20")
    assert len(read.stdout.splitlines()) == 20
    embedded.send_signal(signal.SIGINT)
    assert embedded.wait(20) == 0


@pytest.mark.parametrize("options", [["--port", "9092"], ["--run", "true"]], ids=str)
def test_what_needs_a_real_broker_is_refused_without_java(tmp_path: Path, options: list[str]) -> None:
    done = subprocess.run(
        [COMMAND, "broker", "--cache", str(tmp_path), *options],
        env=WITHOUT_JAVA,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{options[0]}")
    assert "Apache Kafka can't run here: java is not installed. Install Java 17 and Maven" in done.stderr
