"""Writes results to files and to pages of the documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DOCS = Path(__file__).parents[1] / "docs"
_END = "<!-- end -->"


def write_results(folder: Path, name: str, report: Mapping[str, object], text: str) -> None:
    """Write `NAME.json`, and `NAME.md` for people. Also print the latter."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")
    (folder / f"{name}.md").write_text(text)
    print(text)


def write_rows(page: str, module: str, rows: Sequence[str]) -> None:
    """Replace the table that `python -m benchmarks.MODULE` wrote into the page before."""
    begin = f"<!-- simulated: python -m benchmarks.{module} -->"
    head, _, rest = (DOCS / page).read_text(encoding="utf-8").partition(begin)
    _, _, tail = rest.partition(_END)
    (DOCS / page).write_text("\n".join([f"{head}{begin}", *rows, f"{_END}{tail}"]), encoding="utf-8")
