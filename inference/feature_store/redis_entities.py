"""Entities in Redis: a hash or a JSON object under a key of each."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from millstream.inference.errors import FeatureStoreError
from millstream.inference.feature_store.hash_fields import HashField, read_fields
from millstream.inference.feature_store.interface import Entries, Keys
from millstream.inference.feature_store.key_template import KeyTemplate
from millstream.inference.feature_store.redis_connection import RedisConnection, UnexpectedAnswer, WrongType, bulk
from millstream.inference.times import Time
from millstream.schemas.column import Column, NumberColumn
from millstream.schemas.dtypes import Dtype
from millstream.schemas.errors import BadFieldError
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.table import Table

MAX_BYTES = 1 << 20  # of one entry's wanted fields. More of them would need much memory: a block has up to 6,144 events

_TEXT_OR_NONE = {bytes, type(None)}
_Answer = Any
"""An accepted answer: what a reader takes, None if there is no entry, or a text that says why it can't be read."""


class Reader(Protocol):
    """Reads entries of one form."""

    columns: Mapping[str, Dtype]

    def command(self, key: bytes) -> bytes:
        """The command that asks for an entry."""

    def accept(self, answer: Any) -> _Answer:
        """Check an answer of Redis', so that a large one needs no memory for long. Raises UnexpectedAnswer."""

    def read(self, answers: Sequence[_Answer]) -> tuple[Table, dict[int, str]]:
        """The columns of the entries, and row -> why not for those that can't be read."""


class RedisEntities:
    """See `Entities`."""

    def __init__(
        self, connection: RedisConnection, template: KeyTemplate, reader: Reader, updated: tuple[str, Time] | None
    ) -> None:
        """Args:
        connection: to the server.
        template: of the keys.
        reader: of the form that the entries have.
        updated: the field with the time at which an entry was written, which is one of the reader's columns, and its format.
        """
        self._connection = connection
        self._template = template
        self._reader = reader
        self._updated = updated

    @property
    def paths(self) -> Sequence[str]:
        """See Entities."""
        return self._template.paths

    @property
    def columns(self) -> Mapping[str, Dtype]:
        """See Entities."""
        return self._reader.columns

    def keys(self, events: Table) -> Keys:
        """See Entities."""
        return self._template.keys(events)

    def read(self, keys: Sequence[bytes | None]) -> Entries:
        """See Entities."""
        reader, asked = self._reader, [key for key in keys if key is not None]
        found = iter(self._connection.ask([reader.command(key) for key in asked], reader.accept))
        answers: list[_Answer] = [None if key is None else next(found) for key in keys]
        is_there = np.fromiter((answer is not None for answer in answers), np.bool_, len(answers))
        refused = {row: answer for row, answer in enumerate(answers) if isinstance(answer, str)}
        if refused:
            answers = [None if isinstance(answer, str) else answer for answer in answers]
        table, wrong = reader.read(answers)
        updated = None
        if self._updated is not None:
            path, form = self._updated
            updated, bad_times = _seconds(table[path], form)
            wrong |= dict.fromkeys(
                bad_times, f"field `{path}`, its time: expected {form.expected}, found another value"
            )
        messages = {row: f"the entry {_named(keys[row])} {why}" for row, why in refused.items()}
        messages |= {row: f"the entry {_named(keys[row])} can't be read: {why}" for row, why in wrong.items()}
        return Entries(table, is_there, messages, updated)

    def check(self) -> str:
        """See Entities. It reads as for an event, because the server may permit some commands or keys only."""
        key = self._template.blank()
        self.read([key])
        return f"keys {_named(key)} and the like can be read"

    def close(self) -> None:
        """See Entities."""
        self._connection.close()


