"""Damage to bytes: what broken producers and networks do, and what an attacker would."""

from __future__ import annotations

from random import Random

EDGES = [
    *(0, 1, -1, 2, -2, 63, 64, 127, 128, 255, 256, 65535, 65536),
    *(2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**34, 2**53, 2**62, 2**63 - 1, -(2**63)),
]
"""Numbers at which integers of some width end."""
SPECIAL = [
    b"\x00",
    b"\xff",
    b"\x80",
    b"\x7f",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    b'"',
    b"\\",
    b"{",
    b"[",
]
"""Bytes with a meaning somewhere: NUL, no UTF-8 (surrogates, overlong, beyond Unicode), JSON's own."""


def zigzag(number: int) -> bytes:
    """A number as Avro writes an int or a long; beyond 64 bits it takes more bytes than any reader allows."""
    rest, out = (number << 1 if number >= 0 else ~(number << 1)), bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def hostile_varint(rng: Random) -> bytes:
    """A number at an edge; or one in more bytes than needed, than allowed, or without an end."""
    good = zigzag(rng.choice(EDGES))
    match rng.randrange(6):
        case 0:
            return good[:-1] + bytes([good[-1] | 0x80]) + b"\x80" * rng.randrange(9) + b"\x00"
        case 1:
            return b"\xff" * rng.randrange(1, 12) + bytes([rng.randrange(128)])
        case 2:
            return b"\x80" * rng.randrange(1, 12)
    return good


def damaged(value: bytes, others: list[bytes], rng: Random, spans: list[tuple[int, int]] | None = None) -> bytes:
    """One to three things done to a value.

    Args:
        value: the value.
        others: that parts may come from.
        rng: decides.
        spans: where the value's parts stand (start, stop), numbers among them.
    """
    body = bytearray(value)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        parts = [span for span in spans or () if span[1] <= len(body)]
        _damage(body, others, rng, rng.choice(parts) if parts and rng.random() < 0.6 else None)
    return bytes(body)


def _damage(body: bytearray, others: list[bytes], rng: Random, part: tuple[int, int] | None) -> None:
    start, stop = part or _somewhere(body, rng)
    match rng.randrange(10):
        case 0:
            del body[start:]
        case 1 if start < len(body):
            body[start] ^= 1 << rng.randrange(8)
        case 2:
            del body[start:stop]
        case 3:  # twice
            body[start:start] = body[start:stop]
        case 4:
            other = rng.choice(others) if others else b""
            at, until = _somewhere(other, rng)
            body[start:stop] = other[at:until]
        case 5:
            body += rng.randbytes(rng.randrange(1, 9))
        case 6:
            body[start:stop] = rng.choice(SPECIAL)
        case 7:
            body[start:stop] = rng.randbytes(rng.randrange(12))
        case _:
            body[start:stop] = hostile_varint(rng)


def _somewhere(value: bytes | bytearray, rng: Random) -> tuple[int, int]:
    start = rng.randrange(len(value) + 1)
    return start, min(len(value), start + rng.choice([0, 1, 1, 2, 4, 8, 30]))
