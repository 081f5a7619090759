"""`millstream produce`: reads feature events from JSON lines or CSV, and writes them to the pipeline's input topic."""

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from millstream.consumers.cli.arguments import add_pipeline, positive, rate, read_pipeline, refuse_unknown_topic
from millstream.consumers.decode.named_fields import check_event_fields, schema_of
from millstream.consumers.errors import WorkerError
from millstream.consumers.schema_store import open_store
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.paths import parse_path, value_at
from millstream.schemas.rows import RowError, encode_json_row, encode_row, parse_cells
from millstream.topics.records import RecordWriter

Encode = Callable[[Mapping[str, Any]], bytes]


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the input with its line number."""

    number: int  # of the row's first line, from 1
    row: Mapping[str, Any] | str  # a string is the reason why the line isn't a row


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="the file with the events; - or nothing: standard input"
    )
    parser.add_argument(
        "--format",
        choices=["jsonl", "csv"],
        help="one JSON object per line, or CSV with a header row (default: by the file's ending, else jsonl)",
    )
    parser.add_argument("--topic", help="the topic to write to (default: the pipeline's first input topic)")
    parser.add_argument("--limit", type=positive, metavar="N", help="stop after N events")
    parser.add_argument("--rate", type=rate, metavar="R", help="events per second (default: as fast as possible)")
    parser.add_argument(
        "--skip-bad", action="store_true", help="report bad rows and continue (default: stop at the first)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the events; returns 1 if a row was bad and `--skip-bad` wasn't given."""
    pipeline = read_pipeline(args)
    definition, encode = _encoder(pipeline)
    topic = args.topic or pipeline.input.topics[0]
    if args.topic is not None:
        refuse_unknown_topic(pipeline, topic)
    if definition is None and _is_csv(args):
        raise WorkerError(
            f"{pipeline.at('input')}: CSV has only text, and without `schema` nothing says which cells are numbers. Set "
            f"`input.schema`, or give events as JSON lines."
        )
    with _opened(args.file) as file:
        writer = RecordWriter(pipeline.client_config(), topic)
        lines = _csv_lines(file, definition) if _is_csv(args) else _json_lines(file)
        bad = 0
        try:
            bad = _write_all(writer, lines, encode, pipeline.input.key, args)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 1
        finally:
            writer.flush()
            skipped = f", {bad} bad rows skipped" if bad and args.skip_bad else ""
            print(f"{writer.delivered} events written to {topic}{skipped}")
    return 0 if args.skip_bad or not bad else 1


def _encoder(pipeline: Pipeline) -> tuple[Any, Encode]:
    """The rows' schema (None: they have none), and the function that encodes rows."""
    schema = schema_of(pipeline, open_store(pipeline), "input")
    check_event_fields(pipeline, schema)
    if schema is None:
        return None, _encode_as_it_is
    if pipeline.input.format == "json":
        return schema.definition, lambda row: encode_json_row(schema.definition, row)
    return schema.definition, lambda row: encode_row(schema.definition, schema.id, row)


def _encode_as_it_is(row: Mapping[str, Any]) -> bytes:
    """The row as JSON, for events without a schema. Raises RowError."""
    try:
        return json.dumps(row, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except ValueError as error:
        raise RowError(
            f"expected JSON without NaN, Infinity and halves of characters, found one of these: {error}."
        ) from None


def _write_all(
    writer: RecordWriter, lines: Iterator[Line], encode: Encode, key: str | None, args: argparse.Namespace
) -> int:
    """Write rows up to the last one, the limit, or the first bad one; returns how many were bad."""
    started = time.monotonic()
    written = bad = 0
    for line in lines:
        try:
            value, key_bytes = _encoded(line.row, encode, key)
        except RowError as error:
            print(f"{_place(args.file)}:{line.number}: {error}", file=sys.stderr)
            bad += 1
            if not args.skip_bad:
                break
            continue
        if args.rate is not None:
            time.sleep(max(started + written / args.rate - time.monotonic(), 0))
        writer.write(value, key_bytes)
        written += 1
        if written == args.limit:
            break
    return bad


def _encoded(row: Mapping[str, Any] | str, encode: Encode, key: str | None) -> tuple[bytes, bytes | None]:
    if isinstance(row, str):
        raise RowError(row)
    value = encode(row)
    found = None if key is None else value_at(row, parse_path(key).steps)
    return value, None if found is None else str(found).encode()


def _is_csv(args: argparse.Namespace) -> bool:
    return args.format == "csv" or (args.format is None and args.file.lower().endswith(".csv"))


def _place(file: str) -> str:
    return "standard input" if file == "-" else file


@contextmanager
def _opened(name: str) -> Iterator[IO[str]]:
    # Bytes that aren't UTF-8 become surrogates, so the error can name the line of their row.
    reading: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "surrogateescape", "newline": ""}
    if name == "-":
        sys.stdin.reconfigure(**reading)  # type: ignore[union-attr]
        yield sys.stdin
        return
    try:
        with Path(name).open(**reading) as file:
            yield file
    except OSError as error:
        raise WorkerError(f"{name}: the file can't be read: {error.strerror}. Check the path.") from None


def _json_lines(file: IO[str]) -> Iterator[Line]:
    for number, text in enumerate(file, 1):
        if text.strip():
            yield Line(number, _json_row(text))


def _json_row(text: str) -> dict[str, Any] | str:
    if not text.isascii() and _is_not_utf8(text):
        return "expected UTF-8 text, found other bytes. Convert the file."
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        return f"expected a JSON object, found text that isn't valid JSON: {error.msg} at column {error.colno}."
    except ValueError as error:  # a number with thousands of digits
        return f"expected a JSON object, found one that can't be read: {error}."
    except RecursionError:
        return "expected a JSON object, found one that is nested too deeply to read."
    return row if isinstance(row, dict) else f"expected a JSON object, found {text.strip()[:60]}"


def _csv_lines(file: IO[str], definition: Any) -> Iterator[Line]:
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
