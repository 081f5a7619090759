"""Free ports for a broker."""

import random
import socket
from pathlib import Path

# Below 32768 lie no ephemeral ports on Linux, so no client's connection can take one between the check
# here and the broker's start.
_FIRST, _LAST = 20_000, 32_000
_SOCKETS = Path("/proc/net")  # Linux
_LISTENING = "0A"


def free_ports(count: int) -> list[int]:
    """Distinct ports of 127.0.0.1 that nobody listens on."""
    found: list[int] = []
    for port in random.sample(range(_FIRST, _LAST), k=500):
        if _is_free(port):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"Found {len(found)} free ports between {_FIRST} and {_LAST}, needed {count}.")


def is_listening(port: int) -> bool:
    """Whether a program listens on this port of the machine. True where the system doesn't tell."""
    try:
        lines = [line for name in ("tcp", "tcp6") for line in (_SOCKETS / name).read_text().splitlines()[1:]]
    except OSError:
        return True
    fields = (line.split() for line in lines)
    return any(local.endswith(f":{port:04X}") and state == _LISTENING for _, local, _, state, *_ in fields)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
