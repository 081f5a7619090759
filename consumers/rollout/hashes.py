"""Hashes routing keys: `fmix32(crc32(salt + 0x00 + key))`, the same in every language.

crc32 is zlib's, and fmix32 is the last step of MurmurHash3. docs/rollout-rules.md says why, with test vectors. `hashes.c` hashes
many keys per call. If it is not compiled, Python does so, more slowly.
"""

from __future__ import annotations

import ctypes
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from millstream.schemas.compiled import compiled
from millstream.schemas.packed import Packed

if TYPE_CHECKING:
    from collections.abc import Sequence

LIBRARY = Path(__file__).with_name("libhashes.so")
Hashes = npt.NDArray[np.uint32]
_POLYNOMIAL = 0xEDB88320  # zlib's, bits reversed


def hashed(keys: Sequence[bytes], salt: str) -> Hashes:
    """A hash per key: [keys]. Hashes of different salts are independent of each other."""
    before = zlib.crc32(salt.encode() + b"\0")
    if isinstance(keys, Packed) and len(keys):
        try:
            return _by_library(keys, before)
        except LookupError:
            pass
    crc = zlib.crc32
    return mixed(np.fromiter((crc(key, before) for key in keys), np.uint32, count=len(keys)))


def mixed(hashes: Hashes) -> Hashes:
    """fmix32. A CRC is linear: without this step, the variants of two rollouts would be shifted copies of each other."""
    found = hashes ^ (hashes >> np.uint32(16))
    found *= np.uint32(0x85EBCA6B)
    found ^= found >> np.uint32(13)
    found *= np.uint32(0xC2B2AE35)
    found ^= found >> np.uint32(16)
    return found


def _by_library(keys: Packed, before: int) -> Hashes:
    function = compiled(LIBRARY, "hash_keys")
    function.restype = ctypes.c_int64
    found = np.empty(len(keys), np.uint32)
    starts, lengths = (np.ascontiguousarray(ints, np.int64) for ints in (keys.starts, keys.lengths))
    done = function(
        ctypes.c_void_p(keys.buffer.ctypes.data), ctypes.c_int64(keys.buffer.size),
        *(ctypes.c_void_p(ints.ctypes.data) for ints in (starts, lengths)), ctypes.c_int64(len(keys)),
        ctypes.c_void_p(_tables().ctypes.data), ctypes.c_uint32(before), ctypes.c_void_p(found.ctypes.data),
    )  # fmt: skip
    if done < len(keys):
        raise ValueError(
            f"key {done}: expected bytes inside the buffer of {keys.buffer.size}, found {int(lengths[done])} from "
            f"{int(starts[done])} on: build the keys with `Packed.of`"
        )
    return found


@cache
def _tables() -> Hashes:
    """[8, 256]: the change of a CRC by a byte that so many bytes follow."""
    tables = np.empty((8, 256), np.uint32)
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, np.uint32(_POLYNOMIAL) ^ (first >> np.uint32(1)), first >> np.uint32(1))
    tables[0] = first
    for place in range(1, 8):
        before = tables[place - 1]
        tables[place] = tables[0][before & 0xFF] ^ (before >> np.uint32(8))
    return tables
