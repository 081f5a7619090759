import argparse
import importlib
import socket
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry, Gauge

from millstream.consumers.cli.arguments import metrics_host
from millstream.consumers.errors import WorkerError
from millstream.consumers.observability.health import Health, HealthServer

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Health, HealthServer]]:
    health, registry = Health(stall_after=60), CollectorRegistry()
    Gauge("answer", "of all questions", registry=registry).set(42)
    server = HealthServer(health, registry, HOST, 0)
    yield health, server
    server.close()


@pytest.fixture
def health(served: tuple[Health, HealthServer]) -> Health:
    """As it is when a worker starts."""
    served[0].ready, served[0].waiting_for = False, ""
    served[0].turn()
    return served[0]


@pytest.fixture
def server(served: tuple[Health, HealthServer], health: Health) -> HealthServer:  # noqa: ARG001  (as at the start)
    return served[1]


def get(server: HealthServer, path: str) -> tuple[int, str]:
    connection = HTTPConnection(HOST, server.port, timeout=10)
    connection.request("GET", path)
    response = connection.getresponse()
    found = response.status, response.read().decode()
    connection.close()
    return found


def test_worker_that_starts_says_what_it_waits_for(health: Health, server: HealthServer) -> None:
    assert get(server, "/ready") == (503, "not ready: starting\n")
    health.waiting_for = "the model's warm-up"
    assert get(server, "/ready") == (503, "not ready: the model's warm-up\n")


def test_ready_worker_says_so(health: Health, server: HealthServer) -> None:
    health.ready = True
    assert get(server, "/ready") == (200, "ready\n")
    assert get(server, "/ready?verbose=1")[0] == 200


def test_worker_is_live_while_its_loop_turns(server: HealthServer) -> None:
    status, text = get(server, "/live")
    assert status == 200
    assert text.startswith("the worker's loop turned 0.")


def test_stalled_worker_is_not_live_until_its_loop_turns_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("millstream.consumers.observability.health.time.monotonic", lambda: now)
    health = Health(stall_after=60)
    now += 60
    assert health.live() == (False, "the worker's loop turned 60.0 s ago (stalled after 60 s)")
    health.turn()
    assert health.live()[0]


def test_stalled_worker_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("millstream.consumers.observability.health.time.monotonic", lambda: now)
    health = Health(stall_after=60, loop="the comparison job's loop")
    health.ready = True
    now += 60
    said = "the comparison job's loop turned 60.0 s ago (stalled after 60 s)"
    assert health.live() == (False, said)
    assert health.readiness() == (False, f"not ready: {said}")
    health.turn()
    assert health.readiness() == (True, "ready")


def test_loop_that_waits_for_a_broker_that_is_away_is_live(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("millstream.consumers.observability.health.time.monotonic", lambda: now)
    health = Health(stall_after=60)
    health.broker_away = "Kafka at b:9092 does not answer"
    now += 1000
    assert health.live() == (True, "the worker's loop may wait: Kafka at b:9092 does not answer")
    health.broker_answers()
    now += 59
    assert health.live()[0], "only the time since the broker answers counts"
    now += 1
    assert not health.live()[0]


def test_metrics_are_served_in_prometheus_text(server: HealthServer) -> None:
    status, text = get(server, "/metrics")
    assert status == 200
    assert "answer 42.0" in text


def test_unknown_path_lists_the_known_ones(server: HealthServer) -> None:
    assert get(server, "/healthz") == (404, "/metrics, /live or /ready\n")


def test_probes_are_not_logged(server: HealthServer, capfd: pytest.CaptureFixture[str]) -> None:
    get(server, "/live")
    assert capfd.readouterr() == ("", "")


def test_taken_port_is_named_with_what_to_do(health: Health) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WorkerError, match=f"port {HOST}:{port} can't be opened: .*--metrics-port, or 0"):
            HealthServer(health, CollectorRegistry(), HOST, port)


@pytest.mark.parametrize(
    ("command", "option"),
    [("work", "--metrics-port"), ("run", "--metrics-port"), ("compare", "--metrics-port"), ("lag", "--serve")],
)
def test_port_is_open_to_this_machine_only_unless_told_otherwise(command: str, option: str) -> None:
    parser = argparse.ArgumentParser()
    importlib.import_module(f"millstream.consumers.cli.usage.{command}").add_arguments(parser)
    args = parser.parse_args(["pipeline.yaml", option, "0"])
    assert metrics_host(args, 0) == "127.0.0.1"
    args = parser.parse_args(["pipeline.yaml", option, "0", "--metrics-host", "0.0.0.0"])
    assert metrics_host(args, 0) == "0.0.0.0"


def test_closed_server_frees_its_port(health: Health) -> None:
    server = HealthServer(health, CollectorRegistry(), HOST, 0)
    server.close()
    with pytest.raises(ConnectionRefusedError):
        get(server, "/live")
