"""Gives many records to the producer in one call of librdkafka, which confluent-kafka contains but does not offer.

With confluent-kafka's own calls, each record goes through Python twice: when it is produced, and for its delivery report, which
always takes the GIL. librdkafka's `rd_kafka_produce_batch` takes an array of records without the GIL. confluent-kafka makes no
delivery reports for these records, because they carry no state of it. So this is for transactions only: a transaction in which a
record failed can't be committed. `bulk.c` does the same for records with headers. If it is not compiled, these go one by one.
"""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer, cimpl

from millstream.consumers.client_handle import handle_of
from millstream.consumers.record_headers import HeaderRows
from millstream.schemas.compiled import compiled
from millstream.schemas.interleave import addresses_of
from millstream.schemas.packed import Packed

LIBRARY = Path(__file__).with_name("libbulk.so")
# The functions that `bulk.c` calls, in its order.
_FUNCTIONS = (
    "rd_kafka_produceva",
    "rd_kafka_error_code",
    "rd_kafka_error_destroy",
    "rd_kafka_headers_new",
    "rd_kafka_header_add",
    "rd_kafka_headers_destroy",
)
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64

# rd_kafka_message_t of librdkafka's rdkafka.h.
_MESSAGE = np.dtype(
    [
        ("err", np.intc),
        ("topic", np.uintp),
        ("partition", np.int32),
        ("payload", np.uintp),
        ("len", np.uintp),
        ("key", np.uintp),
        ("key_len", np.uintp),
        ("offset", np.int64),
        ("private", np.uintp),
    ],
    align=True,
)
_ANY_PARTITION = -1  # RD_KAFKA_PARTITION_UA: the partitioner chooses
_COPY = 2  # RD_KAFKA_MSG_F_COPY: librdkafka copies the bytes


class Bulk:
    """Produces many records per call. As thread-safe as the producer."""

    def __init__(self, producer: Producer, error_cb: object) -> None:
        """Args:
        producer: the producer.
        error_cb: the same object that the producer has as its `error_cb`.

        Raises:
            LookupError: native parts are not used, or this build of confluent-kafka has another memory layout.
        """
        self._producer = producer  # kept alive, because `_handle` points into it
        self._handle = handle_of(producer, error_cb)
        try:
            library = ctypes.CDLL(cimpl.__file__)  # also finds the functions of the librdkafka that it is linked with
            self._new_topic, self._drop_topic = library.rd_kafka_topic_new, library.rd_kafka_topic_destroy
            self._produce_batch = library.rd_kafka_produce_batch
            functions = [ctypes.cast(library[name], _POINTER).value for name in _FUNCTIONS]
        except (OSError, AttributeError) as missing:
            raise LookupError(str(missing)) from None
        self._new_topic.restype = ctypes.c_void_p
        self._new_topic.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        self._drop_topic.restype = None
        self._drop_topic.argtypes = (ctypes.c_void_p,)
        self._produce_batch.argtypes = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int, ctypes.c_void_p, ctypes.c_int
        self._functions = (_POINTER * len(functions))(*functions)
        try:
            self._with_headers = compiled(LIBRARY, "bulk_produce")
        except LookupError:
            self.takes_headers = False
            return
        self.takes_headers = True
        self._with_headers.restype = _COUNT
        self._with_headers.argtypes = *(_POINTER,) * 3, _COUNT, _POINTER, _COUNT, _POINTER

    def produce(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None], headers: HeaderRows | None = None
    ) -> int:
        """Produce records in their order, until the client's queue is full.

        Args:
            topic: of all of them.
            values: one per record.
            keys: one per record.
            headers: of each record; only if `takes_headers`.

        Returns:
            the number of records that the client took.

        Raises:
            KafkaException: the client refused a record. It may have taken others.
        """
        payloads, (names, without) = Packed.of(values), _keys(keys)
        if headers is not None:
            return self._opened(topic, lambda opened: self._produce_each(opened, payloads, names, without, headers))
        # `payloads` and `names` must live until the call is over: the records point into them.
        records = np.zeros(len(values), _MESSAGE)
        records["payload"], records["len"] = payloads.buffer.ctypes.data + payloads.starts, payloads.lengths
        records["key"], records["key_len"] = names.buffer.ctypes.data + names.starts, names.lengths
        records["key"][without] = 0  # NULL: a partitioner distinguishes it from an empty key
        batch = _ANY_PARTITION, _COPY, records.ctypes.data, len(records)
        taken = self._opened(topic, lambda opened: int(self._produce_batch(opened, *batch)))
        if taken < len(records):
            _raise_refusal(records["err"].tolist())
        return taken

    def _produce_each(
        self, opened: int, values: Packed, keys: Packed, without: Sequence[int], headers: HeaderRows
    ) -> int:
        lengths = keys.lengths.copy()
        lengths[without] = -1
        wanted = Packed.of([name.encode() for name in headers.names])
        columns, _kept = addresses_of([values, Packed(keys.buffer, keys.starts, lengths), headers.packed, wanted])
        refusal = ctypes.c_int()
        records = len(values), columns.ctypes.data, len(wanted)
        taken = int(self._with_headers(self._functions, self._handle[0], opened, *records, ctypes.byref(refusal)))
        _raise_refusal([refusal.value])
        return taken

    def _opened(self, topic: str, call: Callable[[int], int]) -> int:
        """Call with librdkafka's object for a topic."""
        client = self._handle[0]
        if client is None:
            raise RuntimeError("the producer is closed")
        opened = self._new_topic(client, topic.encode(), None)
        if opened is None:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"topic {topic}"))
        try:
            return call(opened)
        finally:
            self._drop_topic(opened)


def _keys(keys: Sequence[bytes | None]) -> tuple[Packed, list[int]]:
    """The keys, and the rows of those that are null."""
    if isinstance(keys, Packed):
        return keys, []
    without = [row for row, key in enumerate(keys) if key is None]
    return Packed.of([key or b"" for key in keys] if without else cast("Sequence[bytes]", keys)), without


def _raise_refusal(codes: Iterable[int]) -> None:
    """Raise for the first code that is an error. A full queue is not an error."""
    for code in codes:
        if code not in {0, KafkaError._QUEUE_FULL}:
            raise KafkaException(KafkaError(code))
