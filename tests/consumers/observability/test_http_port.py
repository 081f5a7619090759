"""Whoever reaches the port of probes and metrics can't exhaust it."""

import asyncio
import errno
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.registry import Collector

from millstream.consumers.errors import WorkerError
from millstream.consumers.observability import http_port
from millstream.consumers.observability.health import Health, HealthServer

HOST = "127.0.0.1"
IDLE = 2000
# As many descriptors as a process has by default.
SERVER = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
from prometheus_client import CollectorRegistry
from millstream.consumers.observability.health import Health, HealthServer
print(HealthServer(Health(60), CollectorRegistry(), {HOST!r}, 0).port, flush=True)
sys.stdin.read()
"""


def status_of(port: int, path: str, headers: dict[str, str] | None = None) -> int:
    connection = HTTPConnection(HOST, port, timeout=3)  # as the kubelet waits in our manifests
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * IDLE:
        pytest.skip(f"needs {2 * IDLE} descriptors, the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * IDLE), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_probe_is_answered_while_2000_idle_connections_are_tried() -> None:
    command = [sys.executable, "-c", SERVER]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
        ExitStack() as idle,
    ):
        assert server.stdout is not None
        port = int(server.stdout.readline())
        for number in range(IDLE):
            idle.enter_context(socket.create_connection((HOST, port)))
            if number % 500 == 0:
                assert status_of(port, "/live") == 200
        assert status_of(port, "/live") == 200
        assert status_of(port, "/metrics") == 200
        assert server.stdin is not None
        server.stdin.close()


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server that has two connections at most, for a short time."""
    monkeypatch.setattr(http_port, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(http_port, "CONNECTION_TIMEOUT", 0.2)
    server = HealthServer(Health(60), CollectorRegistry(), HOST, 0)
    yield server.port
    server.close()


def test_oldest_connection_goes_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(http_port, "CONNECTION_TIMEOUT", 60.0)
    oldest, other = socket.create_connection((HOST, port)), socket.create_connection((HOST, port))
    with oldest, other:
        assert status_of(port, "/live") == 200
        oldest.settimeout(5)
        assert oldest.recv(1) == b""
        other.sendall(b"GET /live HTTP/1.0\r\n\r\n")
        assert other.recv(12) == b"HTTP/1.1 200"


def test_request_that_comes_byte_by_byte_is_cut_off(port: int) -> None:
    with socket.create_connection((HOST, port), timeout=0.02) as slow:
        for _ in range(1000):
            try:
                slow.sendall(b"x")
                if slow.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
    pytest.fail("the server still listens to it")


@pytest.mark.parametrize(("length", "status"), [(16_000, 200), (17_000, 431)])
def test_head_that_is_too_long_is_refused(port: int, length: int, status: int) -> None:
    assert status_of(port, "/live", {"padding": "x" * length}) == status


def test_head_without_end_is_not_kept(port: int) -> None:
    with socket.create_connection((HOST, port), timeout=5) as endless, pytest.raises(ConnectionError):
        for _ in range(1000):
            endless.sendall(b"x" * 100_000)


def test_client_that_does_not_read_its_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_port, "CONNECTION_TIMEOUT", 0.2)
    registry = CollectorRegistry()
    Gauge("large", "x" * 30_000_000, registry=registry)  # more than the kernel holds
    server = HealthServer(Health(60), registry, HOST, 0)
    with socket.create_connection((HOST, server.port)) as deaf:
        deaf.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        for _ in range(1000):
            try:
                deaf.sendall(b"x")
            except ConnectionError:
                break
            time.sleep(0.005)
        else:
            pytest.fail("the server still waits for it")
    server.close()


def test_answer_that_fails_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Collector):
        def collect(self) -> Iterator[Metric]:
            raise ValueError("no lag yet")

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Failing())
    server = HealthServer(Health(60), registry, HOST, 0)
    assert status_of(server.port, "/metrics") == 500
    assert status_of(server.port, "/live") == 200
    assert caplog.messages == ["a request for probes or metrics failed: ValueError: no lag yet"]
    server.close()


def test_thread_that_can_not_serve_is_one_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(asyncio, "start_server", refuse)
    with pytest.raises(WorkerError, match=r"port \d+ of 127\.0\.0\.1, .*OSError: .*Too many open files"):
        HealthServer(Health(60), CollectorRegistry(), HOST, 0)


def test_client_that_goes_is_not_logged(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    for sent in (b"", b"GET", b"\0\n\n", b"GET /live HTTP/9.9\r\n\r\n", b"FETCH /live HTTP/1.0\r\n\r\n"):
        with socket.create_connection((HOST, port)) as client:
            client.sendall(sent)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closes with a reset
    assert status_of(port, "/live") == 200
    assert capfd.readouterr() == ("", "")


def test_port_that_closes_under_connections_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    server = HealthServer(Health(60), CollectorRegistry(), HOST, 0)
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection((HOST, server.port), timeout=5))
        assert status_of(server.port, "/live") == 200  # so the others were accepted
        server.close()
    assert [record.getMessage() for record in caplog.records] == []
