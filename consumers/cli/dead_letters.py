"""`millstream dead-letters list|show|replay`."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from rich.console import Console

from millstream.consumers.cli.columns import print_columns
from millstream.consumers.cli.early_signals import ctrl_c_ends
from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.cli.letter_advice import advice_on_letter
from millstream.consumers.cli.selected_letters import open_reader, wanted
from millstream.consumers.cli.tail import as_json, iso_time
from millstream.consumers.cli.usage.dead_letters import SELECTING
from millstream.consumers.decode.event_filter import EventFilter, filter_of
from millstream.consumers.decode.named_fields import schema_of
from millstream.consumers.schema_store import open_store
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.printable import printable, printable_json
from millstream.schemas.dead_letters import DeadLetter
from millstream.schemas.json.repeated_keys import repeated_keys
from millstream.schemas.packed import Packed
from millstream.schemas.store import SchemaStore
from millstream.schemas.wire import looks_like_avro
from millstream.schemas.wording import counted
from millstream.topics.admin import Admin
from millstream.topics.dead_letter_reader import DeadLetterReader
from millstream.topics.dead_letters import (
    NoLetter,
    Replay,
    Stays,
    StoredLetter,
    Unread,
)
from millstream.topics.permissions import needed_by_letters_replay, require_permissions
from millstream.topics.records import ReadRecord
from millstream.topics.replay import Replayer, batches, plan

HEADINGS = ("position", "failed at", "reason", "event", "key", "attempts", "replayed", "error")
PIPED_WIDTH = 3000  # columns of output that doesn't go to a terminal: one line per letter, for `grep`
MAX_ERROR_LENGTH = 100  # characters of an error in the table on a terminal
MAX_PIPED_ERROR_LENGTH = 1000  # the same in a pipe: errors end with what to do
MAX_REASON_LENGTH = 100  # characters of a reason in the summary
MAX_KEY_LENGTH = 60  # characters of a key: the column is as wide for all rows
MAX_CELL_LENGTH = 300  # characters of any other cell: longer than a topic's name
MAX_LISTED_ROWS = 10_000  # rows of the table, which is held in memory until it is printed
MAX_SHOWN_HEADERS = 20  # headers of one letter
MAX_REASONS = 50  # reasons in the summary: forged letters may each have a different one
ROW_BYTES = 16  # bytes in a row of a hex dump
MAX_SHOWN_BYTES = 1024  # of a value that can't be decoded
MAX_SHOWN_KEYS = 5  # of those that are there twice


def run(args: argparse.Namespace) -> int:
    """List, show or replay. Returns 1 if wanted letters could not be read, found or replayed."""
    if args.action == "list" and args.values and not args.json:
        args.parser.error("--values adds the events to the objects of --json. Add --json, or leave --values out.")
    pipeline = read_pipeline(args)
    store = open_store(pipeline)
    with ctrl_c_ends():
        opened = open_reader(pipeline, store)
    with opened as reader:
        if args.action == "replay":
            event_filter = filter_of(pipeline, store, schema_of(pipeline, store, "input"))
            return _replay(reader, pipeline, event_filter, args)
        with ctrl_c_ends():
            if args.action == "list":
                return _list(reader, store, args)
            return _show(reader.letter(args.position), pipeline, store, args)


def _list(reader: DeadLetterReader, store: SchemaStore, args: argparse.Namespace) -> int:
    unread = list[Unread]()
    letters = wanted(reader, args, unread, replayed=args.all)
    if args.json:
        for stored in islice(letters, args.limit):
            row = _whole(stored, _event(stored.letter, store)) if args.values else _row(stored)
            print(printable_json(row, ascii_only=True))
        return 1 if unread else 0
    rows: list[list[str]] = []
    reasons: Counter[str] = Counter()
    longest = MAX_ERROR_LENGTH if sys.stdout.isatty() else MAX_PIPED_ERROR_LENGTH
    for stored in letters:
        reason = _cut(stored.letter.reason, MAX_REASON_LENGTH)
        reasons[reason if reason in reasons or len(reasons) < MAX_REASONS else "of other reasons"] += 1
        if reasons.total() <= min(args.limit or MAX_LISTED_ROWS, MAX_LISTED_ROWS):
            rows.append([*_cells(stored, longest)])
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH, markup=False, highlight=False)
    if rows:
        print_columns(console, HEADINGS, rows)
    if len(rows) < reasons.total():
        console.print(f"... and {reasons.total() - len(rows):,} more")
    console.print(_summary(reasons, args))
    return 1 if unread else 0


def _summary(reasons: Counter[str], args: argparse.Namespace) -> str:
    if not reasons:
        if args.all:
            return "the options select no dead letter" if _selects(args) else "no dead letters"
        return f"{_none_left(args)}; --all also lists those replayed"
    by_reason = ", ".join(f"{count:,} {printable(reason)}" for reason, count in reasons.most_common())
    return f"{counted(reasons.total(), 'dead letter')}: {by_reason}"


def _none_left(args: argparse.Namespace) -> str:
    return f"no dead letter{' that the options select is left' if _selects(args) else 's'} to replay"


def _selects(args: argparse.Namespace) -> bool:
    return any(getattr(args, name) for name in SELECTING)


def _row(stored: StoredLetter) -> dict[str, Any]:
    letter = stored.letter
    ran = {}
    if letter.model is not None:  # of a pipeline with a rollout
        rollout = None if letter.rollout is None else letter.rollout._asdict()
        ran = {"model": letter.model, "version": letter.version, "variant": letter.variant, "rollout": rollout}
    return {
        "position": str(stored.position),
        "failed_at": _time(letter.failed_at),
        "reason": letter.reason,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        **_json_key(letter.key),
        "attempts": letter.attempts,
        "replayed_at": _time(stored.replayed_at),
        "error": letter.error,
        **ran,
    }


def _cells(stored: StoredLetter, longest: int) -> Iterator[str]:
    """The cells of the table's row. `longest`: characters of the error."""
    row = _row(stored)
    event = f"{row['topic']}/{row['partition']}@{row['offset']}"
    key = _text(stored.letter.key)
    for cell in (
        row["position"],
        row["failed_at"],
        row["reason"],
        event,
        key and _cut(key, MAX_KEY_LENGTH),
        row["attempts"],
        row["replayed_at"],
    ):
        yield "-" if cell is None else printable(_cut(str(cell), MAX_CELL_LENGTH))
    yield printable(_cut(stored.letter.error, longest))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _show(stored: StoredLetter | NoLetter, pipeline: Pipeline, store: SchemaStore, args: argparse.Namespace) -> int:
    topic = pipeline.dead_letters.topic
    if isinstance(stored, NoLetter):
        print(f"{stored.position} of {topic}: {printable(stored.error)}", file=sys.stderr)
        return 1
    letter, row = stored.letter, _row(stored)
    value = letter.value
    event = _event(letter, store)
    if args.json:
        print(printable_json(_whole(stored, event), ascii_only=True))
        return 0
    advice = advice_on_letter(pipeline, store, letter, event["value"])
    lines = {
        "dead letter": f"{stored.position} of {topic}",
        "pipeline": letter.pipeline,
        "reason": letter.reason,
        "error": letter.error,
        **({"advice": advice} if advice else {}),
        "failed at": row["failed_at"],
        "attempts": letter.attempts,
        "replayed at": row["replayed_at"] or "not replayed",
        "event": f"{letter.topic}/{letter.partition}@{letter.offset}",
        "timestamp": f"{event['timestamp'] or 'none'} ({letter.timestamp_type or 'type not known'})",
        "key": printable_json(event["key"]),
    }
    headers = event.get("headers", [])
    rows = [*lines.items(), *((f"header {name}", printable_json(text)) for name, text in headers[:MAX_SHOWN_HEADERS])]
    if len(headers) > MAX_SHOWN_HEADERS:
        rows.append(("headers", f"{len(headers) - MAX_SHOWN_HEADERS} more"))
    if value is not None and pipeline.input.format == "json" and (repeated := repeated_keys(value)):
        rows.append(("keys twice", f"{', '.join(repeated[:MAX_SHOWN_KEYS])}: the last one counts, and is shown"))
    rows.append(("value", "left out: see the error" if value is None else f"{len(value)} bytes"))
    for name, text in rows:
        print(f"{printable(name):<12} {printable(str(text))}")
    if value is not None:
        decoded = "error" not in event
        is_other = pipeline.input.format == "json" and looks_like_avro(value)  # then the schema isn't the problem
        why = "this pipeline reads JSON" if is_other else printable(event.get("error", ""))
        print(printable_json(event["value"], indent=2) if decoded else f"not decoded: {why}\n{_hex(value)}")
    return 0


