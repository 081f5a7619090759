"""Compares hashes for routing: evenness over slots, independence between salts, and time per key.

Run: python -m benchmarks.routing_hashes
"""

from __future__ import annotations

import hashlib
import itertools
import time
import zlib
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2, chi2_contingency

from millstream.consumers.rollout.hashes import Hashes, hashed
from millstream.schemas.packed import Packed

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = 200_000
SALTS = [f"rollout-{number}" for number in range(40)]
KINDS: dict[str, Callable[[int], bytes]] = {
    "numbers": lambda number: b"%d" % number,
    "customer-000000000001": lambda number: b"customer-%012d" % number,
    "UUIDs": lambda number: hashlib.md5(b"%d" % number).hexdigest().encode(),
}


def by_sha256(keys: Packed, salt: str) -> Hashes:
    """The first four bytes of SHA-256."""
    start = hashlib.sha256(salt.encode() + b"\0")

    def of(key: bytes) -> int:
        own = start.copy()
        own.update(key)
        return int.from_bytes(own.digest()[:4], "big")

    return np.fromiter(map(of, keys), np.uint32, count=len(keys))


def by_crc(keys: Packed, salt: str) -> Hashes:
    """CRC-32 without a last step."""
    before = zlib.crc32(salt.encode() + b"\0")
    return np.fromiter((zlib.crc32(key, before) for key in keys), np.uint32, count=len(keys))


def by_murmur2(keys: Packed, salt: str) -> Hashes:
    """Kafka's murmur2 of the salt and the key, for all keys of one length at a time."""
    found = np.empty(len(keys), np.uint32)
    for length in np.unique(keys.lengths):
        rows = np.flatnonzero(keys.lengths == length)
        cells = keys.take(rows).reordered(np.arange(len(rows)))
        head = np.frombuffer(salt.encode() + b"\0", np.uint8)
        table = np.concatenate(
            (np.tile(head, (len(rows), 1)), np.frombuffer(cells.whole, np.uint8).reshape(len(rows), -1)), 1
        )
        found[rows] = _murmur2(table)
    return found


def _murmur2(table: npt.NDArray[np.uint8]) -> Hashes:
    size, times = table.shape[1], np.uint32(0x5BD1E995)
    state = np.full(len(table), 0x9747B28C ^ size, np.uint32)
    for block in np.ascontiguousarray(table[:, : size // 4 * 4]).view("<u4").T.astype(np.uint32):
        mixed = block * times
        mixed ^= mixed >> np.uint32(24)
        state = state * times ^ mixed * times
    if size % 4:
        for place in range(size % 4):
            state ^= table[:, size // 4 * 4 + place].astype(np.uint32) << np.uint32(8 * place)
        state *= times
    state ^= state >> np.uint32(13)
    state *= times
    return state ^ (state >> np.uint32(15))


def _own(keys: Packed, salt: str) -> Hashes:
    return hashed(keys, salt)


HASHES = {"CRC-32 + fmix32": _own, "CRC-32": by_crc, "murmur2": by_murmur2, "SHA-256": by_sha256}


def evenness(hashes: Hashes, slots: int = 1000) -> float:
    """The p-value of a chi-squared test that all slots are equally likely."""
    counts = np.bincount((hashes.astype(np.uint64) * slots >> np.uint64(32)).astype(np.int64), minlength=slots)
    return float(chi2.sf(((counts - len(hashes) / slots) ** 2).sum() / (len(hashes) / slots), slots - 1))


def independence(first: Hashes, second: Hashes, groups: int = 20) -> float:
    """The p-value of a chi-squared test that the slots by two salts are independent."""
    places = [(hashes.astype(np.uint64) * groups >> np.uint64(32)).astype(np.int64) for hashes in (first, second)]
    table = np.bincount(places[0] * groups + places[1], minlength=groups**2).reshape(groups, groups)
    return float(chi2_contingency(table).pvalue) if table.any(0).all() and table.any(1).all() else 0.0


def main() -> None:
    print("| hash | keys | uneven salts | dependent pairs of salts | ns per key |\n|---|---|---|---|---|")
    for name, function in HASHES.items():
        for kind, make in KINDS.items():
            keys = Packed.of([make(number) for number in range(KEYS)])
            fresh = keys[:]
            start = time.perf_counter()
            found = [function(fresh, salt) for salt in SALTS]
            spent = (time.perf_counter() - start) / len(SALTS) / KEYS * 1e9
            uneven = sum(evenness(hashes) < 0.001 for hashes in found)
            pairs = list(itertools.pairwise(found))
            dependent = sum(independence(*pair) < 0.001 for pair in pairs)
            print(f"| {name} | {kind} | {uneven} of {len(SALTS)} | {dependent} of {len(pairs)} | {spent:.0f} |")


if __name__ == "__main__":
    main()
