import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.shadow.sampling import sampled

KEYS = st.lists(st.one_of(st.none(), st.binary(max_size=12)), min_size=1, max_size=20)


def place(key: bytes, salt: str) -> float:
    """The documented hash, by pure Python, as a share."""
    start = zlib.crc32(salt.encode() + b"\0")
    value = zlib.crc32(key, start) ^ start
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = ((value ^ (value >> shift)) * factor) & 0xFFFFFFFF
    return (value ^ (value >> 16)) / 2**32


@given(KEYS, st.floats(0, 1), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
def test_sample_is_what_the_documentation_says(keys: list[bytes | None], sample_rate: float, salt: str) -> None:
    ids = [f"event-{number}" for number in range(len(keys))]
    wanted = [
        place(event_id.encode() if key is None else key, salt) < int(sample_rate * 2**32) / 2**32 or sample_rate >= 1
        for key, event_id in zip(keys, ids, strict=True)
    ]
    assert sampled(keys, ids, sample_rate, salt).tolist() == wanted


@given(KEYS, st.floats(0, 1), st.floats(0, 1))
def test_larger_share_contains_the_smaller(keys: list[bytes | None], first: float, second: float) -> None:
    ids = [str(number) for number in range(len(keys))]
    small, large = sampled(keys, ids, min(first, second), "s"), sampled(keys, ids, max(first, second), "s")
    assert not (small & ~large).any()


@pytest.mark.parametrize("sample_rate", [0.01, 0.1, 0.5])
def test_shares_come_out_and_samples_of_two_salts_are_independent(sample_rate: float) -> None:
    keys: list[bytes | None] = [b"key-%d" % number for number in range(40_000)]
    ids = [""] * len(keys)
    first, second = sampled(keys, ids, sample_rate, "a"), sampled(keys, ids, sample_rate, "b")
    slack = 5 * np.sqrt(sample_rate / len(keys))
    assert abs(first.mean() - sample_rate) < slack
    assert abs((first & second).mean() - sample_rate**2) < slack


@pytest.mark.parametrize(
    ("key", "salt", "expected"),
    [
        (b"", "", 0),
        (b"N14228", "shadow", 955018959),
        (b"N14228", "candidate", 2944662050),
        (b"\xff\x00", "shadow", 3415999318),
    ],
)
def test_hash_of_known_keys_never_changes(key: bytes, salt: str, expected: int) -> None:
    """Anybody's implementation of the documented hash must agree with these."""
    at = expected / 2**32
    assert not sampled([key], [""], at, salt)[0]
    assert sampled([key], [""], (expected + 1) / 2**32, salt)[0]
