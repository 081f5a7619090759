import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.schemas.errors import NotWireFormat
from millstream.schemas.wire import frame, schema_id_of


def test_head_is_a_zero_byte_and_the_id_in_big_endian() -> None:
    assert frame(258) == b"\x00\x00\x00\x01\x02"


@given(st.integers(0, 2**32 - 1), st.binary())
def test_id_comes_back(schema_id: int, body: bytes) -> None:
    assert schema_id_of(frame(schema_id) + body) == schema_id


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "found 0 bytes"),
        (b"\x00\x00\x00\x01", "found 4 bytes"),
        (b'{"id": 1}', "is the topic's format json?"),
        (b"Obj\x01\x04\x14", "an Avro container file"),
        (b"\x01\x00\x00\x00\x01", "found 0x01"),
    ],
)
def test_other_values_are_refused_with_what_they_are(value: bytes, said: str) -> None:
    with pytest.raises(NotWireFormat, match=said.replace("?", r"\?")):
        schema_id_of(value)
