"""`make fuzz`: sends generated and damaged input to everything that reads bytes from others."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.fuzz.runner import Job, run, table
from tests.fuzz.sanitized import NoSanitizersError, compile_sanitized
from tests.fuzz.targets import TARGETS

RECORDS = 1_200_000  # about a quarter of an hour on two cores
SANITIZED = "-sanitized"
_SANITIZED_SHARE = 0.3  # of a target's records are read under the sanitizers, too: they take three times as long


def main() -> int:
    """Run; returns 1 where there are findings."""
    arguments = _arguments()
    print(
        f"seed {arguments.seed}; reproduce with: make fuzz ARGS='--seed {arguments.seed} --records {arguments.records}'",
        flush=True,
    )
    only = arguments.only or []
    with tempfile.TemporaryDirectory() as folder:
        jobs = [*_plain(arguments, only), *_sanitized(arguments, only, Path(folder))]
        jobs.sort(key=lambda job: -job.records)
        outcomes = run(jobs, at_once=arguments.processes)
    print(table(outcomes))
    return int(any(one.findings for one in outcomes))


def _plain(arguments: argparse.Namespace, only: list[str]) -> list[Job]:
    return [
        Job(name, [sys.executable, "-m", "tests.fuzz.worker", name], arguments.seed, _records(arguments, target.share))
        for name, target in TARGETS.items()
        if not only or name in only
    ]


def _sanitized(arguments: argparse.Namespace, only: list[str], folder: Path) -> list[Job]:
    names = [name for name, target in TARGETS.items() if target.in_c and (not only or name + SANITIZED in only)]
    if not names:
        return []
    try:
        environ = compile_sanitized(folder)
    except NoSanitizersError as missing:
        print(f"SKIPPED: the C extensions under the sanitizers: {missing}", flush=True)
        return []
    return [
        Job(
            name + SANITIZED,
            [sys.executable, "-m", "tests.fuzz.worker", name, "--libraries", str(folder)],
            arguments.seed,
            _records(arguments, TARGETS[name].share * _SANITIZED_SHARE),
            environ,
        )
        for name in names
    ]


def _records(arguments: argparse.Namespace, share: float) -> int:
    records: int = arguments.records
    return max(1, round(records * (1 if arguments.only else share)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    names = [*TARGETS, *(name + SANITIZED for name, target in TARGETS.items() if target.in_c)]
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="of the first case")
    parser.add_argument("--records", type=int, default=RECORDS, help="in all; of each target where --only names some")
    parser.add_argument("--only", action="append", choices=names, metavar="TARGET", help=f"one of {', '.join(names)}")
    parser.add_argument("--processes", type=int, default=2, help="at a time")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
