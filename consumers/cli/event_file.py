"""Reads events from a file of JSON lines or CSV, or from standard input."""

import argparse
import csv
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import IO, Any

from millstream.consumers.errors import WorkerError
from millstream.schemas import git_lfs
from millstream.schemas.file_kind import GZIP_HEAD, FileKind, is_model
from millstream.schemas.rows import parse_cells

_OPENINGS = ("[", "{", "[{")
_SPREAD = (
    "expected one JSON object per line, found a line that only opens a JSON text. If the events are a pretty-printed list, write "
    "them as lines: jq -c '.[]' FILE (without a list around them: jq -c . FILE)."
)
_WHITE_SPACE = " \t\r\n"  # of JSON
_SEVERAL_CELLS = re.compile(r"[^,;\t][,;\t].")  # of CSV, with any of the usual separators
_LIST = re.compile(r"\[\s*\{")  # the beginning of a list of objects
_BARE_RETURN = re.compile(r"\}[ \t]*\r[ \t\r]*\{")  # between two objects
_RETURNS = (
    "expected one JSON object per line, found lines that end with a bare carriage return. Convert the file: "
    "tr '\\r' '\\n' < FILE > NEW."
)
_LISTED = "expected one JSON object per line, found a list of objects. Write them as lines: jq -c '.[]' FILE."


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the input with its line number."""

    number: int  # of the row's first line, from 1
    row: Mapping[str, Any] | str  # a string is the reason why the line isn't a row


def is_csv(args: argparse.Namespace) -> bool:
    """Whether the file is CSV."""
    return args.format == "csv" or (args.format is None and args.file.lower().endswith(".csv"))


def place(file: str) -> str:
    """How messages name the file."""
    return "standard input" if file == "-" else file


@contextmanager
def opened(name: str, *, csv: bool = False) -> Iterator[IO[str]]:
    """Open the file, which has JSON lines or CSV. Raises WorkerError."""
    # Bytes that aren't UTF-8 become surrogates, so the error can name the line of their row. Inside a JSON text, a `\r` is white
    # space. The module `csv` finds the ends of its rows itself.
    reading: dict[str, Any] = {
        "encoding": "utf-8-sig",
        "errors": "surrogateescape",
        "newline": "" if csv else "\n",
    }
    if name == "-":
        _refuse_other_bytes(name, sys.stdin.buffer)  # type: ignore[arg-type]
        sys.stdin.reconfigure(**reading)  # type: ignore[union-attr]
        yield sys.stdin
        return
    try:
        with Path(name).open("rb") as file:
            _refuse_other_bytes(name, file)
            yield TextIOWrapper(file, **reading)
    except OSError as error:
        raise WorkerError(f"{name}: the file can't be read: {error.strerror}. Check the path.") from None


def _refuse_other_bytes(name: str, file: BufferedReader) -> None:
    """Refuse a file that plainly has no lines of events. Raises WorkerError."""
    if said := _no_events(file.peek(), is_model=is_model(Path(name))):
        raise WorkerError(f"{place(name)}: expected events as UTF-8 text, found {said}")


def _no_events(head: bytes, *, is_model: bool) -> str:
    """What a file is whose first bytes or name say that it has no lines of events, and what to do; empty: they don't."""
    if head.startswith(GZIP_HEAD):
        return f"{FileKind.GZIP}. Unpack it (gunzip FILE), or write - in its place: zcat FILE | millstream ..."
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16. Convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW"
    if head.startswith(git_lfs.HEAD.encode()):
        return git_lfs.FOUND
    return f"{FileKind.MODEL}. Name a file with events." if is_model else ""


def text_lines(file: IO[str]) -> Iterator[tuple[int, str]]:
    """The lines that aren't blank, and their numbers. Bytes that aren't UTF-8 are surrogates."""
    stripped = ((number, text.strip(_WHITE_SPACE)) for number, text in enumerate(file, 1))
    return ((number, text) for number, text in stripped if text)


def json_lines(file: IO[str], file_name: str) -> Iterator[Line]:
    """Read JSON lines. Raises WorkerError, see `refuse_spread`."""
    for at, (number, text) in enumerate(text_lines(file)):
        if at == 0 and text != "{":  # a first line with a `{` alone may be a bad row, which can be left out
            refuse_spread(file_name, number, text)
        yield Line(number, json_row(text, in_file=True))


def refuse_spread(file_name: str, line: int, text: str) -> None:
    """Refuse a file whose first line opens a JSON text or a list of objects, or holds several: its lines would be bad.

    Raises WorkerError.
    """
    if said := _spread(text):
        raise WorkerError(f"{place(file_name)}:{line}: {said}")


def _spread(text: str) -> str:
    """What to do about a line that is no object, but opens one, or has several of them; empty: it is another line."""
    if text.strip() in _OPENINGS:
        return _SPREAD
    if "\r" in text and _BARE_RETURN.search(text):
        return _RETURNS
    return _LISTED if _LIST.match(text.lstrip()) else ""


def json_row(text: str, *, in_file: bool) -> dict[str, Any] | str:
    """The object in a text, or the reason why it is none. `in_file`: whether the text is a line, which can be corrected."""
    if said := _other_text(text, in_file=in_file):
        return said
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        if in_file and "{" not in text and _SEVERAL_CELLS.search(text):
            return "expected a JSON object, found what looks like CSV. If it is, name the file so that it ends in .csv."
        where = f"{error.msg.removesuffix(' at')} at column {error.colno}"
        return f"expected a JSON object, found text that is not JSON: {where}.{' Correct the line.' if in_file else ''}"
    except ValueError:
        return "expected a JSON object, found a number with thousands of digits. Send it as text, or null if it isn't known."
    except RecursionError:
        return "expected a JSON object, found one that is nested too deeply to read. Flatten it."
    return row if isinstance(row, dict) else f"expected a JSON object, found {text.strip()[:60]}"


def _other_text(text: str, *, in_file: bool) -> str:
    """What a text is that the JSON parser would not describe, and what to do; empty: the parser may try it."""
    if not text.isascii() and _is_not_utf8(text):
        return f"expected UTF-8 text, found other bytes.{' Convert the file.' if in_file else ''}"
    if text.startswith("\ufeff"):
        return "expected a JSON object, found a UTF-8 byte-order mark before it: send events without it."
    return _spread(text) if in_file else ""


def csv_lines(file: IO[str], definition: Any) -> Iterator[Line]:
    """Read CSV with a header row of field names. The schema decides how each cell becomes a value."""
    rows = csv.reader(file, strict=True)
    header: list[str] | None = None
    while True:
        number = rows.line_num + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield Line(number, f"expected CSV: {error}.")
            return  # it is no longer known where the next row starts
        if header is None:
            header = cells
            if len(set(header)) < len(header):
                yield Line(number, "expected each column name once in the header row, found one twice.")
                return
        elif cells:
            yield Line(number, _csv_row(header, cells, definition))


def _csv_row(header: list[str], cells: list[str], definition: Any) -> dict[str, Any] | str:
    if len(cells) != len(header):
        return f"expected {len(header)} cells as in the header row, found {len(cells)}."
    if any(_is_not_utf8(cell) for cell in cells):
        return "expected UTF-8 text, found other bytes. Convert the file."
    return parse_cells(definition, dict(zip(header, cells, strict=True)))


def _is_not_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
