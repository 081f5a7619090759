"""`fetched.c` copies what messages hold, each byte of it, and gives every message back once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatch_build import compile_library
from millstream.consumers.source.fetched import LIBRARY
from millstream.schemas.packed import Packed
from tests.consumers.source.fetched_messages import TOPICS, Library, Message
from tests.consumers.test_records import BYTES, rows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not LIBRARY.exists(), reason="consumers/source/fetched.c is not compiled: no C compiler"
)

NAMES = st.binary(max_size=3).filter(lambda name: b"\0" not in name)
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
        leader_epoch=st.sampled_from([-1, 0, 7]),
    ),
    min_size=1,
    max_size=8,
)


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
            None
            if message.error
            else [(name.decode(errors="replace"), value) for name, value in message.headers] or None,
        )
        for message in messages
    ]
    assert len(set(records.partitions)) == len(records.partitions)
    assert isinstance(records.values, Packed) == all(message.value is not None for message in messages)
    assert library.given_back == library.addresses.tolist()
    assert library.most_detached <= 1, "librdkafka's parsed headers of several records were in memory at once"
    assert library.kept_headers == 0


def test_headers_are_read_even_if_values_are_not_where_they_are_expected() -> None:
    messages = [Message("in", 0, offset, 0, 1, None, b"value", [(b"name", b"1")], 0) for offset in range(3)]
    library = Library(messages, values_apart=True)
    records, _ = library.copier().take(library.addresses)
    assert [row[-1] for row in rows(records)] == [[("name", b"1")]] * 3
