"""`fetched.c` copies what messages hold, each byte of it, and gives every message back once."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.fetched import FUNCTIONS, LIBRARY, Copier
from hatch_build import compile_library
from schemas.packed import Packed
from tests.consumers.test_records import BYTES, rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="consumers/fetched.c is not compiled: no C compiler")

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
    headers: list[tuple[str, bytes | None]]
    error: int


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)
MESSAGES = st.lists(
    st.builds(
        Message,
        topic=st.sampled_from(TOPICS),
        partition=st.integers(0, 2),
        offset=st.integers(0, 2**63 - 1),
        timestamp=st.integers(-1, 2**63 - 1),
        timestamp_type=st.integers(0, 2),
        key=BYTES,
        value=BYTES,
        headers=st.lists(st.tuples(NAMES, BYTES), max_size=2),
        error=st.sampled_from([0, 0, 0, -191, 3]),
    ),
    min_size=1,
    max_size=8,
)


class Library:
    """Takes librdkafka's place: messages in memory, and the functions that are asked about them."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._names = [ctypes.create_string_buffer(name.encode()) for name in TOPICS]
        self._topics = {ctypes.addressof(buffer): buffer.value for buffer in self._names}
        self._kept: list[Any] = []
        self._structs = [self._struct(message) for message in messages]
        self.addresses = np.array([ctypes.addressof(struct) for struct in self._structs], np.uintp)
        self._of = dict(zip(self.addresses.tolist(), messages, strict=True))
        self.given_back: list[int] = []
        pointer, out = ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
        number = ctypes.POINTER(ctypes.c_int)
        size = ctypes.POINTER(ctypes.c_size_t)
        self._functions = [
            ctypes.CFUNCTYPE(ctypes.c_int64, pointer, number)(self._timestamp),
            ctypes.CFUNCTYPE(ctypes.c_int, pointer, out)(self._headers),
            ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.c_size_t, out, out, size)(self._header),
            ctypes.CFUNCTYPE(None, pointer)(self.given_back.append),
        ]

    def copier(self) -> Copier:
        addresses = [ctypes.cast(function, ctypes.c_void_p).value for function in self._functions]
        others: list[int | None] = [None] * (len(FUNCTIONS) - len(addresses))  # those that read
        return Copier(others + addresses, self._topics.__getitem__)

    def _address(self, content: bytes | None) -> int | None:
        if content is None:
            return None
        self._kept.append(ctypes.create_string_buffer(content, len(content) + 1))
        return ctypes.addressof(self._kept[-1])

    def _struct(self, message: Message) -> CMessage:
        topic = ctypes.addressof(self._names[TOPICS.index(message.topic)])
        value, key = message.value or b"", message.key or b""
        return CMessage(
            *(message.error, topic, message.partition, self._address(message.value), len(value)),
            *(self._address(message.key), len(key), message.offset, None),
        )

    def _timestamp(self, address: int, kind: Any) -> int:
        message: Message = self._of[address]
        kind[0] = message.timestamp_type
        return message.timestamp

    def _headers(self, address: int, headers: Any) -> int:
        headers[0] = address
        return 0 if self._of[address].headers else NOT_FOUND

    def _header(self, address: int, index: int, name: Any, value: Any, size: Any) -> int:
        headers = self._of[address].headers
        if index >= len(headers):
            return NOT_FOUND
        text, content = headers[index]
        name[0], value[0] = self._address(text.encode()), self._address(content)
        size[0] = len(content or b"")
        return 0


def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    compile_library(LIBRARY.with_name("fetched.c"), tmp_path / "library.so", "-Wall", "-Wextra", "-Werror")


@given(MESSAGES)
def test_columns_hold_what_the_messages_held(messages: list[Message]) -> None:
    library = Library(messages)
    records, errors = library.copier().take(library.addresses)
    assert errors.tolist() == [message.error for message in messages]
    assert rows(records) == [
        (
            (message.topic, message.partition),
            *(message.offset, message.timestamp_type, message.timestamp, message.key, message.value),
            None if message.error else message.headers or None,
        )
        for message in messages
    ]
    assert len(set(records.partitions)) == len(records.partitions)
    assert isinstance(records.values, Packed) == all(message.value is not None for message in messages)
    assert library.given_back == library.addresses.tolist()
