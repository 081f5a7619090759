"""Ctrl-C: the first drains, the next one stops at once, and one key press counts once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.resilience import signals
from millstream.consumers.resilience.signals import SAME_KEY_PRESS, end_on_sigterm, stop_on_signals
from tests.consumers.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def handlers_come_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_second_ctrl_c_stops_at_once_but_one_that_a_launcher_repeats_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, signals)
    seen: list[tuple[str, str]] = []
    stop_on_signals(lambda name: seen.append(("drain", name)), lambda name: seen.append(("at once", name)))
    signal.raise_signal(signal.SIGINT)
    clock.now += SAME_KEY_PRESS / 2
    signal.raise_signal(signal.SIGINT)
    assert seen == [("drain", "Ctrl-C")]
    clock.now += SAME_KEY_PRESS
    signal.raise_signal(signal.SIGINT)
    assert seen == [("drain", "Ctrl-C"), ("at once", "Ctrl-C")]


def test_second_sigterm_stops_at_once() -> None:
    seen: list[tuple[str, str]] = []
    stop_on_signals(lambda name: seen.append(("drain", name)), lambda name: seen.append(("at once", name)))
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert seen == [("drain", "SIGTERM"), ("at once", "SIGTERM")]


def test_sigterm_ends_the_first_process_of_a_container_before_the_worker_is_there() -> None:
    program = (
        "from threading import Event\n"
        "from millstream.consumers.resilience.signals import end_on_sigterm\n"
        "end_on_sigterm()\n"
        "print('ready', flush=True)\n"
        "Event().wait()"
    )
    container = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-P", "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert container.stdout is not None
        if not container.stdout.readline():
            pytest.skip("this user may not make a namespace of processes")
        children = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text()
        os.kill(int(children), signal.SIGTERM)
        assert container.wait(10) == 0
    finally:
        container.kill()
        container.communicate()


def test_sigterm_keeps_its_meaning_in_other_processes() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_on_sigterm()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
