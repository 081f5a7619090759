"""What commands without a log say of a broker that is away: one message, and none of the Kafka client's own lines."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from millstream.consumers.demo.example import example_folder
from millstream.consumers.supervision.child import MILLSTREAM
from millstream.topics.embedded import EmbeddedBroker
from millstream.topics.local.ports import free_ports
from tests.broker.clients import produce
from tests.cli.command import ENVIRON, millstream

COMMANDS = (["lag"], ["run"], ["work"], ["tail"], ["dead-letters", "list"])

SAYING = (["run"], ["work"])
"""Those that say soon that they wait."""


def test_broker_that_is_away_is_one_message(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    write_pipeline(tmp_path, address)
    with ThreadPoolExecutor(len(COMMANDS)) as at_once:  # each waits for 10 s
        ended = list(at_once.map(lambda command: millstream(*command, tmp_path), COMMANDS))
    for command, done in zip(COMMANDS, ended, strict=True):
        assert done.returncode == 1, command
        *before, line = done.stderr.splitlines()
        said = [
            line.partition(f"Kafka at {address} does not answer; waiting for up to 10 s, Ctrl-C ends (")
            for line in before
        ]
        assert [bool(found) for _, found, _ in said] == [True] * (command in SAYING), command
        assert line.startswith(f"no Kafka broker answers at {address} (")
        assert "Nothing listens there. Start a broker (`millstream broker`), or correct `kafka.bootstrap`" in line


def test_tail_says_once_that_it_waits_for_a_broker_that_went_away(tmp_path: Path) -> None:
    with EmbeddedBroker(["flights-departures"]) as broker:
        address = broker.bootstrap
        write_pipeline(tmp_path, address)
        produce(address, "flights-departures", [(b"a", b"{}")])
        tail = subprocess.Popen(
            [*MILLSTREAM, "tail", str(tmp_path), "--topic", "input", "--from-beginning", "--timeout", "4"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRON,
        )
        assert tail.stdout is not None
        assert "flights-departures" in tail.stdout.readline()
    with tail:
        _, said = tail.communicate(timeout=30)
    assert said.splitlines() == [
        "reading flights-departures; ends after 4 s without a record; Ctrl-C ends",
        f"no broker answers at {address}: waiting for one",
    ]


def write_pipeline(folder: Path, bootstrap: str) -> None:
    example = example_folder()
    text = (example / "pipeline.yaml").read_text().replace("${KAFKA_BOOTSTRAP:-127.0.0.1:9092}", bootstrap)
    (folder / "pipeline.yaml").write_text(text.replace("directory: schemas", f"directory: {example / 'schemas'}"))
