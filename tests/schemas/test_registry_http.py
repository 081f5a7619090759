"""What a real registry doesn't do: answers without an end, or a byte at a time."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from millstream.schemas.errors import BadSchemaError
from millstream.schemas.registry_http import MAX_RESPONSE_BYTES, NoAnswerError, RegistryHttp

OK = b"HTTP/1.1 200 OK\r\n"
Script = Callable[[socket.socket, threading.Event], None]


class Server:
    """Accepts connections and plays a script on each."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.script: Script = lambda *_: None
        self.requests: list[bytes] = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            if self.over.is_set():
                return connection.close()
            with connection, suppress(OSError):
                connection.settimeout(5)
                self.requests.append(connection.recv(65536))
                self.script(connection, self.over)

    def close(self) -> None:
        self.over.set()
        socket.create_connection(self.socket.getsockname()).close()
        self.thread.join()
        self.socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


def _http(server: Server) -> RegistryHttp:
    return RegistryHttp(server.url, None, None, None)


def _endless(head: bytes, part: bytes) -> Script:
    def script(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head)
        while not over.is_set():
            connection.sendall(part)

    return script


def _dripping(head: bytes, part: bytes) -> Script:
    def script(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(head)
        while not over.wait(0.02):
            connection.sendall(part)

    return script


def _silent(_: socket.socket, over: threading.Event) -> None:
    over.wait()


@pytest.mark.parametrize(
    "script",
    [
        _endless(OK + b"Content-Length: 400000000\r\n\r\n", b"x" * 65536),
        _endless(OK + b"\r\n", b"x" * 65536),
        _endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    ],
    ids=["with its length", "without a length", "chunked"],
)
def test_answer_without_an_end_is_refused(server: Server, script: Script) -> None:
    server.script = script
    with pytest.raises(NoAnswerError, match=f"at most {MAX_RESPONSE_BYTES >> 20} MiB") as caught:
        _http(server).call("GET", "/x")
    assert caught.value.failure == "reject"


@pytest.mark.parametrize("beyond", [0, 1])
def test_answer_is_bounded_to_the_byte(server: Server, beyond: int) -> None:
    size = MAX_RESPONSE_BYTES + beyond
    server.script = lambda connection, _: connection.sendall(OK + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)
    if beyond:
        with pytest.raises(NoAnswerError, match="at most"):
            _http(server).call("GET", "/x")
    else:
        assert len(_http(server).call("GET", "/x").body) == size


def test_headers_without_an_end_are_refused(server: Server) -> None:
    server.script = _endless(OK, b"X-Header: " + b"x" * 60000 + b"\r\n")
    with pytest.raises(NoAnswerError):
        _http(server).call("GET", "/x")


@pytest.mark.parametrize(
    "script",
    [
        _dripping(OK + b"Content-Length: 1000000\r\n\r\n", b"x"),
        _dripping(OK, b"X"),
        _dripping(b"", b"H"),
        _dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        _silent,
    ],
    ids=["body", "headers", "status", "interim answers", "nothing"],
)
def test_answer_a_byte_at_a_time_ends_with_its_time(server: Server, script: Script) -> None:
    """Each byte comes long before the time is over."""
    server.script = script
    with pytest.raises(NoAnswerError) as caught:
        _http(server).call("GET", "/x", seconds=0.3)
    assert caught.value.failure == "wait"


def test_compressed_answer_is_refused(server: Server) -> None:
    server.script = lambda connection, _: connection.sendall(
        OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b"
    )
    with pytest.raises(NoAnswerError, match="without compression"):
        _http(server).call("GET", "/x")
    assert b"accept-encoding: identity\r\n" in server.requests[0].lower()


def test_redirect_is_not_followed(server: Server) -> None:
    server.script = lambda connection, _: connection.sendall(
        b"HTTP/1.1 302 Found\r\nLocation: " + server.url.encode() + b"/elsewhere\r\nContent-Length: 0\r\n\r\n"
    )
    assert _http(server).call("GET", "/x").status == 302
    assert len(server.requests) == 1


def test_connection_that_breaks_is_tried_once_more(server: Server) -> None:
    def script(connection: socket.socket, _: threading.Event) -> None:
        if len(server.requests) > 1:
            connection.sendall(OK + b"Content-Length: 2\r\n\r\n{}")

    server.script = script
    assert _http(server).call("GET", "/x").json() == {}
    assert len(server.requests) == 2


def test_cookies_are_not_kept(server: Server) -> None:
    server.script = lambda connection, _: connection.sendall(
        OK + b"Set-Cookie: a=b\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    )
    http = _http(server)
    http.call("GET", "/x")
    http.call("GET", "/x")
    assert [b"cookie" in request.lower() for request in server.requests] == [False, False]


def test_call_after_one_that_ran_out_of_time_is_answered(server: Server) -> None:
    def script(connection: socket.socket, _: threading.Event) -> None:
        if len(server.requests) > 1:
            connection.sendall(OK + b"Content-Length: 2\r\n\r\n{}")
        else:
            with suppress(OSError):
                connection.recv(1)  # until the other side closes

    server.script = script
    http = _http(server)
    with pytest.raises(NoAnswerError, match=r"no whole answer within 0\.3 s"):
        http.call("GET", "/x", seconds=0.3)
    assert http.call("GET", "/x").json() == {}


def test_registry_that_is_not_there_was_not_reached() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(NoAnswerError) as caught:
            RegistryHttp(f"http://127.0.0.1:{taken.getsockname()[1]}", None, None, None).call("GET", "/x")
    assert caught.value.failure == "wait"


@pytest.mark.parametrize("url", ["registry:8081", "ftp://r", "http://", "http://r:port", "http://[::1"])
def test_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(BadSchemaError, match="check url and ca"):
        RegistryHttp(url, None, None, None)
