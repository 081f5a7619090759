"""Rows in columns: they look as a table of rich does, which takes far longer."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console
from rich.table import Table

from millstream.consumers.cli.columns import print_columns

HEADINGS = ("position", "failed at", "reason", "error")
ERROR = "customer.age: expected a number, found a text. Correct the event, or write `type: text` in config.yaml."
ROWS = [
    ("0@0", "2026-03-01T12:00:00.000Z", "unfit", ERROR),
    ("3@1234567", "-", "undecodable", "x" * 70),
    ("1@17", "2026-03-01T12:00:00.000Z", "unfit", "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 30),
]


def of_rich(width: int) -> list[str]:
    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in ROWS:
        table.add_row(*row)
    out = StringIO()
    Console(file=out, width=width, highlight=False).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [3000, 155, 120, 100, 81, 60])
def test_rows_look_as_in_a_table_of_rich(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    print_columns(Console(width=width, highlight=False), HEADINGS, ROWS)
    assert capsys.readouterr().out.splitlines() == of_rich(width)


@pytest.mark.parametrize("width", [1, 10, 30, 80])
def test_narrow_terminal_cuts_nothing_off(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    print_columns(Console(width=width, highlight=False), ("error",), [(ERROR,)])
    heading, *rest = capsys.readouterr().out.replace(" ", "").split("\n", 1)
    assert "".join([heading, *rest]).replace("\n", "") == f"error{ERROR}".replace(" ", "")


def test_heading_is_bold_on_a_terminal_and_rows_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(width=80, force_terminal=True, color_system="standard", _environ={})
    print_columns(console, ("key", "error"), [("[bold]k[/]", ":warning: no 17")])
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.startswith("\x1b[1m")
    assert row == "[bold]k[/]  :warning: no 17"
