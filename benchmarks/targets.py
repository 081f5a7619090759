"""What Millstream promises of its speed, held against a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.peers.known import (
    FAUST,
    FRAMEWORKS,
    HANDWRITTEN,
    HANDWRITTEN_EXACTLY_ONCE,
    JAVA,
    OURS,
    OURS_EXACTLY_ONCE,
    OURS_TWO_WORKERS,
    RUST,
)

Report = Mapping[str, Any]
"""As `run.py` writes it to bench.json."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise: `found` against `limit`."""

    promise: str
    found: float | None  # None: a peer or workload that it needs is not in the report
    limit: float
    at_least: bool  # the limit is a lower one

    @property
    def met(self) -> bool | None:
        """Whether it is kept; None where that is not known."""
        if self.found is None:
            return None
        return self.found >= self.limit if self.at_least else self.found <= self.limit

    @property
    def margin(self) -> float | None:
        """How far on the good side of the limit, as a part of it; negative on the bad side."""
        if self.found is None:
            return None
        return (self.found / self.limit - 1) * (1 if self.at_least else -1)


def verdicts(report: Report) -> list[Verdict]:
    """All promises, in the order of the list below."""
    see = _Seen(report)
    return [Verdict(promise, _number(find, see), limit, at_least) for promise, find, limit, at_least in _PROMISES]


def figure(workload: Mapping[str, Any], peer: str, name: str) -> float:
    """The median over the rounds of a peer's figure. Raises KeyError where the peer was left out."""
    return float(median(run[name] for run in workload["peers"][peer]["runs"]))


class _Seen:
    """Looks figures up in a report."""

    def __init__(self, report: Report) -> None:
        self._workloads = {workload["name"]: workload for workload in report["workloads"]}

    def cpu(self, peer: str) -> float:
        return figure(self._workloads["vector"], peer, "cpu_us")

    def rate(self, peer: str, workload: str = "vector") -> float:
        return figure(self._workloads[workload], peer, "rate")

    def most(self, peer: str, name: str) -> float:
        return float(max(run[name] for run in self._workloads["vector"]["peers"][peer]["runs"]))

    def p99(self, peer: str) -> float:
        return float(self._workloads["vector"]["peers"][peer]["latency"]["p99"])

    def limit(self, name: str, workload: str = "vector") -> float:
        return float(self._workloads[workload]["limits"][name])

    def raw(self) -> float:
        return sum(self.limit(name) for name in ("consume_us", "produce_us", "infer_us"))


_PROMISES: list[tuple[str, Callable[[_Seen], float], float, bool]] = [
    (
        "CPU an event, exactly once / hand-written",
        lambda s: s.cpu(OURS_EXACTLY_ONCE) / s.cpu(HANDWRITTEN),
        1 / 3,
        False,
    ),
    ("CPU an event, exactly once / raw limits' sum", lambda s: s.cpu(OURS_EXACTLY_ONCE) / s.raw(), 1.5, False),
    ("CPU an event, exactly once / Java", lambda s: s.cpu(OURS_EXACTLY_ONCE) / s.cpu(JAVA), 1, False),
    ("CPU an event, exactly once / Rust", lambda s: s.cpu(OURS_EXACTLY_ONCE) / s.cpu(RUST), 2.5, False),
    ("CPU an event, exactly once / at least once", lambda s: s.cpu(OURS_EXACTLY_ONCE) / s.cpu(OURS), 1.25, False),
    ("events/s, exactly once / Java", lambda s: s.rate(OURS_EXACTLY_ONCE) / s.rate(JAVA), 1, True),
    ("events/s, exactly once, two workers / Java", lambda s: s.rate(OURS_TWO_WORKERS) / s.rate(JAVA), 1, True),
    *(
        (f"events/s, exactly once / {peer}", lambda s, p=peer: s.rate(OURS_EXACTLY_ONCE) / s.rate(p), 5, True)
        for peer in FRAMEWORKS
    ),
    ("events/s, exactly once / Faust", lambda s: s.rate(OURS_EXACTLY_ONCE) / s.rate(FAUST), 40, True),
    ("p99 at a fixed rate, at least once / hand-written", lambda s: s.p99(OURS) / s.p99(HANDWRITTEN), 1, False),
    (
        "p99 at a fixed rate, exactly once / hand-written, exactly once",
        lambda s: s.p99(OURS_EXACTLY_ONCE) / s.p99(HANDWRITTEN_EXACTLY_ONCE),
        1,
        False,
    ),
    ("p99 at a fixed rate, exactly once, ms", lambda s: s.p99(OURS_EXACTLY_ONCE), 50, False),
    ("text: events/s / raw inference", lambda s: s.rate(OURS, "text") / s.limit("infer_rate", "text"), 0.9, True),
    ("memory with the small model, MiB", lambda s: s.most(OURS_EXACTLY_ONCE, "peak_mib"), 300, False),
    ("start to first prediction, s", lambda s: s.most(OURS_EXACTLY_ONCE, "first"), 2, False),
]


def _number(find: Callable[[_Seen], float], see: _Seen) -> float | None:
    try:
        return round(find(see), 3)
    except (KeyError, TypeError):  # left out, or without a latency part
        return None
