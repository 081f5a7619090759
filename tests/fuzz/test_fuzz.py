"""The fuzzer in its shortest form, and itself: it finds a planted bug, a crash and a hang. `make fuzz` is the long form."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hatch_build import LIBRARIES
from millstream.schemas.arrays import Ints
from millstream.schemas.avro.columns import ColumnReader
from millstream.schemas.column import NumberColumn
from millstream.schemas.decoded import Decoded
from millstream.schemas.packed import Packed
from millstream.schemas.table import Table
from tests.fuzz.case import Case, Counts, shrunk
from tests.fuzz.runner import Job, run, table
from tests.fuzz.sanitized import NoSanitizersError, compile_sanitized
from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import case_of, checked

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = 0, 2, 4
IN_FAULTS = 90_000  # records: about a minute on two cores

BY_TARGET = pytest.mark.parametrize("name", TARGETS)


@BY_TARGET
def test_nothing_is_found(name: str) -> None:
    target = TARGETS[name]
    for seed in SEEDS:
        assert isinstance(checked(target, case_of(target, seed)), Counts)


@BY_TARGET
def test_printed_case_is_the_case(name: str) -> None:
    case = case_of(TARGETS[name], 1)
    printed = case.to_json()
    assert Case.from_json(printed).to_json() == printed
    assert case_of(TARGETS[name], 1).to_json() == printed
    assert json.loads(printed)["values"]


def test_planted_bug_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zero loses its sign."""
    target = TARGETS["avro"]
    right = ColumnReader.read

    def shifted(self: ColumnReader, values: Packed) -> tuple[Decoded, Ints]:
        decoded, others = right(self, values)
        columns = {
            name: replace(column, values=column.values + 0.0)
            if isinstance(column, NumberColumn) and column.values.dtype.kind == "f"
            else column
            for name, column in decoded.table.columns.items()
        }
        return Decoded.of(Table(columns), decoded.rows, decoded.bad), others

    monkeypatch.setattr(ColumnReader, "read", shifted)
    is_wrong: Callable[[Case], bool] = lambda case: isinstance(checked(target, case), str)  # noqa: E731
    case = next(case for seed in range(40) if is_wrong(case := case_of(target, seed)))
    small = shrunk(case, is_wrong)
    assert len(small.values) <= 2
    monkeypatch.setattr(ColumnReader, "read", right)
    assert not is_wrong(small)


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        ("os.abort()", "ended with -6"),
        ("[None for _ in iter(int, 1)]", "Timeout"),
        ("bytearray(64 << 20)", "MiB of memory"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
    ids=["crash", "hang", "memory", "error"],
)
def test_what_a_process_ends_with_is_told_with_its_case(
    bug: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = (
        "import os; from tests.fuzz import worker; from tests.fuzz.case import Counts;"
        f"worker.LIMIT = {0.5 if said == 'Timeout' else 60};"
        "worker.MOST_MEMORY = 32 << 20;"
        f"worker.TARGETS['wire'].check = lambda case: ({bug}, Counts(60, 0))[1]; worker.main()"
    )
    job = Job("wire", [sys.executable, "-c", program, "wire"], seed=7, records=1, most_crashes=1)
    [outcome] = run([job], at_once=1)
    assert said in outcome.findings[0]
    assert "make fuzz ARGS='--only wire --seed 7 --records 1'" in outcome.findings[0]
    assert outcome.findings[0] in capsys.readouterr().err
    assert table([outcome]).splitlines()[1].endswith(str(len(outcome.findings)))


@pytest.mark.full
def test_extensions_compile_under_the_sanitizers(tmp_path: Path) -> None:
    try:
        compile_sanitized(tmp_path)
    except NoSanitizersError as missing:
        pytest.skip(f"no sanitizers: {missing}")
    assert {path.name for path in tmp_path.iterdir()} == {Path(library).name for library in LIBRARIES.values()}


@pytest.mark.full
def test_a_minute_finds_nothing() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--records", str(IN_FAULTS)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
