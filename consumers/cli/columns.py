"""Prints many rows in columns that are as wide as their widest cells. It looks as a table of rich does.

Rich lays out each cell of each row as a text with styles, which takes milliseconds per row. Here cells are plain text.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

_WORD = re.compile(r"\s*\S+\s*")
GAP = "  "  # between two columns
MIN_WIDTH = 3  # of a column with its part of the gaps, however narrow the terminal is


def print_columns(console: Console, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the headings and the rows as wide as the console. Cells that are too wide continue on the next line."""
    widths = [max(map(_width, column)) for column in zip(headings, *rows, strict=True)]
    widths = _narrowed(widths, console.width)
    for line in _lines(headings, widths, at_the_bottom=True):
        console.print(Text(line, "table.header"), soft_wrap=True)
    for row in rows:
        for line in _lines(row, widths):
            print(line)


def _narrowed(widths: Sequence[int], room: int) -> list[int]:
    """The widths of the columns, of which the widest are reduced until all fit into the room with the gaps."""
    sides = [2] * len(widths)  # of each column: a gap is a space of the column before it and one of the column after it
    sides[0], sides[-1] = 1, 1
    wide = [width + spaces for width, spaces in zip(widths, sides, strict=True)]
    while sum(wide) > room and max(wide) > MIN_WIDTH:
        wide[wide.index(max(wide))] -= 1
    return [width - spaces for width, spaces in zip(wide, sides, strict=True)]


def _lines(cells: Sequence[str], widths: Sequence[int], *, at_the_bottom: bool = False) -> Iterator[str]:
    """The lines of a row, without spaces at their ends. `at_the_bottom`: where cells with fewer lines than others stand."""
    folded = [_folded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    height = max(map(len, folded))
    if at_the_bottom:
        folded = [[""] * (height - len(lines)) + [*lines] for lines in folded]
    for parts in zip_longest(*folded, fillvalue=""):
        padded = [part + " " * (width - _width(part)) for part, width in zip(parts, widths, strict=True)]
        yield GAP.join(padded).rstrip()


def _folded(cell: str, width: int) -> Sequence[str]:
    """The cell's lines, no wider than this: words stay whole if they fit."""
    if _width(cell) <= width:
        return (cell,)
    lines = [""]
    for word in _WORD.findall(cell):
        length = _width(word.rstrip())
        if _width(lines[-1]) + length <= width:
            lines[-1] += word
        else:
            lines += chop_cells(word, width) if length > width else [word]
    return [line.rstrip() for line in lines if line]


def _width(text: str) -> int:
    """The columns that a text without control characters takes on a terminal."""
    return len(text) if text.isascii() else cell_len(text)