class HashReader:
    """Entries that are hashes."""

    def __init__(self, types: Mapping[str, str], place: str) -> None:
        """Args:
        types: wanted path -> the type of its value, see `Reader.leaf`.
        place: of the look-up, for messages.

        Raises:
            FeatureStoreError: a path isn't a field of a hash.
        """
        self._fields = [HashField.of(path, leaf, place) for path, leaf in types.items()]
        self.columns: Mapping[str, Dtype] = {field.path: field.dtype for field in self._fields}
        names = [field.name.encode() for field in self._fields]
        self._head = b"*%d\r\n%b" % (len(names) + 2, bulk(b"HMGET"))
        self._tail = b"".join(map(bulk, names))

    def command(self, key: bytes) -> bytes:
        """See Reader."""
        return b"%b$%d\r\n%b\r\n%b" % (self._head, len(key), key, self._tail)

    def accept(self, answer: Any) -> _Answer:
        """See Reader."""
        if isinstance(answer, WrongType):
            return "isn't a hash in Redis (`value: hash`)"
        if (
            type(answer) is not list
            or len(answer) != len(self._fields)
            or not _TEXT_OR_NONE.issuperset(map(type, answer))
        ):
            raise UnexpectedAnswer(f"HMGET with {len(self._fields)} fields got {_kind(answer)}")
        there = list(filter(None, answer))
        if not there and not any(each is not None for each in answer):  # an empty text is a value
            return None
        size = sum(map(len, there))
        return _too_large(size) if size > MAX_BYTES else answer

    def read(self, answers: Sequence[_Answer]) -> tuple[Table, dict[int, str]]:
        """See Reader."""
        nothing = [None] * len(self._fields)
        by_field = list(zip(*(nothing if answer is None else answer for answer in answers), strict=True))
        columns, wrong = read_fields(self._fields, by_field)
        return Table(columns), wrong


class DocumentReader:
    """Entries that are JSON objects."""

    def __init__(self, types: Mapping[str, str], place: str) -> None:
        """Args: see HashReader. Raises FeatureStoreError if paths contradict each other."""
        try:
            self._decoder = JsonDecoder.of_types(types)
        except BadFieldError as error:
            raise FeatureStoreError(f"{place}: {str(error).removesuffix('.')}.") from None
        self.columns: Mapping[str, Dtype] = self._decoder.columns

    def command(self, key: bytes) -> bytes:
        """See Reader."""
        return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key)

    def accept(self, answer: Any) -> _Answer:
        """See Reader."""
        if isinstance(answer, WrongType):
            return "isn't a string in Redis with a JSON object (`value: json`)"
        if type(answer) not in _TEXT_OR_NONE:
            raise UnexpectedAnswer(f"GET got {_kind(answer)}")
        return _too_large(len(answer)) if answer is not None and len(answer) > MAX_BYTES else answer

    def read(self, answers: Sequence[_Answer]) -> tuple[Table, dict[int, str]]:
        """See Reader."""
        values = [b"{}" if answer is None else answer for answer in answers]
        decoded = self._decoder.decode(values)
        wrong = {bad.row: bad.error for bad in decoded.bad}
        if wrong:
            decoded = self._decoder.decode([b"{}" if row in wrong else value for row, value in enumerate(values)])
        return decoded.table, wrong


READERS: dict[str, Callable[[Mapping[str, str], str], Reader]] = {"hash": HashReader, "json": DocumentReader}
"""Option `value` of a look-up -> what reads its entries."""


def _seconds(column: Column, form: Time) -> tuple[npt.NDArray[np.float64], list[int]]:
    """Times as seconds since 1970, NaN for a null; and the rows of values that are no times."""
    converted, wrong, _ = form.convert(column, _no_times)
    assert isinstance(converted, NumberColumn)
    seconds = converted.values.astype(np.float64)
    if converted.valid is not None:
        seconds = np.where(converted.valid, seconds, np.nan)
    return seconds, [] if wrong is None else np.flatnonzero(wrong).tolist()


def _no_times() -> Any:
    raise AssertionError("only an age needs the events' times")


def _kind(answer: Any) -> str:
    """What an answer is, for messages. Its values are data, and not shown."""
    if isinstance(answer, list):
        return f"a list of {len(answer)} ({', '.join(sorted({type(each).__name__ for each in answer})) or 'nothing'})"
    return "nothing" if answer is None else f"a value of type {type(answer).__name__}"


def _too_large(size: int) -> str:
    return f"has {size:,} bytes, more than the limit of {MAX_BYTES:,}"


def _named(key: bytes | None) -> str:
    text = (key or b"").decode(errors="replace")
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
