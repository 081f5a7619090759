from __future__ import annotations

import threading
from queue import Empty, SimpleQueue

import pytest

from millstream.consumers.resilience import watchdog
from millstream.consumers.resilience.watchdog import Subject, Watchdog, watch


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "POLL_INTERVAL", 0.01)


def test_call_that_does_not_come_back_is_given_up_by_name() -> None:
    said: SimpleQueue[tuple[str, float]] = SimpleQueue()
    dog = Watchdog(0.05, lambda name, seconds: said.put((name, seconds)))
    assert dog.watched("commit", lambda: said.get(timeout=30)) == ("commit", 0.05)


class Incomparable:
    """Like a dataclass with arrays."""

    def __eq__(self, _other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return "commit"


def test_names_need_not_be_comparable() -> None:
    said = SimpleQueue[str]()
    dog = Watchdog(0.05, lambda name, _: said.put(name))
    for _ in range(20):
        dog.watched(Incomparable(), lambda: threading.Event().wait(0.01))
    assert dog.watched(Incomparable(), lambda: said.get(timeout=30)) == "commit"


def test_calls_that_come_back_are_not_given_up() -> None:
    given_up = threading.Event()
    dog = Watchdog(0.5, lambda *_: given_up.set())
    for _ in range(100):
        assert not dog.watched("commit", lambda: given_up.wait(0.01))  # twice the patience in all


def test_call_may_wait_for_what_is_away_and_is_given_up_once_that_is_back() -> None:
    away, said = threading.Event(), SimpleQueue[str]()
    away.set()
    dog = Watchdog(0.05, lambda name, _: said.put(name), may_wait=away.is_set)

    def hang() -> str:
        with pytest.raises(Empty):
            said.get(timeout=0.5)  # ten times the patience
        away.clear()
        return said.get(timeout=30)

    assert dog.watched("commit", hang) == "commit"


def test_what_a_call_raises_is_raised_and_it_is_watched_no_more() -> None:
    given_up = threading.Event()
    dog = Watchdog(0.05, lambda *_: given_up.set())
    with pytest.raises(ZeroDivisionError):
        dog.watched("commit", lambda: 1 / 0)
    assert not given_up.wait(0.5)


def test_what_stands_still_is_given_up_and_what_moves_or_is_over_is_not() -> None:
    turns, over = iter(range(1_000_000)), threading.Event()
    said: SimpleQueue[str] = SimpleQueue()
    stands: Subject = ("the loop that stands", 1.0)
    watch(lambda: stands, 0.5, lambda name, _: said.put(name))
    watch(lambda: ("the loop that turns", next(turns)), 0.05, lambda name, _: said.put(name))
    watch(lambda: None if over.wait(0) else stands, 0.5, lambda *_: said.put("what is over"))
    over.set()
    assert said.get(timeout=30) == "the loop that stands"
    assert said.empty()
