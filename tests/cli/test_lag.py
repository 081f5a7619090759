"""`millstream lag`: the numbers of a group, counted by hand beside it, before and after a worker."""

from __future__ import annotations

import json
import math
import signal
import socket
import subprocess
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.load import vector_events
from millstream.consumers.cli import lag
from millstream.consumers.cli import main as cli
from millstream.consumers.observability.lag_metrics import LagCollector
from millstream.consumers.supervision.child import MILLSTREAM, reported_port
from millstream.topics.errors import BrokerUnreachableError
from millstream.topics.lag import PartitionLag
from tests.broker.clients import produce, wait_until
from tests.consumers.processes import Worker
from tests.consumers.service import vector_service
from tests.pipeline.pipeline_files import SMALL, load

if TYPE_CHECKING:
    from tests.broker.choice import Broker
    from tests.consumers.service import Service

COUNTS = {0: 30, 1: 20, 3: 5}  # events by partition


def lag_of(service: Service, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert cli.run(["lag", str(service.file), "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


@pytest.mark.durable
def test_lag_is_what_was_sent_and_then_nothing(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = vector_service(tmp_path, kafka)
    load = vector_events(55, seed=31)
    for partition, count in COUNTS.items():
        produce(
            kafka.bootstrap, service.inputs[0], [(b"k", value) for value in load.values[:count]], partition=partition
        )

    before = lag_of(service, capsys)
    assert (before["group"], before["messages"]) == (service.group, 55)
    assert {entry["partition"]: entry["messages"] for entry in before["partitions"]} == {2: 0, **COUNTS}
    assert all((entry["seconds"] > 0) == (entry["messages"] > 0) for entry in before["partitions"])
    assert all(entry["seconds"] < 60 for entry in before["partitions"])
    assert all(round(entry["seconds"], 3) == entry["seconds"] for entry in [before, *before["partitions"]])
    assert {entry["committed"] for entry in before["partitions"]} == {None}

    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0

    after = lag_of(service, capsys)
    assert after["messages"] == 0
    assert {entry["partition"]: entry["committed"] for entry in after["partitions"]} == {2: None, **COUNTS}
    assert {entry["seconds"] for entry in after["partitions"]} == {0}


@pytest.mark.durable
def test_table_has_a_row_for_each_partition_and_the_sum(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = vector_service(tmp_path, kafka)
    produce(kafka.bootstrap, service.inputs[0], [(None, b"v")] * 7, partition=1)
    assert cli.run(["lag", str(service.file)]) == 0
    title, heading, *rows, footer = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert title == ["group", service.group]
    assert heading == ["topic", "partition", "committed", "end", "lag", "lag", "seconds"]
    assert [row[:5] for row in rows] == [
        [service.inputs[0], str(number), "-", *(["7", "7"] if number == 1 else ["0", "0"])] for number in range(4)
    ]
    assert footer[:2] == ["all", "7"]


@pytest.mark.durable
def test_table_shows_what_retention_deleted_unread(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = vector_service(tmp_path, kafka)
    place = TopicPartition(service.inputs[0], 1)
    produce(kafka.bootstrap, place.topic, [(None, b"v")] * 7, partition=1)
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": service.group})) as consumer:
        consumer.commit(offsets=[TopicPartition(place.topic, 1, 2)], asynchronous=False)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_records([TopicPartition(place.topic, 1, 5)])[place].result()
    assert cli.run(["lag", str(service.file)]) == 0
    _, heading, *rows, footer = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert heading[-2:] == ["deleted", "unread"]
    assert [row[-1] for row in rows] == ["0", "3", "0", "0"]
    assert footer[-1] == "3"


@pytest.mark.durable
def test_table_shows_what_an_open_transaction_holds_back(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = vector_service(tmp_path, kafka)
    open_one = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": service.group})
    open_one.init_transactions()
    open_one.begin_transaction()
    for _ in range(3):
        open_one.produce(service.inputs[0], b"v", partition=2)
    assert open_one.flush(30) == 0
    try:
        assert cli.run(["lag", str(service.file)]) == 0
    finally:
        open_one.abort_transaction()
    _, heading, *rows, footer = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert heading[-3:] == ["in", "open", "transactions"]
    assert [row[-1] for row in rows] == ["0", "0", "3", "0"]
    assert (footer[1], footer[-1]) == ("0", "3")


def test_age_of_the_whole_is_unknown_if_that_of_a_partition_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lags = [PartitionLag("in", 0, 9, 9, 9, 0, True, 0.0, 0), PartitionLag("in", 1, 1, 1, 9, 8, False, None, 0)]

    class Known:
        def read(self) -> list[PartitionLag]:
            return lags

        def close(self) -> None: ...

    monkeypatch.setattr("millstream.consumers.cli.lag.reader_of", lambda _pipeline: Known())
    file = tmp_path / "pipeline.yaml"
    file.write_text(SMALL, encoding="utf-8")
    assert cli.run(["lag", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["all", "~8", "?"]
    assert cli.run(["lag", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"] is None


@pytest.mark.durable
def test_watch_writes_a_table_at_each_look_into_a_pipe(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    command = [*MILLSTREAM, "lag", str(service.file), "--watch", "--interval", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        tables = 0
        for line in watching.stdout:  # it would wait here for ever where nothing came before the end
            tables += line.split() == ["group", service.group]
            if tables == 2:
                break
        watching.send_signal(signal.SIGINT)
        assert watching.wait(20) == 0


def test_watch_waits_through_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = BrokerUnreachableError("no Kafka broker answers at 127.0.0.1:1.")
    looks: list[BaseException | list[PartitionLag]] = [[], away, away, [], KeyboardInterrupt()]

    class Reader:
        def read(self) -> list[PartitionLag]:
            found = looks.pop(0)
            if isinstance(found, BaseException):
                raise found
            return found

        def close(self) -> None: ...

    monkeypatch.setattr(lag, "reader_of", lambda _: Reader())
    load(tmp_path, SMALL)
    assert cli.run(["lag", str(tmp_path), "--watch", "--json", "--interval", "0.1"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2
    assert said.err.splitlines() == [f"{away} It goes on once the lag can be read.", "the broker answers again"]


@pytest.mark.parametrize("options", [[], ["--json"], ["--watch"]])
def test_ctrl_c_before_anything_is_shown_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    class Reader:
        def read(self) -> list[PartitionLag]:
            raise KeyboardInterrupt

        def close(self) -> None: ...

    monkeypatch.setattr(lag, "reader_of", lambda _: Reader())
    load(tmp_path, SMALL)
    assert cli.run(["lag", str(tmp_path), *options]) == 1
    assert capsys.readouterr().err == "interrupted\n"


def test_missing_topic_is_told(kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, kafka, with_topics=False)
    assert cli.run(["lag", str(service.file)]) == 1
    said = capsys.readouterr().err
    assert service.inputs[0] in said
    assert "Traceback" not in said


def metrics_of(port: int) -> dict[str, float]:
    """What is served: the name -> the sum over its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    samples: dict[str, float] = {}
    for sample in (sample for family in families for sample in family.samples):
        samples[sample.name] = samples.get(sample.name, 0.0) + sample.value
    return samples


@pytest.mark.durable
@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.full)])
def test_lag_is_served_with_no_worker_alive_under_the_usual_names(
    kafka: Broker, tmp_path: Path, how: signal.Signals
) -> None:
    service = vector_service(tmp_path, kafka)
    for partition, count in COUNTS.items():
        produce(kafka.bootstrap, service.inputs[0], [(b"k", b"v")] * count, partition=partition)
    command = [*MILLSTREAM, "lag", str(service.file)]
    with subprocess.Popen(
        [*command, "--serve", "0", "--interval", "0.2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = reported_port(process.stdout.readline())
            assert port is not None
            wait_until(lambda: "millstream_group_lag_growth" in metrics_of(port), 60, "the second look")
            found = metrics_of(port)
            process.send_signal(how)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert found["millstream_group_lag"] == found["millstream_group_total_lag"] == 55
    assert 0 < found["millstream_group_max_lag_seconds"] < 120
    assert "millstream_group_lag_seconds" in found
    assert found["millstream_group_lag_known"] == 1
    assert found["millstream_group_deleted_events"] == 0
    assert (found["millstream_group_lag_growth"], found["millstream_group_drain_seconds"]) == (0, math.inf)


def test_port_that_is_taken_is_told(kafka: Broker, tmp_path: Path) -> None:
    service = vector_service(tmp_path, kafka)
    command = [*MILLSTREAM, "lag", str(service.file)]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run([*command, "--serve", port], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert f"127.0.0.1:{port}" in line
    assert "--serve" in line


def test_no_lag_is_told_while_the_broker_is_away() -> None:
    """A dashboard shows a gap then, not yesterday's lag."""
    registry = CollectorRegistry()
    registry.register(LagCollector("pipeline", "group", lambda: None))
    labels = {"pipeline": "pipeline", "group": "group"}
    assert registry.get_sample_value("millstream_group_lag_known", labels) == 0
    assert [family.name for family in registry.collect()] == ["millstream_group_lag_known"]


def test_wrong_interval_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["lag", str(tmp_path), "--interval", "0"])
    assert ended.value.code == 2
    assert "expected a number of seconds above 0" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--json", "--watch"])
def test_options_for_printing_are_refused_where_the_lag_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["lag", str(tmp_path), "--serve", "0", option])
    assert ended.value.code == 2
    assert "--json and --watch have no effect" in capsys.readouterr().err
