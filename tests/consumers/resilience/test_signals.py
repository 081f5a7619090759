"""Ctrl-C: the first drains, the next one stops at once, and one key press counts once."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.resilience import signals
from millstream.consumers.resilience.signals import SAME_SIGNAL, STOPPING, stop_on_signals
from tests.consumers.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def handlers_come_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOPPING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")]
)
def test_second_signal_stops_at_once_but_one_that_a_launcher_repeats_does_not(
    monkeypatch: pytest.MonkeyPatch, number: int, name: str
) -> None:
    clock = Clock(monkeypatch, signals)
    seen: list[tuple[str, str]] = []
    stop_on_signals(lambda name: seen.append(("drain", name)), lambda name: seen.append(("at once", name)))
    signal.raise_signal(number)
    clock.now += SAME_SIGNAL / 2
    signal.raise_signal(number)
    assert seen == [("drain", name)]
    clock.now += SAME_SIGNAL
    signal.raise_signal(number)
    assert seen == [("drain", name), ("at once", name)]


def test_another_signal_counts_at_once() -> None:
    seen: list[str] = []
    stop_on_signals(lambda name: seen.append(f"drain: {name}"), lambda name: seen.append(f"at once: {name}"))
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    assert seen == ["drain: Ctrl-C", "at once: SIGTERM"]


def test_closed_terminal_is_ignored_as_nohup_asked() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    seen: list[str] = []
    stop_on_signals(seen.append, seen.append)
    signal.raise_signal(signal.SIGHUP)
    assert seen == []
