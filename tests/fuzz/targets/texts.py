"""Times and words: what the C extension reads of many texts is what Python reads of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from random import Random

from millstream.schemas.packed import Packed
from millstream.schemas.times import parse_iso8601
from millstream.schemas.words import Words
from tests.fuzz.case import Case, Counts, Wrong
from tests.fuzz.damage import SPECIAL, damaged
from tests.fuzz.exact import exact_packed
from tests.native import with_native

RECORDS = 60
_WORDS = [b"", b"DE", b"FR", b"card", b"invoice", b"\xff\0", "größer".encode(), b"a" * 40]
_FIRST = datetime(1, 1, 2, tzinfo=UTC)
_MOST_SECONDS = 9998 * 365 * 86_400


class Texts:
    """Times in all forms, some of them damaged, and words that are in a list or nearly so."""

    name = "texts"
    share = 0.03
    in_c = True

    def make(self, rng: Random) -> Case:
        """See Target."""
        values = [_time(rng) if rng.random() < 0.7 else rng.choice([*_WORDS, *SPECIAL]) for _ in range(RECORDS)]
        return Case(
            {"words": rng.sample(_WORDS, rng.randrange(len(_WORDS) + 1))},
            [damaged(value, values, rng) if rng.random() < 0.4 else value for value in values],
        )

    def check(self, case: Case) -> Counts:
        """See Target."""
        texts, words = exact_packed(case.values), case.about["words"]
        found = _read(texts, words)
        with with_native(on=False):
            right = _read(texts, words)
        for value, one, other in zip(case.values, found, right, strict=True):
            if one != other:
                raise Wrong(f"{value!r} is {one} in C, and {other} in Python")
        accepted = sum(is_time for _, is_time, _ in found)
        return Counts(accepted, len(found) - accepted)


def _read(texts: Packed, words: list[bytes]) -> list[tuple[int, bool, int]]:
    """For each text the time, whether it is one, and its place among the words."""
    times, ok = parse_iso8601(texts)
    return list(zip(times.tolist(), ok.tolist(), Words(words).places(texts).tolist(), strict=True))


def _time(rng: Random) -> bytes:
    moment = _FIRST + timedelta(
        seconds=rng.randrange(_MOST_SECONDS), microseconds=rng.choice([0, rng.randrange(10**6)])
    )
    zone = rng.choice([None, UTC, timezone(timedelta(minutes=rng.randrange(-1439, 1440)))])
    text = moment.astimezone(zone).isoformat(rng.choice("Tt "), rng.choice(["auto", "minutes", "milliseconds"]))
    text = text.replace("+00:00", rng.choice(["Z", "z", "+00", "-0000", "+00:00", ""]))
    return rng.choice([text, text, text[:10]]).encode()
