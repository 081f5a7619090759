"""Puts a report together as one page of HTML: no scripts, nothing to load, fit for printing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from millstream.consumers.comparison.show import COLUMNS, psi_reading
from millstream.consumers.comparison.verdict import DEVIATIONS
from millstream.consumers.report.plots import NAMES, plots
from millstream.inference.estimates import estimate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.consumers.report.part import Part
    from millstream.inference.estimates import Estimate

_STYLE: Final = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #24292f; background: #fff; margin: 2rem auto; max-width: 1000px;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .4rem; }
h3 { font-size: .95rem; margin: 0 0 .2rem; } .about { color: #57606a; margin: .2rem 0 1.4rem; }
.verdict { border-left: 5px solid #0b5fa5; background: #f3f7fb; padding: .7rem 1rem; margin: .8rem 0; font-size: 1.1rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(430px, 1fr)); gap: 1.4rem; margin-top: 1.2rem; }
figure { margin: 0; break-inside: avoid; } svg { width: 100%; height: auto; display: block; }
figcaption { color: #57606a; font-size: .82rem; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #d0d7de; }
td.number, th.number { text-align: right; } .basis td:first-child { color: #57606a; white-space: nowrap; }
td { overflow-wrap: anywhere; }
@media print { body { margin: 0; max-width: none; font-size: 11px; } .plots { grid-template-columns: 1fr 1fr; gap: .8rem; }
  .verdict { font-size: 13px; -webkit-print-color-adjust: exact; print-color-adjust: exact; } h2 { break-after: avoid; } }
"""
_OTHER_NAMES: Final = {
    "brier": "Brier score",
    "calibration_error": "calibration error",
    "precision": "precision",
    "recall": "recall",
    "rmse": "root mean square error",
    "mean_score": "mean score",
}
_MORE: Final = {"classification": ("accuracy", "precision", "recall"), "multiclass": (), "regression": ()}


class Numbers(NamedTuple):
    """A table with a name in each row, and texts of numbers behind it."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Shown:
    """A section of the page."""

    title: str
    verdict: str  # in words
    basis: Sequence[tuple[str, str]]  # what it is based on: name and text
    tables: Sequence[Numbers]
    plots: Sequence[tuple[str, Sequence[str]]]  # SVG, and the sentences below it


def shown(part: Part) -> Shown:
    """The section of a model, or of two that answered the same events."""
    tables = [_figures(part, estimate(part.whole, task=part.task))] if part.whole.events else []
    return Shown(part.title, part.verdict, part.basis, tables, list(plots(part)))


def page(title: str, about: Sequence[str], parts: Sequence[Shown]) -> str:
    """The page.

    Args:
        title: its heading.
        about: sentences below the heading.
        parts: at least one; their verdicts come first.
    """
    body = [f"<h1>{escape(title)}</h1>", f'<p class="about">{escape(" ".join(about))}</p>']
    body += [f'<p class="verdict">{escape(part.verdict)}</p>' for part in parts]
    body += [line for part in parts for line in _part(part)]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}</style></head>\n<body>\n{chr(10).join(body)}\n</body></html>\n"
    )


def _part(part: Shown) -> Iterator[str]:
    yield f"<h2>{escape(part.title)}</h2>"
    yield _table((), part.basis, kind="basis")
    yield from (_table(table.head, table.rows, numbers=True) for table in part.tables)
    yield '<div class="plots">'
    for image, notes in part.plots:
        heading = image.partition("<title>")[2].partition("</title>")[0]
        caption = f"<figcaption>{escape(' '.join(notes))}</figcaption>" if notes else ""
        yield f"<figure><h3>{heading}</h3>{image}{caption}</figure>"
    yield "</div>"


def _figures(part: Part, found: Estimate) -> Numbers:
    """Both models' figures, and their differences with an interval if it is known."""
    names = [*COLUMNS[part.task], *_MORE[part.task], "mean_score"]
    head = ["", *(side.name for side in part.sides), *(["difference [95 %]"] if part.paired else [])]
    rows = []
    for name in names:
        values = [getattr(side, name) for side in (found.primary, found.shadow)][: len(part.sides)]
        if all(value is None for value in values):
            continue
        row = [NAMES.get(name, _OTHER_NAMES.get(name, name)), *map(_number, values)]
        rows.append([*row, _difference(found, name)] if part.paired else row)
    if part.paired:
        psi = f"{_number(found.psi)}{psi_reading(found.psi)}"
        for name, value in (
            ("agreement", _number(found.agreement)),
            ("population stability index", psi),
            ("rank correlation of the scores", _number(found.rank_correlation)),
            ("difference of scores: median, p95", f"{_number(found.difference_p50)}, {_number(found.difference_p95)}"),
        ):
            rows.append([name, value, "", ""])
    return Numbers(head, rows)


def _difference(found: Estimate, name: str) -> str:
    """The difference with its interval; empty: it is not computed."""
    difference = getattr(found, f"{name}_difference", None)
    error = getattr(found, f"{name}_difference_error", None)
    if difference is None or error is None or not math.isfinite(error):
        return ""
    low, high = difference - DEVIATIONS * error, difference + DEVIATIONS * error
    return f"{difference:+.4f} [{low:.4f}, {high:.4f}]"


def _number(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:,.4f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "", numbers: bool = False) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        shape = [' class="number"' if numbers and place else "" for place in range(len(row))]
        return "".join(f"<{tag}{own}>{escape(cell)}</{tag}>" for own, cell in zip(shape, row, strict=True))

    top = f"<thead><tr>{cells(head, 'th')}</tr></thead>" if head else ""
    lines = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f'<table class="{kind}">{top}<tbody>{lines}</tbody></table>'
