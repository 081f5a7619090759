"""Takes the records that librdkafka has fetched as columns, without a Python object per record and without holding the GIL.

`fetched.c` copies the records; it is compiled when Millstream is installed. confluent-kafka's consumer still joins the group,
commits and seeks. Its callbacks run while this module waits for records, as they do in its own method `consume`.
"""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError, cimpl

from millstream.consumers.client_handle import handle_of
from millstream.consumers.record_headers import RecordHeaders
from millstream.consumers.record_types import Partition
from millstream.consumers.records import NONE, Records
from millstream.schemas.arrays import Ints
from millstream.schemas.packed import Packed

LIBRARY = Path(__file__).with_name("libfetched.so")
FUNCTIONS = (  # the functions that `fetched.c` calls, in the order of its struct `library`
    "CallState_begin",
    "CallState_end",
    "rd_kafka_queue_get_consumer",
    "rd_kafka_queue_destroy",
    "rd_kafka_consume_batch_queue",
    "rd_kafka_message_timestamp",
    "rd_kafka_message_leader_epoch",
    "rd_kafka_message_detach_headers",
    "rd_kafka_header_get_all",
    "rd_kafka_headers_destroy",
    "rd_kafka_message_destroy",
)
COLUMNS = (  # the enum of `fetched.c`
    "place",
    "offset",
    "timestamp",
    "timestamp_type",
    "error",
    "value_start",
    "value_length",
    "key_start",
    "key_length",
    "header_bytes",
    "bytes",
)
SUMS = ("partitions", "errors", "value_bytes", "null_values", "key_bytes", "null_keys", "header_bytes", "headers")
_PARTITION = np.dtype([("topic", np.uintp), ("number", np.int64)])
_POINTER = ctypes.c_void_p


class Copier:
    """Copies librdkafka's messages into columns."""

    def __init__(self, functions: Sequence[int | None], topic_name: Callable[[int], bytes]) -> None:
        """Args:
        functions: the addresses of `FUNCTIONS`.
        topic_name: returns the name of the topic at an address.

        Raises:
            OSError: `fetched.c` is not compiled for this machine.
        """
        self._library = ctypes.CDLL(str(LIBRARY))
        about = _POINTER, _POINTER, ctypes.c_int64
        self._library.fetched_describe.argtypes = *about, _POINTER, _POINTER, _POINTER
        self._library.fetched_take.argtypes = *about, _POINTER, _POINTER, _POINTER, _POINTER
        self._library.fetched_take.restype = None
        self.functions = (_POINTER * len(FUNCTIONS))(*functions)
        self._topic_name = topic_name

    def take(self, messages: npt.NDArray[np.uintp]) -> tuple[Records, Ints]:
        """Copy messages; returns records and their error codes (0: no error). If a message is an error, its value is the text.

        Args:
            messages: the addresses of the messages, at least one. They are given back to librdkafka.
        """
        count = len(messages)
        numbers = np.empty((len(COLUMNS), count), np.int64)
        found, sums = np.empty(count, _PARTITION), (ctypes.c_int64 * len(SUMS))()
        about = self.functions, messages.ctypes.data, count
        if self._library.fetched_describe(*about, numbers.ctypes.data, found.ctypes.data, sums):
            raise MemoryError("there is not enough memory for the headers of the records")
        column, total = dict(zip(COLUMNS, numbers, strict=True)), dict(zip(SUMS, sums, strict=True))
        partitions = [  # read the names now: topics may be freed together with the messages
            (self._topic_name(topic).decode() if topic else "", at)
            for topic, at in found[: total["partitions"]].tolist()
        ]
        values, keys, headers = (
            np.empty(total[name], np.uint8) for name in ("value_bytes", "key_bytes", "header_bytes")
        )
        self._library.fetched_take(*about, sums, *(buffer.ctypes.data for buffer in (values, keys, headers)))
        records = Records(
            partitions,
            column["place"],
            column["offset"],
            column["timestamp"],
            column["timestamp_type"],
            _strings(keys, column["key_start"], column["key_length"], total["null_keys"]),
            _strings(values, column["value_start"], column["value_length"], total["null_values"]),
            _headers(headers, column["header_bytes"]) if total["header_bytes"] else {},
            column["bytes"],
        )
        return records, column["error"]


class Fetched:
    """Reads a consumer's records, many per call."""

    def __init__(
        self, consumer: Consumer, error_cb: object, on_event: Callable[[KafkaError, Partition], object]
    ) -> None:
        """Args:
        consumer: the consumer that joins the group.
        error_cb: the same object that the consumer got as its setting `error_cb`.
        on_event: called with each message that isn't a record: the end of a partition, or an error.

        Raises:
            LookupError: `fetched.c` is not compiled, native parts are switched off, or this build of confluent-kafka doesn't have
                the expected memory layout.
        """
        self._consumer = consumer
        self._handle = handle_of(consumer, error_cb)
        self._on_event = on_event
        self._messages = np.empty(0, np.uintp)
        try:
            client = ctypes.CDLL(cimpl.__file__)  # also finds functions of the libraries that it is linked with
            topic_name = client["rd_kafka_topic_name"]
            topic_name.restype, topic_name.argtypes = ctypes.c_char_p, (_POINTER,)
            self._copier = Copier([ctypes.cast(client[name], _POINTER).value for name in FUNCTIONS], topic_name)
            # PyDLL calls it with the GIL, which the function releases itself.
            self._consume = ctypes.PyDLL(str(LIBRARY))["fetched_consume"]
        except (OSError, AttributeError) as missing:
            raise LookupError(str(missing)) from None
        self._consume.restype = ctypes.c_int64
        self._consume.argtypes = _POINTER, ctypes.py_object, _POINTER, ctypes.c_int, _POINTER, ctypes.c_int64

    def consume(self, limit: int, seconds: float) -> Records:
        """Read up to `limit` records; waits for them up to `seconds`. The consumer's callbacks run inside this call."""
        client = self._handle[0]
        if client is None:
            raise RuntimeError("the consumer is closed")
        if len(self._messages) < limit:
            self._messages = np.empty(limit, np.uintp)
        functions, messages = self._copier.functions, self._messages.ctypes.data
        count = self._consume(functions, self._consumer, client, int(seconds * 1000), messages, limit)
        if count <= 0:
            return NONE
        records, errors = self._copier.take(self._messages[:count])
        if not errors.any():
            return records
        for row in np.flatnonzero(errors).tolist():
            text = (records.values[row] or b"").decode(errors="replace")
            self._on_event(KafkaError(int(errors[row]), text or None), records.partitions[records.places[row]])
        return records.take(errors == 0)


def _strings(buffer: npt.NDArray[np.uint8], starts: Ints, lengths: Ints, nulls: int) -> "Packed | list[bytes | None]":
    """The strings in the buffer; a null has the length -1."""
    if not nulls:
        return Packed(buffer, starts, lengths)
    if nulls == len(lengths):  # such as the keys of a producer that sets none
        return [None] * nulls
    strings = Packed(buffer, starts, lengths.clip(0))
    return [None if length < 0 else string for string, length in zip(strings, lengths.tolist(), strict=True)]


def _headers(buffer: npt.NDArray[np.uint8], sizes: Ints) -> dict[int, RecordHeaders]:
    """The headers of the records that have any, by the record's row."""
    rows = np.flatnonzero(sizes)
    ends = sizes[rows].cumsum()
    places = zip(rows.tolist(), (ends - sizes[rows]).tolist(), ends.tolist(), strict=True)
    return {row: RecordHeaders(buffer[start:end].tobytes()) for row, start, end in places}
