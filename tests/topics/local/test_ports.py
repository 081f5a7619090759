import socket
from pathlib import Path

import pytest

from millstream.topics.local.ports import free_ports, is_listening


@pytest.mark.skipif(not Path("/proc/net").exists(), reason="only Linux tells")
@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::")]
)
def test_port_listens_from_listen_to_close(family: socket.AddressFamily, host: str) -> None:
    (port,) = free_ports(1)
    with socket.socket(family) as server:
        server.bind((host, port))
        assert not is_listening(port)
        server.listen()
        assert is_listening(port)
    assert not is_listening(port)


@pytest.mark.skipif(not Path("/proc/net").exists(), reason="only Linux tells")
def test_connection_to_itself_is_no_listener() -> None:
    (port,) = free_ports(1)
    with socket.socket() as client:
        client.bind(("127.0.0.1", port))
        client.connect(("127.0.0.1", port))
        assert not is_listening(port)
