"""`millstream broker` on a machine without Java; tests/harness/test_broker.py has the real broker."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.consumers.cli import main as cli
from millstream.consumers.cli.broker import FETCHING, STARTING
from millstream.topics.errors import BrokerError
from millstream.topics.local.data_folder import lock
from millstream.topics.local.kafka import LocalKafka
from millstream.topics.local.kafka_jars import kafka_jars
from tests.broker.maven import CACHE, missing_for_maven
from tests.cli.command import COMMAND, ENVIRON, millstream
from tests.topics.local.test_data_folder import keep

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


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--port", "9092", "--run", "true"], "--port 9092: with --run, the broker takes a free port. Leave out one"),
        (["--data", "kept", "--run", "true"], "--data kept: with --run, its data is temporary. Leave out one"),
        (["--run"], "--run: expected a command behind it, for example: --run millstream demo"),
    ],
    ids=str,
)
def test_options_that_exclude_one_another_are_wrong_use(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["broker", *options])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: millstream broker ")
    assert told in said


@pytest.mark.durable
def test_taken_port_is_one_message_that_says_what_to_do() -> None:
    if (missing := missing_for_maven()) is not None:
        pytest.skip(f"no broker of its own: {missing}")
    kafka_jars(CACHE)  # nothing is left to download
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = millstream("broker", "--port", str(port), "--cache", CACHE, timeout=120)
    assert (done.returncode, done.stdout) == (1, f"{STARTING}\n")
    assert done.stderr == (
        f"port {port} is taken: another program listens there, perhaps a broker. Use that one, end it, or choose another port: "
        "millstream broker --port PORT\n"
    )


def test_download_is_announced_where_it_is_due(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in (("java", """echo 'openjdk version "17.0.1"' >&2"""), ("mvn", "echo offline; exit 1")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        [COMMAND, "broker", "--cache", str(tmp_path / "cache")],
        env={**ENVIRON, "PATH": str(programs)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, f"{FETCHING}\n")
    assert done.stderr.startswith("Maven could not fetch Apache Kafka")


@pytest.mark.durable
def test_data_folder_in_use_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    if (missing := missing_for_maven()) is not None:
        pytest.skip(f"no broker of its own: {missing}")
    folder = keep(tmp_path / "kept", "abc")
    for name in ("broker.log", "server.properties"):
        (folder / name).write_text("of the first broker")
    first = lock(folder)
    try:
        with pytest.raises(BrokerError, match="another broker uses this data folder"):
            LocalKafka(CACHE, data=folder).start()
    finally:
        os.close(first)
    assert {(folder / name).read_text() for name in ("broker.log", "server.properties")} == {"of the first broker"}


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
