"""Routing keys: their hash in C is their hash in Python, and strings outside of the buffer are refused."""

from __future__ import annotations

from random import Random

from millstream.consumers.rollout.hashes import hashed
from millstream.schemas.packed import Packed
from tests.fuzz.case import Case, Counts, Wrong
from tests.fuzz.damage import SPECIAL
from tests.fuzz.exact import exact_packed

RECORDS = 60


class Keys:
    """Keys of all lengths, and a column of which one start or length is wrong."""

    name = "keys"
    share = 0.03
    in_c = True

    def make(self, rng: Random) -> Case:
        """See Target."""
        values = [
            rng.choice(SPECIAL) if rng.random() < 0.2 else rng.randbytes(rng.randrange(40)) for _ in range(RECORDS)
        ]
        about = {
            "salt": rng.choice(["", "r", "größer", "a" * 50]),
            "row": rng.randrange(RECORDS),
            "column": rng.choice(["starts", "lengths"]),
            "by": rng.choice([-(2**63), -1, 1 << 40, 2**63 - 1]),
        }
        return Case(about, values)

    def check(self, case: Case) -> Counts:
        """See Target."""
        keys, salt = exact_packed(case.values), case.about["salt"]
        for key, one, other in zip(
            case.values, hashed(keys, salt).tolist(), hashed(case.values, salt).tolist(), strict=True
        ):
            if one != other:
                raise Wrong(f"the hash of {key!r} is {one} in C, and {other} in Python")
        columns = {"starts": keys.starts.copy(), "lengths": keys.lengths.copy()}
        columns[case.about["column"]][case.about["row"] % len(case.values)] = case.about["by"]
        try:
            hashed(Packed(keys.buffer, columns["starts"], columns["lengths"]), salt)
        except ValueError:
            return Counts(len(case.values), 1)
        raise Wrong(f"a key with {case.about} is not refused")
