"""Selects the events that a shadow runs on: a stable sample, the same in every worker and on replay.

An event is in the sample if `fmix32(crc32(salt + 0x00 + key) ^ crc32(salt + 0x00))` is less than `sample_rate` * 2^32. `key` is
the event's routing key: the record's key, or else the event ID in UTF-8. crc32 is zlib's, and fmix32 is the last step of
MurmurHash3. So either all events of a key are in the sample or none. The sample of a rate contains the samples of all smaller
rates. Samples with different salts are independent of each other.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from millstream.schemas.routing_keys import routing_keys

_HASH_RANGE = 1 << 32


def sampled(keys: Sequence[bytes | None], ids: Sequence[str], sample_rate: float, salt: str) -> npt.NDArray[np.bool_]:
    """Whether each event is in the sample: bool of shape [events].

    Args:
        keys: the keys of the events' records.
        ids: the event IDs, used for events without a key.
        sample_rate: the share of the keys to take, 0 to 1.
        salt: makes samples independent; the shadow's name.
    """
    if sample_rate >= 1:
        return np.ones(len(ids), np.bool_)
    start = zlib.crc32(salt.encode() + b"\0")
    crc = zlib.crc32
    hashes = np.fromiter((crc(key, start) for key in routing_keys(keys, ids)), np.uint32, count=len(ids))
    return _mixed(hashes, start) < np.uint64(max(sample_rate, 0.0) * _HASH_RANGE)


def _mixed(hashes: npt.NDArray[np.uint32], seed: int) -> npt.NDArray[np.uint64]:
    """fmix32. A CRC is linear: without it, the samples of two salts would be shifted copies of each other."""
    mixed = hashes ^ np.uint32(seed)
    mixed ^= mixed >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed.astype(np.uint64)
