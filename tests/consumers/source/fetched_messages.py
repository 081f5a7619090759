"""Stands in for librdkafka where `fetched.c` is tested: messages in memory."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.consumers.source.fetched import FUNCTIONS, Copier

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPICS = "in", "other"
NOT_FOUND = -156  # librdkafka's answer where there are no headers, or no more


class CMessage(ctypes.Structure):
    """rd_kafka_message_t of librdkafka's rdkafka.h."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("_private", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Message:
    """What one holds."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]  # names as librdkafka has them: any bytes without a zero
    error: int
    leader_epoch: int = 0  # -1: of a batch older than version 2, where nothing follows a value


class Library:
    """Takes librdkafka's place: messages in memory, and the functions that are asked about them."""

    def __init__(self, messages: Sequence[Message], *, values_apart: bool = False) -> None:
        """Args:
        messages: what it has fetched.
        values_apart: whether values are copies with a zero byte behind them, as if librdkafka had taken them out of the
            broker's answer.
        """
        self._values_apart = values_apart
        self._names = [ctypes.create_string_buffer(name.encode()) for name in TOPICS]
        self._topics = {ctypes.addressof(buffer): buffer.value for buffer in self._names}
        self._kept: list[Any] = []
        self._structs = [self._struct(message) for message in messages]
        self.addresses = np.array([ctypes.addressof(struct) for struct in self._structs], np.uintp)
        self._of = dict(zip(self.addresses.tolist(), messages, strict=True))
        self.given_back: list[int] = []
        self._detached: set[int] = set()  # whose headers the caller owns
        self.most_detached = 0
        pointer, out = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
        number = ctypes.POINTER(ctypes.c_int)
        size = ctypes.POINTER(ctypes.c_size_t)
        self._functions = [
            ctypes.CFUNCTYPE(ctypes.c_int64, pointer, number)(self._timestamp),
            ctypes.CFUNCTYPE(ctypes.c_int32, pointer)(lambda address: self._of[address].leader_epoch),
            ctypes.CFUNCTYPE(ctypes.c_int, pointer, out)(self._detach_headers),
            ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.c_size_t, out, out, size)(self._header),
            ctypes.CFUNCTYPE(None, pointer)(self._destroy_headers),
            ctypes.CFUNCTYPE(None, pointer)(self.given_back.append),
        ]

    def copier(self) -> Copier:
        addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in self._functions]
        others: list[int | None] = [None] * (len(FUNCTIONS) - len(addresses))  # those that read
        return Copier(others + addresses, self._topics.__getitem__)

    def _address(self, content: bytes | None) -> int | None:
        """Where a copy is, with nothing behind it, so that the address sanitizer tells of a byte too many."""
        if content is None:
            return None
        self._kept.append(np.frombuffer(content, np.uint8).copy())
        return int(self._kept[-1].ctypes.data)

    def _struct(self, message: Message) -> CMessage:
        topic = ctypes.addressof(self._names[TOPICS.index(message.topic)])
        value, key = message.value or b"", message.key or b""
        return CMessage(
            *(message.error, topic, message.partition, self._address(self._placed(message)), len(value)),
            *(self._address(message.key), len(key), message.offset, None),
        )

    def _placed(self, message: Message) -> bytes | None:
        """The value and what lies behind it in memory: in the broker's answer, the number of headers, if they can follow."""
        if not message.value:
            return message.value if message.value is None else b"\0"  # librdkafka's own empty text
        if message.leader_epoch < 0:
            return message.value + b"\0"  # the next message begins with its offset
        return message.value + bytes([0 if self._values_apart else len(message.headers)])

    def _timestamp(self, address: int, kind: Any) -> int:
        message: Message = self._of[address]
        kind[0] = message.timestamp_type
        return message.timestamp

    @property
    def kept_headers(self) -> int:
        """Of how many records the headers were taken and not given back."""
        return len(self._detached)

    def _detach_headers(self, address: int, headers: Any) -> int:
        if not self._of[address].headers:
            return NOT_FOUND
        self._detached.add(address)
        self.most_detached = max(self.most_detached, len(self._detached))
        headers[0] = address
        return 0

    def _destroy_headers(self, address: int) -> None:
        self._detached.remove(address)

    def _header(self, address: int, index: int, name: Any, value: Any, size: Any) -> int:
        headers = self._of[address].headers
        if index >= len(headers):
            return NOT_FOUND
        text, content = headers[index]
        name[0], value[0] = self._address(text + b"\0"), self._address(content)
        size[0] = len(content or b"")
        return 0
