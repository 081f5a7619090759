"""Runs each target in a process of its own, and collects counts and findings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

_SHOWN = 4000  # characters of the stderr of a process that died


@dataclass(slots=True)
class Job:
    """A target to run: so many records from a seed on."""

    name: str
    command: Sequence[str]  # without seed and number of records
    seed: int
    records: int
    environ: Mapping[str, str] = field(default_factory=dict)
    most_crashes: int = 3  # then it is given up


@dataclass(slots=True)
class Outcome:
    """Counts and findings of a job so far."""

    name: str
    cases: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)

    @property
    def records(self) -> int:
        """Checked so far."""
        return self.accepted + self.refused


def run(jobs: Sequence[Job], *, at_once: int, every: float = 10.0) -> list[Outcome]:
    """Run the jobs, `at_once` at a time. Print the counts `every` so many seconds, and each finding at once."""
    outcomes = [Outcome(job.name) for job in jobs]
    started, done = time.monotonic(), threading.Event()

    def report() -> None:
        while not done.wait(every):
            told = ", ".join(f"{one.name} {one.records:,}" for one in outcomes if one.cases)
            print(
                f"{time.monotonic() - started:5.0f} s  {sum(one.records for one in outcomes):,} records: {told}",
                flush=True,
            )

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(_run, jobs, outcomes))
    done.set()
    reporter.join()
    return outcomes


def table(outcomes: Sequence[Outcome]) -> str:
    """The counts as a table, with their sum."""
    total = Outcome("in all")
    for one in outcomes:
        total.cases, total.accepted, total.refused = (
            total.cases + one.cases,
            total.accepted + one.accepted,
            total.refused + one.refused,
        )
        total.seconds += one.seconds
        total.findings = [*total.findings, *one.findings]
    rows = [("target", "cases", "records", "accepted", "refused", "seconds", "findings")]
    rows += [
        (
            one.name,
            f"{one.cases:,}",
            f"{one.records:,}",
            f"{one.accepted:,}",
            f"{one.refused:,}",
            f"{one.seconds:.0f}",
            str(len(one.findings)),
        )
        for one in (*outcomes, total)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )
    return "\n".join(lines)


def _run(job: Job, outcome: Outcome) -> None:
    """Until the job's records are done. A process that crashes or hangs is a finding; another goes on behind its case."""
    started, seed = time.monotonic(), job.seed
    for _ in range(job.most_crashes):
        last, ended = _process(job, seed, outcome)
        if ended is None:
            break
        _tell(outcome, job, last, ended, "")
        seed = last + 1
    outcome.seconds = time.monotonic() - started


def _process(job: Job, seed: int, outcome: Outcome) -> tuple[int, str | None]:
    """Run one process. Returns the last case's seed, and how it died, None where it ended well."""
    left = job.records - outcome.records
    command = [*job.command, "--seed", str(seed), "--records", str(left)]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **job.environ}
        )
        assert process.stdout is not None
        for line in process.stdout:
            kind, _, rest = line.partition(" ")
            if kind == "case":
                seed = int(rest)
                outcome.cases += 1
            elif kind == "counts":
                accepted, refused = map(int, rest.split())
                outcome.accepted += accepted
                outcome.refused += refused
            elif kind == "wrong":
                found = json.loads(rest)
                _tell(outcome, job, found["seed"], found["error"], found["case"])
        if process.wait() == 0:
            return seed, None
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    return seed, f"the process ended with {process.returncode}: {said[:_SHOWN]}"


def _tell(outcome: Outcome, job: Job, seed: int, error: str, case: str) -> None:
    """Print a finding with all that is needed to see it again."""
    again = f"make fuzz ARGS='--only {outcome.name} --seed {seed} --records 1'"
    pasted = (
        f"""
    from tests.fuzz.case import Case
    from tests.fuzz.targets import TARGETS

    TARGETS[{job.name.removesuffix("-sanitized")!r}].check(Case.from_json({case!r}))
"""
        if case
        else ""
    )
    text = f"FINDING in {outcome.name}, seed {seed}: {error}\n  again: {again}\n{pasted}"
    outcome.findings.append(text)
    print(text, file=sys.stderr, flush=True)
