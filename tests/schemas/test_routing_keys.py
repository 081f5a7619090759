"""All places that route by a key take the same one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.packed import Packed, Texts
from millstream.schemas.routing_keys import routing_key, routing_keys

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@pytest.mark.parametrize(("key", "found"), [(None, "é-1".encode()), (b"", b""), (b"k", b"k")])
def test_key_is_the_records_or_else_the_events_id(key: bytes | None, found: bytes) -> None:
    assert routing_key(key, "é-1") == found


@given(st.lists(st.tuples(st.none() | st.binary(max_size=4), TEXTS), min_size=1, max_size=20))
def test_many_at_once_are_as_each_alone(events: list[tuple[bytes | None, str]]) -> None:
    keys, ids = [key for key, _ in events], [own for _, own in events]
    expected = [routing_key(key, own) for key, own in events]
    assert list(routing_keys(keys, ids)) == list(routing_keys(keys, Texts.of(ids))) == expected
    if None not in keys:
        assert list(routing_keys(Packed.of(expected), ids)) == expected
