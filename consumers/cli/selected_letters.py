"""The dead letters that the options of a command select."""

import argparse
import sys
from collections.abc import Iterator

from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.printable import printable
from millstream.schemas.dead_letters import DeadLetter, DeadLetterError, decode_dead_letter
from millstream.schemas.errors import BadSchemaError, NotWireFormat, UnknownSchema
from millstream.schemas.store import SchemaStore
from millstream.schemas.wire import schema_id_of
from millstream.topics.dead_letter_reader import DeadLetterReader, Decode
from millstream.topics.dead_letters import NoLetter, Position, Selection, StoredLetter, Unread


def open_reader(pipeline: Pipeline, store: SchemaStore) -> DeadLetterReader:
    """A reader of the pipeline's dead-letter topic. Raises as `DeadLetterReader`."""
    return DeadLetterReader(pipeline.client_config(), pipeline.dead_letters.topic, _decoder(store))


def wanted(
    reader: DeadLetterReader, args: argparse.Namespace, unread: list[Unread], *, replayed: bool
) -> Iterator[StoredLetter]:
    """The letters that the arguments select. Reports on stderr records that aren't letters, and letters that can't be read."""
    missing = set(args.position)
    selection = Selection(
        reasons=frozenset(args.reason),
        errors=tuple(args.error),
        fields=tuple(args.field),
        topics=frozenset(args.topic),
        partitions=frozenset(args.source_partition),
        since=args.since,
        until=args.until,
    )
    for stored in reader.letters(replayed=replayed):
        if isinstance(stored, Unread):
            named = {position for position in args.position if position.partition == stored.position.partition}
            missing -= named
            if named or not args.position:
                _note_unread(stored, unread)
            continue
        if args.position and stored.position not in args.position:
            continue
        if isinstance(stored, NoLetter):
            print(f"{stored.position}: {printable(stored.error)}", file=sys.stderr)
        elif selection.takes(stored.letter):
            yield stored
        missing.discard(stored.position)
    for position in sorted(missing):
        _note_unread(Unread(position, "no dead letter is there, or it was replayed already"), unread)


def events(
    reader: DeadLetterReader, args: argparse.Namespace, unread: list[Unread]
) -> Iterator[tuple[Position, bytes]]:
    """The events of the letters that the arguments select. One that was replayed counts only if its position is named.

    Reports on stderr, and adds to `unread`, letters whose events are gone.
    """
    for stored in wanted(reader, args, unread, replayed=bool(args.position)):
        letter = stored.letter
        value = letter.value
        if value is None and (original := reader.original(letter)) is not None:
            value = original.value
        if value is None:
            gone = f"the letter holds no event (it was too large), and the event is gone from topic {letter.topic}"
            _note_unread(Unread(stored.position, gone), unread)
        else:
            yield stored.position, value


def _note_unread(one: Unread, unread: list[Unread]) -> None:
    print(f"{one.position}: {printable(one.error)}", file=sys.stderr)
    unread.append(one)


def _decoder(store: SchemaStore) -> Decode:
    def decode(value: bytes) -> DeadLetter:
        try:
            writer = store.by_id(schema_id_of(value)).definition
        except (NotWireFormat, UnknownSchema, BadSchemaError) as error:
            raise DeadLetterError(f"no dead letter: {error}") from None
        return decode_dead_letter(value, writer)

    return decode
