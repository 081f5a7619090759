"""The schema-registry wire format: a zero byte, the schema id in four bytes, big-endian, then the body.

The body is Avro. Confluent's serializer for JSON Schema writes JSON there.
"""

import struct

from millstream.schemas.errors import NotWireFormat

HEAD_BYTES = 5
_HEAD = struct.Struct(">bI")
_UTF_BE = ("{".encode("utf-16-be"), "{".encode("utf-32-be"))  # JSON in these encodings begins with a zero byte, too


def frame(schema_id: int) -> bytes:
    """Return the 5 bytes that go before a body written by this schema."""
    return _HEAD.pack(0, schema_id)


def without_head(value: bytes) -> bytes:
    """JSON without the head that Confluent's serializer writes, if there is one. json_columns.c has this rule, too."""
    return value[HEAD_BYTES:] if value[:1] == b"\0" and len(value) >= HEAD_BYTES else value


def looks_like_avro(value: bytes) -> bool:
    """Whether a value that should be JSON has a schema registry's head, and no JSON behind it."""
    if len(value) < HEAD_BYTES or value[0] != 0 or value.startswith(_UTF_BE):
        return False
    return not without_head(value).lstrip().startswith((b"{", b"["))


def schema_id_of(value: bytes) -> int:
    """Return the schema id in a value's head; raise NotWireFormat if there is none."""
    if len(value) < HEAD_BYTES:
        raise NotWireFormat(
            f"expected the wire format (a zero byte, 4 bytes of schema id, an Avro body), found {len(value)} bytes: "
            "write the record with a schema-registry serializer, or put the 5 bytes before the Avro body"
        )
    if value[0] != 0:
        raise NotWireFormat(
            f"expected a value that starts with the zero byte of the wire format, found 0x{value[0]:02x}"
            f"{_guess(value)}: write the record with a schema-registry serializer, or put the 5 bytes before the body"
        )
    return int(_HEAD.unpack_from(value)[1])


def _guess(value: bytes) -> str:
    if value[:1] in b'{["':
        return " (it looks like JSON: is the topic's format json?)"
    return " (an Avro container file: send its records one by one)" if value[:4] == b"Obj\x01" else ""
