"""`millstream work`: what keeps a worker from starting, and where it may be started from."""

from __future__ import annotations

import argparse
import socket
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Consumer

from benchmarks.load import vector_events
from millstream.consumers.cli import main
from millstream.consumers.cli.usage import run, work
from millstream.consumers.supervision.child import MILLSTREAM
from tests.broker.choice import Broker
from tests.broker.clients import create_topic, produce, wait_until
from tests.consumers.processes import Worker
from tests.consumers.service import VECTOR_INPUT, id_of, vector_service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from tests.consumers.service import Service

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")


@pytest.mark.durable
def test_missing_topics_are_told_in_one_message(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka, with_topics=False)
    with Worker(service.file, "--log-level", "error") as worker:
        assert worker.wait() == 1
        [message] = worker.log.splitlines()
    assert f"{service.inputs[0]} (input)" in message
    assert "millstream topics create" in message


@pytest.mark.parametrize(
    ("command", "port"), [("work", "--metrics-port"), ("run", "--metrics-port"), ("lag", "--serve")]
)
def test_address_without_a_port_is_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, port: str
) -> None:
    """Probes would find nothing there, and nobody would say why."""
    file = tmp_path / "pipeline.yaml"
    with pytest.raises(SystemExit) as ended:
        main.run([command, str(file), "--metrics-host", "0.0.0.0"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"usage: millstream {command} ")
    assert f"--metrics-host 0.0.0.0: nothing is served without a port. Add {port} PORT." in said


def test_unknown_choice_of_native_parts_is_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_NATIVE", "no")
    assert main.run(["work", str(tmp_path)]) == 2
    assert "MILLSTREAM_NATIVE: expected one of on, off, try; found 'no'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "former", "name"),
    [(work, "--slot", "--instance-id"), (run, "--slots", "--instance-id-prefix")],
    ids=["work", "run"],
)
def test_option_under_its_former_name_works_with_a_warning(
    capsys: pytest.CaptureFixture[str], command: ModuleType, former: str, name: str
) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    present = parser.parse_args(["pipeline", name, "w0"])
    assert capsys.readouterr().err == ""
    assert parser.parse_args(["pipeline", former, "w0"]) == present
    assert capsys.readouterr().err == f"{former} is now {name}; the former name works in this version only\n"
    assert f"{former} " not in parser.format_help()


def test_taken_metrics_port_is_told_in_one_message(tmp_path: Path) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with Worker(service.file, "--metrics-port", str(port)) as worker:  # the later option counts
            assert worker.wait() == 1
            [message] = worker.log.splitlines()
    assert f"the metrics port 127.0.0.1:{port} can't be opened: Address already in use. Choose" in message
    assert "--metrics-port" in message


@pytest.mark.durable
def test_session_timeout_that_the_broker_refuses_ends_the_worker(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    client = {"bootstrap": kafka.bootstrap, "client": {"session.timeout.ms": 100}}
    with Worker(edited(service, kafka=client), "--log-level", "error") as worker:
        assert worker.wait() == 1
        [message] = worker.log.splitlines()
    assert "Write a `session.timeout.ms` under `kafka.client`" in message


def test_worker_runs_from_a_folder_with_packages_of_our_names(kafka: Broker, tmp_path: Path) -> None:
    for name in ("schemas", "topics", "consumers", "inference"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n", encoding="utf-8")
    service = vector_service(tmp_path, kafka)
    load = vector_events(500, seed=37)
    with Worker(service.file, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}) as worker:
        worker.wait_ready()
        produce(kafka.bootstrap, service.inputs[0], zip(load.keys, load.values, strict=True))
        service.wait_written(500)
        assert worker.stop() == 0
    assert sorted(map(id_of, service.predictions())) == [f"event-{number:010d}" for number in range(500)]


@contextmanager
def member(service: Service, group: str, client_id: str, *topics: str) -> Iterator[None]:
    """Something in the group that has partitions of these topics."""
    settings = {
        "bootstrap.servers": service.bootstrap,
        "group.id": group,
        "client.id": client_id,
        "partition.assignment.strategy": "cooperative-sticky",
    }
    consumer = Consumer(settings)
    consumer.subscribe(list(topics))

    def reads_all() -> bool:
        consumer.poll(0.1)
        return {place.topic for place in consumer.assignment()} == set(topics)

    try:
        wait_until(reads_all, 60, "the other member's assignment")
        yield
    finally:
        consumer.close()


@pytest.mark.durable
@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.full)])
def test_group_in_which_something_reads_other_topics_is_refused(kafka: Broker, tmp_path: Path, protocol: str) -> None:
    service = vector_service(tmp_path, kafka, membership={"protocol": protocol})
    other = f"{service.group}-other"
    create_topic(kafka.bootstrap, other, 1, {})
    # Also where it has the pipeline's own name, as a copy of its file for another environment would.
    for client_id in ("stranger", f"millstream-{service.group}"):
        with member(service, service.group, client_id, other), Worker(service.file, "--log-level", "error") as worker:
            assert worker.wait() == 1
            [message] = worker.log.splitlines()
        assert f"group {service.group} is in use by something else: its member {client_id}" in message
        assert f"reads {other}, which is no input of pipeline.yaml" in message
        assert "write `group: NAME` into pipeline.yaml" in message


@pytest.mark.durable
def test_group_of_another_pipeline_over_the_same_topics_is_refused(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each would answer a part of the events. `check` says so before a worker starts."""
    service = vector_service(tmp_path, kafka)
    another = edited(service, name="another", group=service.group)
    with Worker(service.file) as first:
        first.wait_ready()
        with Worker(another, "--log-level", "error") as second:
            assert second.wait() == 1
            [message] = second.log.splitlines()
        assert main.run(["check", str(service.file)]) == 0
        assert main.run(["check", str(another)]) == 1
        assert first.stop() == 0
    assert capsys.readouterr().err == f"{message}\n"
    assert f"its member millstream-{service.group}" in message
    assert f"works for the pipeline {service.group}. Stop that" in message


@pytest.mark.durable
def test_worker_joins_those_of_its_pipeline_from_before_an_input_was_taken_away(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka, inputs=2)
    fewer = edited(service, input={**VECTOR_INPUT, "topics": [service.inputs[0]]})
    with Worker(service.file) as before:
        before.wait_ready()
        with Worker(fewer) as after:
            after.wait_ready()
            assert after.stop() == 0
        assert before.stop() == 0


def edited(service: Service, **sections: Any) -> Path:
    """A copy of the pipeline file with other sections."""
    document = yaml.safe_load(service.file.read_text(encoding="utf-8"))
    file = service.file.with_name("edited.yaml")
    file.write_text(yaml.safe_dump(document | sections, sort_keys=False), encoding="utf-8")
    return file


def test_command_in_the_log_works_in_any_folder(kafka: Broker, tmp_path: Path) -> None:
    """Whoever reads the log isn't in the folder where the worker was started."""
    service = vector_service(tmp_path, kafka)
    produce(kafka.bootstrap, service.inputs[0], [(b"k", b"junk")] * 30)  # so many that the worker logs an error
    done = subprocess.run(
        [*MILLSTREAM, "work", ".", "--until-idle"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert f"look at the dead letters: millstream dead-letters list {service.file}\n" in done.stderr
    assert f"List them: millstream dead-letters list {service.file}. " in done.stderr
