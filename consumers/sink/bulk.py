"""Gives many records to the producer in one call of librdkafka, which confluent-kafka contains but does not offer.

With confluent-kafka's own calls, each record goes through Python twice: when it is produced, and for its delivery report, which
always takes the GIL. librdkafka's `rd_kafka_produce_batch` takes an array of records without headers. `bulk.c` makes this array
from columns, without the GIL, and does the same for records with headers. If it is not compiled, records go one by one.

confluent-kafka makes no delivery reports for these records, because they carry no state of it. With transactions, none is needed:
a transaction in which a record failed can't be committed. Without transactions, `Watch` notes the first record that fails.
"""

import ctypes
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer, cimpl

from millstream.consumers.client_handle import handle_of, refusal
from millstream.consumers.record_headers import HeaderRows
from millstream.schemas.compiled import compiled
from millstream.schemas.interleave import addresses_of
from millstream.schemas.packed import Packed

log = logging.getLogger(__name__)

LIBRARY = Path(__file__).with_name("libbulk.so")
# The functions that `bulk.c` calls, in its order: to produce, and to watch.
_FUNCTIONS = (
    "rd_kafka_produce_batch",
    "rd_kafka_produceva",
    "rd_kafka_error_code",
    "rd_kafka_error_destroy",
    "rd_kafka_headers_new",
    "rd_kafka_header_add",
    "rd_kafka_headers_destroy",
)
_WATCHING = (
    "rd_kafka_conf_interceptor_add_on_new",
    "rd_kafka_interceptor_add_on_acknowledgement",
    "rd_kafka_topic_name",
)
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64

_PLUGINS = "plugin.library.paths"  # the client property


class Watch(ctypes.Structure):
    """Notes the first record of a producer that can't be delivered. `bulk.c` does so, as a plugin of librdkafka.

    It watches nothing unless `attached`: then no record may be produced in bulk.
    """

    _fields_ = (
        ("add_on_new", _POINTER),
        ("add_on_acknowledgement", _POINTER),
        ("topic_name", _POINTER),
        ("attached", ctypes.c_int),
        ("noted", ctypes.c_int),
        ("error", ctypes.c_int),
        ("topic", ctypes.c_char * 256),
    )

    @classmethod
    def of_next_producer(cls) -> Self:
        """Watch the next producer that is created with the result of `plugged`.

        Raises:
            LookupError: native parts are not used, `bulk.c` is not compiled, or this build of librdkafka takes no plugins.
        """
        if (reason := refusal()) is not None:
            raise LookupError(reason)
        begin = compiled(LIBRARY, "bulk_watch")
        begin.restype = None
        try:
            library = ctypes.CDLL(cimpl.__file__)
            watch = cls(*(ctypes.cast(library[name], _POINTER).value for name in _WATCHING))
            begin(ctypes.byref(watch))
            _try_plugin(library)
        except (OSError, AttributeError) as missing:
            raise LookupError(str(missing)) from None
        _watches.append(watch)
        return watch

    @staticmethod
    def plugged(client: Mapping[str, Any]) -> dict[str, Any]:
        """The client's settings with the plugin, after those that the settings name."""
        return {**client, _PLUGINS: ";".join(filter(None, (client.get(_PLUGINS), str(LIBRARY))))}

    @property
    def failure(self) -> tuple[KafkaError, str] | None:
        """Why the first record that failed did so, and its topic; None: none has failed."""
        code = int(self.error)
        return (KafkaError(code), self.topic.decode(errors="replace")) if code else None


# They live as long as the process: librdkafka's threads write to them until the producer is gone.
_watches: list[Watch] = []


def _try_plugin(library: ctypes.CDLL) -> None:
    """Have librdkafka load the plugin once. Raises LookupError."""
    library.rd_kafka_conf_new.restype = _POINTER
    library.rd_kafka_conf_set.argtypes = _POINTER, ctypes.c_char_p, ctypes.c_char_p, _POINTER, ctypes.c_size_t
    library.rd_kafka_conf_destroy.argtypes = (_POINTER,)
    library.rd_kafka_conf_destroy.restype = None
    settings, said = library.rd_kafka_conf_new(), ctypes.create_string_buffer(512)
    try:
        if library.rd_kafka_conf_set(settings, _PLUGINS.encode(), str(LIBRARY).encode(), said, len(said)):
            raise LookupError(said.value.decode(errors="replace"))
    finally:
        library.rd_kafka_conf_destroy(settings)


