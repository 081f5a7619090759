"""What is read from a child's log; tests/cli has them end with their parents."""

import pytest

from millstream.consumers.supervision.child import told_port


@pytest.mark.parametrize(
    "log",
    [
        "starting\n2026-03-01 12:00:00,000 INFO millstream: serving /metrics, /live and /ready on port 4321\nready\n",
        "serving the lag of group flights at /metrics on port 4321, until Ctrl-C\n",
    ],
)
def test_port_is_what_the_command_says_it_serves_at(log: str) -> None:
    assert told_port(log) == 4321


def test_port_of_something_else_is_none_of_ours() -> None:
    assert told_port("model: connecting to the feature store on port 6379\n") is None
