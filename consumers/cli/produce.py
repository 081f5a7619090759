"""`millstream produce`: reads events or labels from JSON lines or CSV, and writes them to the pipeline's input or label topic."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from millstream.consumers.cli.event_file import Line, csv_lines, is_csv, json_lines, opened, place
from millstream.consumers.cli.given import read_pipeline, refuse_unknown_topic
from millstream.consumers.cli.say import say
from millstream.consumers.decode.named_fields import check_event_fields, check_labels, schema_of
from millstream.consumers.errors import WorkerError
from millstream.consumers.schema_store import open_store
from millstream.consumers.sink.dead_letter_sink import RECORD_OVERHEAD
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.paths import parse_path, value_at
from millstream.schemas.rows import RowError, encode_json_row, encode_row
from millstream.schemas.wording import counted
from millstream.topics.admin import Admin, largest_records
from millstream.topics.errors import RecordTooLargeError, TopicError
from millstream.topics.records import RecordWriter

Section = Literal["input", "labels"]
Encode = Callable[[Mapping[str, Any]], bytes]
Write = Callable[[bytes, bytes | None], None]
"""Writes a record: value and key. Raises RowError if the topic takes no record of this size, TopicError."""

BATCH_BYTES = 1_000_000  # of the client's largest batches of records


def run(args: argparse.Namespace) -> int:
    """Write the rows; returns 1 if a row was bad and `--skip-bad` wasn't given, or if not all were acknowledged."""
    pipeline = read_pipeline(args)
    topic = args.topic or pipeline.input.topics[0]
    labels = pipeline.labels if pipeline.labels is not None and topic == pipeline.labels.topic else None
    section: Section = "input" if labels is None else "labels"
    key = pipeline.input.key if labels is None else labels.event_id
    definition, encode = encoder(pipeline, section)
    if args.topic is not None:
        refuse_unknown_topic(pipeline, topic)
    if is_csv(args):
        check_csv(pipeline, definition, section)
    with opened(args.file, csv=is_csv(args)) as file:
        writer = RecordWriter(pipeline.client_config(), topic, say)
        write = _writing(writer, topic, largest_records(Admin(pipeline.client_config()), [topic])[topic])
        lines = csv_lines(file, definition) if is_csv(args) else json_lines(file, args.file)
        rows = _Rows(args.skip)
        end = _written(writer, lambda: _write_all(write, lines, encode, key, args, rows))
        skipped = f", {len(rows.bad):,} bad rows skipped" if rows.bad and args.skip_bad else ""
        written = counted(writer.delivered, "event" if labels is None else "label")
        print(f"{written} written to {topic}{skipped}{'' if rows.begun else _no_rows(args)}")
    if end is None and (args.skip_bad or not rows.bad):
        return 0
    if end:
        print(end, file=sys.stderr)
    print(_how_to_go_on(writer, rows, args), file=sys.stderr)
    return 1


@dataclass(slots=True)
class _Rows:
    """The rows of the input that are done."""

    skip: int  # rows at the start that are left out
    bad: list[int] = field(default_factory=list)  # the numbers of bad rows, from 0 behind `skip`
    begun: bool = False  # whether there was a row that is not left out

    def before(self, written: int) -> int:
        """How many rows lie before the one that comes after this many written ones."""
        for number in self.bad:
            written += number < written
        return self.skip + written


def _no_rows(args: argparse.Namespace) -> str:
    return (
        f": {place(args.file)} has no more than {args.skip:,} rows"
        if args.skip
        else f": {place(args.file)} has no rows"
    )


def _written(writer: RecordWriter, write: Callable[[], None]) -> str | None:
    """Write, and wait until the broker has acknowledged the records. Returns what went wrong; None if nothing."""
    end = None
    try:
        write()
    except KeyboardInterrupt:
        print(
            "interrupted; waiting for the broker to acknowledge what was sent (Ctrl-C again: don't wait)",
            file=sys.stderr,
        )
        end = "interrupted"
    except TopicError as error:
        end = str(error)
    try:
        writer.flush()
    except KeyboardInterrupt:
        end = "interrupted"
    except TopicError as error:
        end = str(error)
    return end


