"""Pages of the documentation that hold what a simulation found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = Path(__file__).parents[1] / "docs"
_END = "<!-- end -->"


def write_rows(page: str, module: str, rows: Sequence[str]) -> None:
    """Put a table in place of that which `python -m benchmarks.MODULE` wrote into the page before."""
    begin = f"<!-- simulated: python -m benchmarks.{module} -->"
    head, _, rest = (DOCS / page).read_text(encoding="utf-8").partition(begin)
    _, _, tail = rest.partition(_END)
    (DOCS / page).write_text("\n".join([f"{head}{begin}", *rows, f"{_END}{tail}"]), encoding="utf-8")
