"""A clock in place of a module's own `time`: for that module only, as other threads go by the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    import pytest


class Clock:
    """One time for all that a module may ask; it goes on by `step` seconds each time that it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, now: float = 1000.0) -> None:
        self.now = now
        self.step = 0.0
        self.slept: list[float] = []
        monkeypatch.setattr(module, "time", self)

    def monotonic(self) -> float:
        self.now += self.step
        return self.now

    time = perf_counter = monotonic

    def time_ns(self) -> int:
        return round(self.monotonic() * 1000) * 1_000_000

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
