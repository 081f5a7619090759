"""Checks the cases of one target, in a process of its own because a case may crash or hang it. Reports on stdout.

The lines of the report are `case SEED`, `counts ACCEPTED REFUSED` and `wrong` with a finding as JSON.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import traceback
from pathlib import Path
from random import Random

from millstream.consumers.rollout import hashes
from millstream.consumers.source import fetched
from millstream.schemas import interleave, times, words
from millstream.schemas.avro import columns as avro_columns
from millstream.schemas.json import columns as json_columns
from tests.fuzz.case import Case, Counts, Target, Wrong, shrunk
from tests.fuzz.targets import TARGETS

LIMIT = 60  # seconds for a case; one takes a small part of one
MOST_MEMORY = 1 << 30  # bytes that a case may add
_MOST_FINDINGS = 5


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--libraries", type=Path, help="folder of the C extensions to use")
    arguments = parser.parse_args()
    faulthandler.enable()
    if arguments.libraries:
        for module in (fetched, avro_columns, json_columns, interleave, times, words, hashes):
            module.LIBRARY = arguments.libraries / module.LIBRARY.name  # type: ignore[attr-defined]
    target, seed, done, findings = TARGETS[arguments.target], arguments.seed, 0, 0
    while done < arguments.records and findings < _MOST_FINDINGS:
        print("case", seed, flush=True)
        case = case_of(target, seed)
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        found = checked(target, case)
        if isinstance(found, Counts):
            print("counts", *found, flush=True)
        else:
            findings += 1
            print("wrong", json.dumps({"seed": seed, "error": found, "case": _small(target, case, found)}), flush=True)
        done += max(sum(found) if isinstance(found, Counts) else len(case.values), 1)
        seed += 1


def case_of(target: Target, seed: int) -> Case:
    """The target's case of a seed."""
    return target.make(Random(f"{target.name}-{seed}"))


def checked(target: Target, case: Case) -> Counts | str:
    """Check a case. Returns its counts, or what went wrong."""
    before = _peak_memory(reset=True)
    try:
        counts = target.check(case)
    except Wrong as wrong:
        return str(wrong)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} (at {place.filename}:{place.lineno})"
    grown = _peak_memory(reset=False) - before
    return f"it takes {grown >> 20} MiB of memory" if grown > MOST_MEMORY else counts


def _small(target: Target, case: Case, error: str) -> str:
    def is_wrong(smaller: Case) -> bool:
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        found = checked(target, smaller)
        return isinstance(found, str) and found[:20] == error[:20]

    return shrunk(case, is_wrong).to_json()


def _peak_memory(*, reset: bool) -> int:
    """Bytes that this process has had at most since the last reset; 0 where the system does not say."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    sys.set_int_max_str_digits(4300)  # as a worker has it, whatever the environment says
    main()
