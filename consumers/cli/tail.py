"""`millstream tail`: prints the records of the pipeline's topics, decoded: a table on a terminal, else JSON lines."""

import argparse
import base64
import json
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from millstream.consumers.cli.early_signals import ctrl_c_ends
from millstream.consumers.cli.given import read_pipeline, refuse_unknown_topic
from millstream.consumers.cli.record_table import RecordTable
from millstream.consumers.cli.usage.tail import ROLES
from millstream.consumers.schema_store import open_store
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.printable import printable_json
from millstream.schemas.dead_letters import decode_dead_letter
from millstream.schemas.errors import BadSchemaError, NotWireFormat, UnknownSchema
from millstream.schemas.records import DEAD_LETTER
from millstream.schemas.rows import decode_row
from millstream.schemas.store import SchemaStore
from millstream.schemas.wire import schema_id_of
from millstream.schemas.wording import counted
from millstream.topics.errors import TopicError
from millstream.topics.records import ReadRecord, RecordReader

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_READ_RECORDS = 500  # records of one read
READ_TIMEOUT = 0.2  # seconds that one read waits for records
SPARE_DEPTH = 30  # levels of nesting that are reserved for the JSON around a value


def run(args: argparse.Namespace) -> int:
    """Print records until the limit, the timeout or Ctrl-C."""
    pipeline = read_pipeline(args)
    store = open_store(pipeline)
    topics = _topics(pipeline, args.topic)
    show = _show_json if args.json or not sys.stdout.isatty() else RecordTable(topics).show
    left = args.limit
    with ctrl_c_ends():
        opened = RecordReader(pipeline.client_config(), topics, from_beginning=args.from_beginning)
    with opened as reader:
        print(f"reading {', '.join(topics)}; {_end(args)}", file=sys.stderr, flush=True)
        _say_existing(reader.existing, args)
        came = time.monotonic()
        away = False
        try:
            while args.timeout is None or time.monotonic() - came < args.timeout:
                records = reader.read(MAX_READ_RECORDS, READ_TIMEOUT)[:left]
                if reader.away and not away:
                    print(
                        f"no broker answers at {pipeline.kafka.bootstrap}: waiting for one", file=sys.stderr, flush=True
                    )
                away = reader.away
                for record in records:
                    show(as_json(record, store))
                if records:
                    sys.stdout.flush()
                    came = time.monotonic()
                if left is not None:
                    left -= len(records)
                    if not left:
                        return 0
        except KeyboardInterrupt:  # the way to end it
            pass
    return 0


def _end(args: argparse.Namespace) -> str:
    """When the command ends."""
    ends = [] if args.limit is None else [f"ends after {counted(args.limit, 'record')}"]
    ends += [] if args.timeout is None else [f"ends after {args.timeout:g} s without a record"]
    return "; ".join([*ends, "Ctrl-C ends"])


def _say_existing(existing: Mapping[str, int], args: argparse.Namespace) -> None:
    """Say where there is nothing to print, and where there is but it isn't printed. Without this, it is silent in both cases."""
    for topic, count in existing.items():
        if count and not args.from_beginning:
            print(
                f"{topic} has up to {counted(count, 'earlier record')}: --from-beginning prints them",
                file=sys.stderr,
                flush=True,
            )
        elif not count:
            ends = "" if args.timeout is not None else ": `--timeout 10` ends after 10 s without one"
            print(f"{topic} has no records yet{ends}", file=sys.stderr, flush=True)


def _topics(pipeline: Pipeline, name: str) -> tuple[str, ...]:
    """The topics that a role or a topic's name stands for. Raises TopicError if there is none."""
    comparison = pipeline.comparison
    topics = {
        "predictions": (pipeline.output.topic,),
        "dead-letters": (pipeline.dead_letters.topic,),
        **({"comparisons": (comparison.topic,), "evaluations": (comparison.evaluations,)} if pipeline.shadows else {}),
        **({"labels": (pipeline.labels.topic,)} if pipeline.labels else {}),
        "input": pipeline.input.topics,
    }
    if name in ROLES and name not in topics:
        section, page = ("labels", "comparison") if name == "labels" else ("shadows", "shadows")
        raise TopicError(
            f"--topic {name}: {pipeline.path.name} has no `{section}`, so this pipeline has no such topic. "
            f"`millstream docs {page}` says what they are for."
        )
    if name not in topics:
        refuse_unknown_topic(pipeline, name, list(topics))
    return topics.get(name, (name,))