def _writing(writer: RecordWriter, topic: str, largest: int) -> Write:
    """The function that writes records. `largest`: bytes of the largest record that the topic takes."""
    waiting = 0  # bytes of the records since the last wait

    def write(value: bytes, key: bytes | None) -> None:
        nonlocal waiting
        size = len(value) + len(key or b"")
        waiting += size + RECORD_OVERHEAD
        # The broker refuses a whole batch of records if it is larger than the topic takes.
        if largest < BATCH_BYTES and waiting > largest:
            writer.flush()
            waiting = size + RECORD_OVERHEAD
        if size + RECORD_OVERHEAD <= largest:
            writer.write(value, key)
            return
        try:
            writer.write_alone(value, key)  # it may still fit, for the client may compress it
        except RecordTooLargeError:
            raise RowError(
                f"expected a record that topic {topic} takes, found one of {size:,} bytes: its `max.message.bytes` is "
                f"{largest:,}. Raise that, or leave the row out."
            ) from None

    return write


def _how_to_go_on(writer: RecordWriter, rows: _Rows, args: argparse.Namespace) -> str:
    done = writer.delivered_in_order
    limit = "" if args.limit is None else f" --limit {args.limit - done}"
    again = f"give the same command and input again with --skip {rows.before(done)}{limit}."
    if rows.bad and not args.skip_bad:  # without a word on it, the next run would end at the same row
        text = f"To go on, correct the row and {again} To leave out bad rows instead, add --skip-bad."
    else:
        text = f"To go on, {again}"
    if behind := writer.delivered - done:
        text += (
            f" This writes {behind:,} of the rows twice: the broker acknowledged them, but not all rows before them."
        )
    if writer.unacknowledged:
        text += (
            f" The broker did not acknowledge {writer.unacknowledged:,} of the rows, but may have stored them; they then occur "
            "twice, too, with the same event ID."
        )
    return text


def encoder(pipeline: Pipeline, section: Section = "input") -> tuple[Any, Encode]:
    """The schema of the rows, which are events or labels (None: they have none), and the function that encodes rows."""
    store = open_store(pipeline)
    schema = schema_of(pipeline, store, section)
    if section == "input":
        check_event_fields(pipeline, schema)
    else:
        check_labels(pipeline, store)
    if schema is None:
        return None, _encode_as_it_is
    if getattr(pipeline, section).format == "json":
        return schema.definition, lambda row: encode_json_row(schema.definition, row)
    return schema.definition, lambda row: encode_row(schema.definition, schema.id, row)


def check_csv(pipeline: Pipeline, definition: Any, section: Section = "input") -> None:
    """Check that a schema says what the cells of CSV are. Raises WorkerError."""
    if definition is None:
        raise WorkerError(
            f"{pipeline.at(section)}: CSV has only text, and without `schema` nothing says which cells are numbers. Set "
            f"`{section}.schema`, or give JSON lines."
        )


def _encode_as_it_is(row: Mapping[str, Any]) -> bytes:
    """The row as JSON, for rows without a schema. Raises RowError."""
    try:
        return json.dumps(row, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise RowError("expected whole characters, found half of one (a lone surrogate). Correct the text.") from None
    except ValueError:
        raise RowError(
            "expected numbers that fit into a double, found NaN, Infinity or a larger number, such as 1e999. Send null for a "
            "value that isn't known."
        ) from None


def _write_all(
    write: Write, lines: Iterator[Line], encode: Encode, key: str | None, args: argparse.Namespace, rows: _Rows
) -> None:
    """Write rows up to the last one, the limit, or the first bad one."""
    started = time.monotonic()
    written = 0
    for number, line in enumerate(islice(lines, args.skip, None)):
        rows.begun = True
        try:
            value, key_bytes = _encoded(line.row, encode, key)
            if args.rate is not None:
                time.sleep(max(started + written / args.rate - time.monotonic(), 0))
            write(value, key_bytes)
        except RowError as error:
            print(f"{place(args.file)}:{line.number}: {error}", file=sys.stderr)
            rows.bad.append(number)
            if not args.skip_bad:
                break
            continue
        written += 1
        if written == args.limit:
            break


def _encoded(row: Mapping[str, Any] | str, encode: Encode, key: str | None) -> tuple[bytes, bytes | None]:
    if isinstance(row, str):
        raise RowError(row)
    value = encode(row)
    found = None if key is None else value_at(row, parse_path(key).steps)
    return value, None if found is None else _key_bytes(key, found)


def _key_bytes(path: str | None, value: Any) -> bytes:
    """The record's key. Raises RowError: the value is a list or an object, which has no single form as bytes."""
    match value:
        case bool():
            return b"true" if value else b"false"
        case list() | dict():
            found = "a list" if isinstance(value, list) else "an object"
            raise RowError(
                f"{path}: expected text, a number, true or false for the record's key, found {found}. Name a value in it."
            )
    return str(value).encode()
