"""Many records by one call of librdkafka: one that confluent-kafka brings along and does not pass on.

By confluent-kafka's own calls a record goes through Python twice: when it is handed over, and for its delivery report, for which
it takes the interpreter's lock whatever is set. librdkafka's `rd_kafka_produce_batch` takes an array of records without that
lock, and confluent-kafka reports none of them, since they have no state of its own. So it is for records whose failure is told
in another way: a transaction that misses one can't be committed.
"""

import ctypes
from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaError, KafkaException, Producer, cimpl

from millstream.consumers.client_handle import handle_of
from millstream.schemas.packed import Packed

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
_ANY_PARTITION = -1  # RD_KAFKA_PARTITION_UA: as the partitioner says
_COPY = 2  # RD_KAFKA_MSG_F_COPY: the bytes are ours, and may go after the call


class Bulk:
    """Hands records of a producer over, many a call. As thread-safe as the producer."""

    def __init__(self, producer: Producer, error_cb: object) -> None:
        """Args:
        producer: whose records they are.
        error_cb: the very object that the producer was told under this name.

        Raises:
            LookupError: this build of confluent-kafka is not laid out as expected.
        """
        self._producer = producer  # what `_handle` is a part of
        self._handle = handle_of(producer, error_cb)
        try:
            library = ctypes.CDLL(cimpl.__file__)  # finds the functions of what it was linked with, too
            self._new_topic, self._drop_topic = library.rd_kafka_topic_new, library.rd_kafka_topic_destroy
            self._produce_batch = library.rd_kafka_produce_batch
        except (OSError, AttributeError) as missing:
            raise LookupError(str(missing)) from None
        self._new_topic.restype = ctypes.c_void_p
        self._new_topic.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        self._drop_topic.restype = None
        self._drop_topic.argtypes = (ctypes.c_void_p,)
        self._produce_batch.argtypes = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int, ctypes.c_void_p, ctypes.c_int

    def produce(self, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None]) -> int:
        """Hand records over in their order, until the client's queue is full.

        Returns:
            how many it took.

        Raises:
            KafkaException: one of them was refused; others may have been taken.
        """
        records = np.zeros(len(values), _MESSAGE)
        # They live until the call is over: the records point into them.
        payloads = Packed.of(values)
        without = [] if isinstance(keys, Packed) else [row for row, key in enumerate(keys) if key is None]
        names = Packed.of([key or b"" for key in keys] if without else cast("Sequence[bytes]", keys))
        records["payload"], records["len"] = payloads.buffer.ctypes.data + payloads.starts, payloads.lengths
        records["key"], records["key_len"] = names.buffer.ctypes.data + names.starts, names.lengths
        records["key"][without] = 0  # NULL: not the same as an empty one to a partitioner
        taken = self._hand_over(topic, records)
        if taken < len(records):
            refused = [code for code in records["err"].tolist() if code not in {0, KafkaError._QUEUE_FULL}]
            if refused:
                raise KafkaException(KafkaError(refused[0]))
        return taken

    def _hand_over(self, topic: str, records: npt.NDArray[np.void]) -> int:
        client = self._handle[0]
        if client is None:
            raise RuntimeError("the producer is closed")
        opened = self._new_topic(client, topic.encode(), None)
        if opened is None:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"topic {topic}"))
        try:
            return int(self._produce_batch(opened, _ANY_PARTITION, _COPY, records.ctypes.data, len(records)))
        finally:
            self._drop_topic(opened)
