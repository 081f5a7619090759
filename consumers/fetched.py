"""Records as columns, as librdkafka has fetched them: without an object for each, and without the interpreter's lock.

`fetched.c` does that; it is compiled when Millstream is installed. Partitions that are followed give their records to a queue
of our own. All else, rebalances and errors, stays with confluent-kafka's consumer, which is polled beside it, and whoever waits
at our queue is woken for it.
"""

import ctypes
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError, cimpl

from consumers.client_handle import handle_of
from consumers.events import Headers, Partition
from consumers.records import NONE, Ints, Records
from schemas.packed import Packed

LIBRARY = Path(__file__).with_name("libfetched.so")
COLUMNS = ("place", "offset", "timestamp", "timestamp_type", "error", "value_length", "key_length", "header_bytes")
SUMS = ("partitions", "errors", "value_bytes", "null_values", "key_bytes", "null_keys", "header_bytes")
_LENGTHS = struct.Struct("=qq")  # of a header's name and value, as `fetched.c` writes them
_PARTITION = np.dtype([("topic", np.uintp), ("number", np.int64)])
_POINTER, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_FUNCTIONS: dict[str, tuple[Any, ...]] = {  # what each gives, and takes
    "rd_kafka_queue_new": (_POINTER, _POINTER),
    "rd_kafka_queue_destroy": (None, _POINTER),
    "rd_kafka_queue_forward": (None, _POINTER, _POINTER),
    "rd_kafka_queue_get_consumer": (_POINTER, _POINTER),
    "rd_kafka_queue_get_partition": (_POINTER, _POINTER, ctypes.c_char_p, ctypes.c_int32),
    "rd_kafka_queue_cb_event_enable": (None, _POINTER, _POINTER, _POINTER),
    "rd_kafka_consume_queue": (_POINTER, _POINTER, _INT),
    "rd_kafka_consume_batch_queue": (ctypes.c_ssize_t, _POINTER, _INT, _POINTER, _SIZE),
    "rd_kafka_topic_name": (ctypes.c_char_p, _POINTER),
}
_GIVEN = "rd_kafka_message_timestamp", "rd_kafka_message_headers", "rd_kafka_header_get_all", "rd_kafka_message_destroy"
"""What `fetched.c` calls, in the order of its `library`."""
_SLEEPERS: list[Any] = []
"""Who is woken by librdkafka's threads: kept until they are told to stop, whatever becomes of the reader."""


class Copier:
    """Copies what messages of librdkafka hold into columns."""

    def __init__(self, functions: Sequence[int | None], topic_name: Callable[[int], bytes]) -> None:
        """Args:
        functions: addresses of librdkafka's `_GIVEN`.
        topic_name: of a topic's address.

        Raises:
            OSError: `fetched.c` is not compiled for this machine.
        """
        self._library = ctypes.CDLL(str(LIBRARY))
        self._functions = (_POINTER * len(_GIVEN))(*functions)
        self._topic_name = topic_name
        self.wake = _address(self._library, "fetched_wake")

    def take(self, messages: npt.NDArray[np.uintp]) -> tuple[Records, Ints]:
        """All that messages hold, and their error codes, 0 for none; of an error, the value is its text.

        Args:
            messages: their addresses; at least one. librdkafka has them back.
        """
        count = len(messages)
        numbers = np.empty((len(COLUMNS), count), np.int64)
        columns = (_POINTER * len(COLUMNS))(*(row.ctypes.data for row in numbers))
        found, sums = np.empty(count, _PARTITION), (ctypes.c_int64 * len(SUMS))()
        about = self._functions, _POINTER(messages.ctypes.data), ctypes.c_int64(count), columns
        self._library.fetched_describe(*about, _POINTER(found.ctypes.data), sums)
        column, total = dict(zip(COLUMNS, numbers, strict=True)), dict(zip(SUMS, sums, strict=True))
        # Asked while the messages hold the topics.
        partitions = [
            (self._topic_name(topic).decode() if topic else "", at)
            for topic, at in found[: total["partitions"]].tolist()
        ]
        values, keys, headers = (
            np.empty(total[name], np.uint8) for name in ("value_bytes", "key_bytes", "header_bytes")
        )
        self._library.fetched_take(*about, *(_POINTER(buffer.ctypes.data) for buffer in (values, keys, headers)))
        records = Records(
            partitions,
            column["place"],
            column["offset"],
            column["timestamp"],
            column["timestamp_type"],
            _strings(keys, column["key_length"], total["null_keys"]),
            _strings(values, column["value_length"], total["null_values"]),
            _headers(headers, column["header_bytes"]) if total["header_bytes"] else None,
        )
        return records, column["error"]