def _show_json(shown: dict[str, Any]) -> None:
    print(_line(shown))


def as_json(record: ReadRecord, store: SchemaStore) -> dict[str, Any]:
    """The record as JSON. A value that can't be decoded is base64, with an `error` next to it.

    In a dead letter, the field `value` is the event. It is decoded, too, if possible.

    Raises:
        SchemaUnavailable: the schema registry doesn't respond.
    """
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": _time(record.timestamp),
        "key": _text(record.key),
    }
    if record.headers is None:
        shown["headers_error"] = "a header's name is not UTF-8, so none of the headers can be read"
    elif record.headers:  # pairs: Kafka allows a name to repeat
        shown["headers"] = [[name, _text(value)] for name, value in record.headers]
    return shown | _value(record.value, store)


def _value(value: bytes | None, store: SchemaStore) -> dict[str, Any]:
    """`{"value": ...}`, with `"error"` if the value can't be decoded."""
    if value is None:
        return {"value": None}
    if value[:1] in {b"{", b"["}:  # an Avro value begins with a zero byte
        try:
            return {"value": _json(value)}
        except (ValueError, RecursionError) as error:
            return _undecoded(value, f"looks like JSON, but can't be read: {error}")
    if value[:1] != b"\0":
        found = f"its first byte is {value[0]:#04x}" if value else "it is empty"
        return _undecoded(value, f"neither a JSON object nor Avro in the wire format: {found}")
    try:
        return {"value": _avro(value, store)}
    except (NotWireFormat, UnknownSchema, BadSchemaError, ValueError, RecursionError) as error:
        return _undecoded(value, str(error))


def _json(value: bytes) -> Any:
    """Read JSON, but reject a value that is too deep to print inside the record's JSON.

    NaN, which JSON lacks, becomes text. So does a number that no double can hold: Python would print it as Infinity.
    """
    text = value.decode()
    read = json.loads(
        text, parse_constant=str, parse_float=_number
    )  # without brackets, so an error names the right position
    json.loads("[" * SPARE_DEPTH + text + "]" * SPARE_DEPTH)  # raises RecursionError if it is too deep to print
    return read


def _number(text: str) -> float | str:
    number = float(text)
    return number if isfinite(number) else text


def _avro(value: bytes, store: SchemaStore) -> dict[str, Any]:
    definition = store.by_id(schema_id_of(value)).definition
    row = decode_row(value, definition)
    names = ("namespace", "name")
    if isinstance(definition, dict) and all(definition.get(n) == DEAD_LETTER.definition[n] for n in names):
        event = _value(decode_dead_letter(value, definition).value, store)
        row["value"] = event["value"]
        if "error" in event:
            row["value_error"] = event["error"]  # `error` is the dead letter's own
    return row


def _undecoded(value: bytes, error: str) -> dict[str, Any]:
    return {"value": {"base64": base64.b64encode(value).decode()}, "error": error}


def _line(shown: dict[str, Any]) -> str:
    text = printable_json(shown)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:  # half a surrogate pair, or a character that the terminal's encoding lacks
        return printable_json(shown, ascii_only=True)
    return text


def _time(timestamp: int) -> str | int | None:
    """The time in ISO 8601; the number itself if it isn't a valid date; None if there is no time."""
    return None if timestamp < 0 else iso_time(timestamp) or timestamp


def iso_time(milliseconds: int) -> str | None:
    """The time, in milliseconds since 1970, in ISO 8601; None if it isn't a valid date."""
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)  # exact: a float lacks digits for times far away
    except OverflowError:
        return None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    return text if text.isprintable() else {"base64": base64.b64encode(value).decode()}