class Bulk:
    """Produces many records per call. As thread-safe as the producer."""

    def __init__(self, producer: Producer, error_cb: object) -> None:
        """Args:
        producer: the producer.
        error_cb: the same object that the producer has as its `error_cb`.

        Raises:
            LookupError: native parts are not used, `bulk.c` is not compiled, or this build of confluent-kafka has another memory
                layout.
        """
        self._producer = producer  # kept alive, because `_handle` points into it
        self._handle = handle_of(producer, error_cb)
        try:
            library = ctypes.CDLL(cimpl.__file__)  # also finds the functions of the librdkafka that it is linked with
            self._new_topic, self._drop_topic = library.rd_kafka_topic_new, library.rd_kafka_topic_destroy
            functions = [ctypes.cast(library[name], _POINTER).value for name in _FUNCTIONS]
        except (OSError, AttributeError) as missing:
            raise LookupError(str(missing)) from None
        self._new_topic.restype = ctypes.c_void_p
        self._new_topic.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
        self._drop_topic.restype = None
        self._drop_topic.argtypes = (ctypes.c_void_p,)
        self._functions = (_POINTER * len(functions))(*functions)
        self._plain, self._with_headers = (
            compiled(LIBRARY, name) for name in ("bulk_produce", "bulk_produce_with_headers")
        )
        self._plain.restype = self._with_headers.restype = _COUNT
        self._plain.argtypes = *(_POINTER,) * 2, _COUNT, *(_POINTER,) * 2
        self._with_headers.argtypes = *(_POINTER,) * 3, _COUNT, _POINTER, _COUNT, _POINTER

    def produce(
        self, topic: str, values: Sequence[bytes], keys: Sequence[bytes | None], headers: HeaderRows | None = None
    ) -> int:
        """Produce records in their order, until the client's queue is full.

        Args:
            topic: of all of them.
            values: one per record.
            keys: one per record.
            headers: of each record; None: they have none.

        Returns:
            the number of records that the client took.

        Raises:
            KafkaException: the client refused a record. It may have taken others.
        """
        given = [Packed.of(values), _keys(keys)]
        refused = ctypes.c_int()
        with self._opened(topic) as (client, opened):
            if headers is None:
                columns, _kept = addresses_of(given)
                records = len(values), columns.ctypes.data
                taken = self._plain(self._functions, opened, *records, ctypes.byref(refused))
            else:
                wanted = Packed.of([name.encode() for name in headers.names])
                columns, _kept = addresses_of([*given, headers.packed, wanted])
                sent = len(values), columns.ctypes.data, len(wanted)
                taken = self._with_headers(self._functions, client, opened, *sent, ctypes.byref(refused))
        if refused.value:
            raise KafkaException(KafkaError(refused.value))
        return int(taken)

    @contextmanager
    def _opened(self, topic: str) -> Iterator[tuple[int, int]]:
        """librdkafka's objects for the client and a topic."""
        client = self._handle[0]
        if client is None:
            raise RuntimeError("the producer is closed")
        opened = self._new_topic(client, topic.encode(), None)
        if opened is None:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, f"topic {topic}"))
        try:
            yield client, opened
        finally:
            self._drop_topic(opened)


def bulk_of(producer: Producer, error_cb: object) -> Bulk | None:
    """The bulk calls of a producer; None: they are not used, and the log says why."""
    try:
        return Bulk(producer, error_cb)
    except LookupError as unknown:
        log_one_by_one(unknown)
        return None


def log_one_by_one(why: LookupError) -> None:
    """Log why records are not produced in bulk."""
    if refusal() is None:  # otherwise the worker has logged the reason at its start
        log.info("records are handed to the Kafka client one by one, which takes more CPU: %s", why)


def _keys(keys: Sequence[bytes | None]) -> Packed:
    """The keys. The length -1 means null: a partitioner distinguishes it from an empty key."""
    if isinstance(keys, Packed):
        return keys
    packed = Packed.of([key or b"" for key in keys])
    without = np.fromiter((key is None for key in keys), np.bool_, len(keys))
    return Packed(packed.buffer, packed.starts, np.where(without, -1, packed.lengths))
