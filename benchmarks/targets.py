"""Checks a report against Millstream's performance targets."""

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
"""The content of bench.json, which `run.py` writes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target: compares `found` with `limit`."""

    promise: str
    found: float | None  # None: a peer or workload that it needs is not in the report
    limit: float
    at_least: bool  # True: `limit` is a lower limit
    rounds: tuple[float, float] | None = None  # lowest and highest value of a round; None: there was only one round

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None if that isn't known."""
        if self.found is None:
            return None
        return self.found >= self.limit if self.at_least else self.found <= self.limit

    @property
    def margin(self) -> float | None:
        """The distance from the limit, as a fraction of it; positive if the target is met, else negative."""
        if self.found is None:
            return None
        return (self.found / self.limit - 1) * (1 if self.at_least else -1)


def verdicts(report: Report) -> list[Verdict]:
    """All targets, in the order of the list below."""
    see = _Seen(report)
    rounds = [_Seen(report, number) for number in range(max((_rounds(one) for one in report["workloads"]), default=0))]
    return [
        Verdict(promise, _number(find, see), limit, at_least, _spread([_number(find, one) for one in rounds]))
        for promise, find, limit, at_least in _PROMISES
    ]


def _rounds(workload: Mapping[str, Any]) -> int:
    return max((len(found["runs"]) for found in workload["peers"].values()), default=0)


def _spread(found: list[float | None]) -> tuple[float, float] | None:
    known = [one for one in found if one is not None]
    return (min(known), max(known)) if len(set(known)) > 1 else None


def figure(workload: Mapping[str, Any], peer: str, name: str) -> float:
    """The median of a peer's figure over the rounds. Raises KeyError if the peer was left out."""
    return float(median(run[name] for run in workload["peers"][peer]["runs"]))


class _Seen:
    """Looks figures up in a report."""

    def __init__(self, report: Report, number: int | None = None) -> None:
        """Args:
        report: the report.
        number: the round, from 0; None: use all rounds together. If a peer took part in fewer rounds, its last one is used.
        """
        self._workloads = {workload["name"]: workload for workload in report["workloads"]}
        self._number = number

    def cpu(self, peer: str, workload: str = "vector") -> float:
        return self._figure(workload, peer, "cpu_us")

    def rate(self, peer: str, workload: str = "vector") -> float:
        return self._figure(workload, peer, "rate")

    def most(self, peer: str, name: str) -> float:
        if self._number is not None:
            return self._figure("vector", peer, name)
        return float(max(run[name] for run in self._workloads["vector"]["peers"][peer]["runs"]))

    def p99(self, peer: str) -> float:
        found = self._workloads["vector"]["peers"][peer]
        return float((found["latency"] if self._number is None else self._one(found["latencies"]))["p99"])

    def limit(self, name: str, workload: str = "vector") -> float:
        found = self._workloads[workload]
        return float((found["limits"] if self._number is None else self._one(found["limits_runs"]))[name])

    def _figure(self, workload: str, peer: str, name: str) -> float:
        found = self._workloads[workload]
        if self._number is None:
            return figure(found, peer, name)
        return float(self._one(found["peers"][peer]["runs"])[name])

    def _one(self, rounds: list[Mapping[str, Any]]) -> Mapping[str, Any]:
        return rounds[min(self._number or 0, len(rounds) - 1)]

    def raw(self) -> float:
        return sum(self.limit(name) for name in ("consume_us", "produce_us", "infer_us"))


_CPU_LIMITS = [  # workload, peer, compared with, limit
    ("vector", OURS_EXACTLY_ONCE, RUST, 1.2),
    ("flights", OURS_EXACTLY_ONCE, RUST, 1.3),
    ("flights", OURS, RUST, 1.6),
    ("wide", OURS_EXACTLY_ONCE, RUST, 1.5),
    ("json", OURS_EXACTLY_ONCE, HANDWRITTEN, 0.75),
    ("json", OURS_EXACTLY_ONCE, RUST, 1.2),
    ("nested", OURS_EXACTLY_ONCE, HANDWRITTEN, 0.5),
    ("nested", OURS_EXACTLY_ONCE, RUST, 1.5),
    ("nested-avro", OURS_EXACTLY_ONCE, HANDWRITTEN, 0.5),
    ("nested-avro", OURS_EXACTLY_ONCE, RUST, 1.5),
]

_PROMISES: list[tuple[str, Callable[[_Seen], float], float, bool]] = [
    (
        "CPU an event, exactly once / hand-written",
        lambda s: s.cpu(OURS_EXACTLY_ONCE) / s.cpu(HANDWRITTEN),
        1 / 3,
        False,
    ),
    ("CPU an event, exactly once / raw limits' sum", lambda s: s.cpu(OURS_EXACTLY_ONCE) / s.raw(), 1.5, False),
    ("CPU an event, exactly once / Java", lambda s: s.cpu(OURS_EXACTLY_ONCE) / s.cpu(JAVA), 1, False),
    ("CPU an event, exactly once / at least once", lambda s: s.cpu(OURS_EXACTLY_ONCE) / s.cpu(OURS), 1.25, False),
    *(
        (
            f"{of}: CPU an event, {'exactly' if ours == OURS_EXACTLY_ONCE else 'at least'} once / {peer}",
            lambda s, of=of, ours=ours, peer=peer: s.cpu(ours, of) / s.cpu(peer, of),
            limit,
            False,
        )
        for of, ours, peer, limit in _CPU_LIMITS
    ),
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
    (
        "text, at least once: events/s / raw inference",
        lambda s: s.rate(OURS, "text") / s.limit("infer_rate", "text"),
        0.9,
        True,
    ),
    ("memory with the small model, MiB", lambda s: s.most(OURS_EXACTLY_ONCE, "peak_mib"), 180, False),
    ("start to first prediction, s", lambda s: s.most(OURS_EXACTLY_ONCE, "first"), 0.7, False),
]


def _number(find: Callable[[_Seen], float], see: _Seen) -> float | None:
    try:
        return round(find(see), 3)
    except (KeyError, TypeError, IndexError):  # left out, or without a latency part
        return None