class Fetched:
    """Reads a consumer's records. The thread that polls calls it."""

    def __init__(
        self, consumer: Consumer, error_cb: object, on_event: Callable[[KafkaError, Partition], object]
    ) -> None:
        """Args:
        consumer: that joins the group.
        error_cb: the very object that the consumer was told under this name.
        on_event: takes what comes in a record's place: the end of a partition, or an error.

        Raises:
            LookupError: `fetched.c` is not compiled, or this build of confluent-kafka is not laid out as expected.
        """
        self._consumer = consumer
        self._on_event = on_event
        self._handle = handle_of(consumer, error_cb)[0]
        try:
            client = ctypes.CDLL(cimpl.__file__)  # finds the functions of what it was linked with, too
            self._call = {name: _typed(client, name, *types) for name, types in _FUNCTIONS.items()}
            self._copier = Copier([_address(client, name) for name in _GIVEN], self._call["rd_kafka_topic_name"])
            wake_up = _address(client, "rd_kafka_queue_yield")
        except (OSError, AttributeError) as missing:
            raise LookupError(str(missing)) from None
        self._messages = np.empty(1, np.uintp)
        self._queue = self._call["rd_kafka_queue_new"](self._handle)
        self._events = self._call["rd_kafka_queue_get_consumer"](self._handle)
        self._sleeper = (_POINTER * 2)(wake_up, self._queue)
        _SLEEPERS.append(self._sleeper)
        self._call["rd_kafka_queue_cb_event_enable"](self._events, self._copier.wake, ctypes.addressof(self._sleeper))

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Let the records of partitions that were assigned come here. To be said of each assignment, before it is resumed."""
        for topic, number in partitions:
            # What is fetched of it goes to a queue that leads to the consumer's, and now to ours.
            own = self._call["rd_kafka_queue_get_partition"](self._handle, topic.encode(), number)
            self._call["rd_kafka_queue_forward"](own, self._queue)
            self._call["rd_kafka_queue_destroy"](own)

    def consume(self, limit: int, seconds: float) -> Records:
        """What is there, up to `limit` records; waits up to `seconds` for as many."""
        if strays := self._serve():
            return strays
        if len(self._messages) < limit:
            self._messages = np.empty(limit, np.uintp)
        milliseconds, messages = int(seconds * 1000), self._messages.ctypes.data
        return self._taken(self._call["rd_kafka_consume_batch_queue"](self._queue, milliseconds, messages, limit))

    def wait(self, seconds: float) -> Records:
        """The first record to come; none where something else comes, or nothing within `seconds`."""
        if strays := self._serve():
            return strays
        self._messages[0] = message = self._call["rd_kafka_consume_queue"](self._queue, int(seconds * 1000)) or 0
        return self._taken(1) if message else self._serve()

    def close(self) -> None:
        """Before the consumer is closed."""
        self._call["rd_kafka_queue_cb_event_enable"](self._events, None, None)
        self._call["rd_kafka_queue_destroy"](self._events)
        self._call["rd_kafka_queue_destroy"](self._queue)
        _SLEEPERS.remove(self._sleeper)

    def _serve(self) -> Records:
        """Let confluent-kafka call back whom it has to. A record comes of that only from a partition not followed yet."""
        strays: list[Any] = []
        while (message := self._consumer.poll(0)) is not None:
            if (error := message.error()) is None:
                strays.append(message)
            else:
                self._on_event(error, (message.topic() or "", message.partition() or 0))
        return Records.of(strays)

    def _taken(self, count: int) -> Records:
        """So many of `_messages`, those in a record's place told apart."""
        if count <= 0:
            return NONE
        records, errors = self._copier.take(self._messages[:count])
        if not errors.any():
            return records
        for row in np.flatnonzero(errors).tolist():
            text = (records.values[row] or b"").decode(errors="replace")
            self._on_event(KafkaError(int(errors[row]), text or None), records.partitions[records.places[row]])
        return records.take(errors == 0)


def _typed(library: ctypes.CDLL, name: str, gives: Any, *takes: Any) -> Callable[..., Any]:
    function = library[name]  # another object each time, so that nobody else's is typed
    function.restype, function.argtypes = gives, takes
    return partial(function)


def _address(library: ctypes.CDLL, name: str) -> int | None:
    return ctypes.cast(library[name], _POINTER).value


def _strings(buffer: npt.NDArray[np.uint8], lengths: Ints, nulls: int) -> "Packed | list[bytes | None]":
    """The strings that lie in the buffer end to end; -1 is the length of one that is null."""
    if not nulls:
        return Packed(buffer, lengths.cumsum() - lengths, lengths)
    there = lengths.clip(0)
    strings = Packed(buffer, there.cumsum() - there, there)
    return [None if length < 0 else string for string, length in zip(strings, lengths.tolist(), strict=True)]


def _headers(buffer: npt.NDArray[np.uint8], sizes: Ints) -> list[Headers | None]:
    content, at = buffer.tobytes(), 0
    records: list[Headers | None] = []
    for size in sizes.tolist():
        own: Headers = []
        end = at + size
        while at < end:
            name, value = _LENGTHS.unpack_from(content, at)
            at += _LENGTHS.size + name
            own.append((content[at - name : at].decode(), None if value < 0 else content[at : at + value]))
            at += max(value, 0)
        records.append(own or None)
    return records