def _event(letter: DeadLetter, store: SchemaStore) -> dict[str, Any]:
    """The event, decoded if possible."""
    return as_json(
        ReadRecord(
            letter.topic, letter.partition, letter.offset, letter.timestamp, letter.key, letter.value, letter.headers
        ),
        store,
    )


def _whole(stored: StoredLetter, event: Mapping[str, Any]) -> dict[str, Any]:
    """A letter with its event, for programs."""
    letter = stored.letter
    return {**_row(stored), "pipeline": letter.pipeline, **_json_event(event, letter.value)}


def _json_event(event: Mapping[str, Any], value: bytes | None) -> dict[str, Any]:
    """The event of a letter for programs: decoded if possible, else as hex with the reason; null if the letter holds none."""
    about = {"timestamp": event["timestamp"], "headers": event.get("headers", [])}
    if value is None:
        return {**about, "value": None}
    why = event["error"] if "error" in event else _why_unreadable(event["value"])
    return {**about, "value_hex": value.hex(), "not_decoded": why} if why else {**about, "value": event["value"]}


def _why_unreadable(value: Any) -> str:
    """Why readers of JSON refuse a decoded event; empty if they don't."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "the event has half of a character (a lone surrogate)"
    return ""


def _hex(value: bytes) -> str:
    lines = []
    for start in range(0, min(len(value), MAX_SHOWN_BYTES), ROW_BYTES):
        piece = value[start : start + ROW_BYTES]
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in piece)
        lines.append(f"{start:08x}  {piece.hex(' '):<{3 * ROW_BYTES}} {text}")
    if len(value) > MAX_SHOWN_BYTES:
        lines.append(f"... {len(value) - MAX_SHOWN_BYTES:,} more bytes: --json writes all of them")
    return "\n".join(lines)


def _replay(
    reader: DeadLetterReader, pipeline: Pipeline, event_filter: EventFilter | None, args: argparse.Namespace
) -> int:
    if args.dry_run:
        return _dry_run(reader, pipeline, event_filter, args)
    if sys.stdin.isatty() and not args.yes and not _agreed(reader, pipeline, args):
        return 1
    # Otherwise the broker's refusal reaches the client as the end of a transaction, for no reason that it states.
    require_permissions(Admin(pipeline.client_config()), pipeline, needed_by_letters_replay(pipeline))
    done, copies, stays = 0, 0, list[Stays]()
    with Replayer(pipeline.client_config(), pipeline.group_id, pipeline.dead_letters.topic) as replayer:
        # Start before reading: this ends a transaction that an earlier replay left open, so its markers can be read.
        replayer.start()
        try:
            for batch in batches(_replays(reader, pipeline, event_filter, args, stays)):
                refused = replayer.replay(batch)
                done += len(batch) - len(refused)
                copies += sum(each.copy_of is not None for each in batch if each.position not in refused)
                for position, why in refused.items():
                    _note(Stays(position, why), stays)
        finally:
            again = f" ({copies:,} of them have the event of another one, which is written once)" if copies else ""
            print(f"{done:,} replayed{again}{_staying(stays)}")
    return _end(done, stays, args)


def _dry_run(
    reader: DeadLetterReader, pipeline: Pipeline, event_filter: EventFilter | None, args: argparse.Namespace
) -> int:
    stays = list[Stays]()
    count = 0
    for replay in _replays(reader, pipeline, event_filter, args, stays):
        count += 1
        to = f"nothing: its event is that of {replay.copy_of}"
        if replay.copy_of is None:
            key = printable(_cut(_text(replay.key) or "-", MAX_CELL_LENGTH))
            to = f"{replay.topic}/{replay.partition}, key {key}, {len(replay.value)} bytes"
        print(f"{replay.position} -> {to}")
    print(f"{count:,} would be replayed{_staying(stays)}")
    return _end(count, stays, args)


def _end(count: int, stays: list[Stays], args: argparse.Namespace) -> int:
    """The exit code of a replay of `count` letters. Tells if there was none."""
    if not count and not stays:
        print(f"{_none_left(args)}; `millstream dead-letters list --all` also lists those replayed")
    return 1 if stays else 0


def _agreed(reader: DeadLetterReader, pipeline: Pipeline, args: argparse.Namespace) -> bool:
    planned = plan(wanted(reader, args, [], replayed=False), reader, pipeline)
    count = sum(1 for _ in islice((item for item in planned if isinstance(item, Replay)), args.limit))
    return input(f"Write {count:,} events to {', '.join(pipeline.input.topics)} again? [y/N] ").strip().lower() in {
        "y",
        "yes",
    }


def _replays(
    reader: DeadLetterReader,
    pipeline: Pipeline,
    event_filter: EventFilter | None,
    args: argparse.Namespace,
    stays: list[Stays],
) -> Iterator[Replay]:
    """The events to write, up to the limit. Letters that can't be replayed are reported and added to `stays`."""
    count = 0
    unread = list[Unread]()
    for item in plan(wanted(reader, args, unread, replayed=False), reader, pipeline):
        if isinstance(item, Stays):
            _note(item, stays)
            continue
        if event_filter is not None and len(event_filter.split(Packed.of([item.value])).left_out):
            _note(
                Stays(item.position, f"its event doesn't pass input.filter ({event_filter}), so workers would skip it"),
                stays,
            )
            continue
        yield item
        count += 1
        if count == args.limit:
            return
    stays += [Stays(one.position, one.error) for one in unread]  # already reported


def _note(item: Stays, stays: list[Stays]) -> None:
    stays.append(item)
    print(f"{item.position} stays: {printable(item.why)}.", file=sys.stderr)


def _staying(stays: list[Stays]) -> str:
    return f", {len(stays):,} could not be" if stays else ""


def _time(timestamp: int | None) -> str | None:
    """The time in ISO 8601; the number itself if it isn't a valid date."""
    return None if timestamp is None else iso_time(timestamp) or str(timestamp)


def _json_key(key: bytes | None) -> dict[str, str | None]:
    """The key for programs, which can restore each byte of it: as text, or as hex if it is no UTF-8."""
    if key is None:
        return {"key": None}
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key_hex": key.hex()}


def _text(key: bytes | None) -> str | None:
    """The key as text; as hex if it isn't printable text."""
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return key.hex()
    return text if text.isprintable() else key.hex()
