"""A key keeps its variant in every batch and every language; a larger share only adds keys; rollouts are independent."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, chi2_contingency

from millstream.consumers.rollout.hashes import LIBRARY, hashed
from millstream.consumers.rollout.routing import FieldOverride, RoutingPlan, route
from millstream.consumers.rollout.slots import reallocated, whole
from millstream.pipeline.shares import SLOTS
from millstream.schemas.compiled import compiled
from millstream.schemas.packed import Packed
from tests.native import with_native

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (Path(__file__).parents[3] / "docs" / "rollout-rules.md").read_text("utf-8")
KEYS = st.lists(st.binary(max_size=40), min_size=1, max_size=20)
SALTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MANY = Packed.of([b"customer-%d" % number for number in range(100_000)])


def reference(key: bytes, salt: str) -> int:
    """The documented hash in plain Python."""
    value = zlib.crc32(salt.encode() + b"\0" + key)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = ((value ^ (value >> shift)) * factor) & 0xFFFFFFFF
    return value ^ (value >> 16)


@pytest.fixture(params=["compiled", "python"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    with with_native(on=request.param == "compiled"):
        if request.param == "compiled":
            compiled(LIBRARY, "hash_keys")  # a machine that runs this has a compiler
        yield


@pytest.mark.usefixtures("_way")
@given(KEYS, SALTS)
def test_hash_is_the_documented_one(keys: list[bytes], salt: str) -> None:
    apart = Packed.of([part for key in keys for part in (key, b"between")]).take(np.arange(0, 2 * len(keys), 2))
    wanted = [reference(key, salt) for key in keys]
    for given_keys in (keys, Packed.of(keys), apart):
        assert hashed(given_keys, salt).tolist() == wanted


def test_no_keys_have_no_hashes() -> None:
    assert hashed(Packed.of([]), "r").tolist() == []


def vectors() -> list[tuple[str, bytes, int, int]]:
    """Salt, key, hash and slot of the page's test vectors."""
    rows = re.findall(r"^\| `([^`]*)` \| `([0-9a-f ]*)`[^|]*\| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    return [(salt, bytes.fromhex(key), int(value), int(slot)) for salt, key, value, slot in rows]


def test_vectors_of_the_page_are_right() -> None:
    assert len(vectors()) >= 5
    for salt, key, value, slot in vectors():
        assert hashed([key], salt).tolist() == [reference(key, salt)] == [value]
        assert value * SLOTS >> 32 == slot


def program(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def test_pages_python_gives_the_vectors() -> None:
    names: dict[str, object] = {}
    exec(compile(program("python"), "docs/rollout-rules.md", "exec"), names)
    function = names["slot"]
    assert callable(function)
    assert [function(salt, key) for salt, key, _, _ in vectors()] == [slot for _, _, _, slot in vectors()]


@pytest.mark.skipif(which("java") is None, reason="needs Java")
def test_pages_java_gives_the_vectors(tmp_path: Path) -> None:
    calls = "".join(
        f'System.out.println(slot("{salt}", java.util.HexFormat.of().parseHex("{key.hex()}")));'
        for salt, key, _, _ in vectors()
    )
    body = program("java")
    source = f"class Vectors {{\n{body}\npublic static void main(String[] none) {{ {calls} }}\n}}\n"
    file = tmp_path / "Vectors.java"
    file.write_text(source, "utf-8")
    done = subprocess.run(["java", str(file)], capture_output=True, text=True, check=True)
    assert [int(line) for line in done.stdout.split()] == [slot for _, _, _, slot in vectors()]


@pytest.mark.usefixtures("_way")
@given(st.data(), KEYS, SALTS, st.integers(0, SLOTS))
def test_part_of_a_batch_is_routed_like_each_event_alone(
    data: st.DataObject, keys: list[bytes], salt: str, share: int
) -> None:
    plan = RoutingPlan(
        salt, reallocated(whole(), (SLOTS - share, share)), 2, {data.draw(st.sampled_from(keys)): 1},
        (FieldOverride("country", frozenset({"DE"}), 1), FieldOverride("country", frozenset({"DE", "FR"}), 0)),
    )  # fmt: skip
    countries = data.draw(st.lists(st.sampled_from(["DE", "FR", None, "IT"]), min_size=len(keys), max_size=len(keys)))
    whole_batch = route(plan, Packed.of(keys), {"country": countries})
    for row, (key, country) in enumerate(zip(keys, countries, strict=True)):
        slot = reference(key, salt) * SLOTS >> 32
        by_rule = 1 if key in plan.keys or country == "DE" else 0 if country == "FR" else int(slot < share)
        assert whole_batch.variant[row] == by_rule
        assert whole_batch.randomised[row] == (key not in plan.keys and country not in ("DE", "FR"))
    cut = data.draw(st.integers(0, len(keys)))
    parts = [
        route(plan, Packed.of(keys)[at], {"country": countries[at]}).variant for at in (slice(cut), slice(cut, None))
    ]
    assert np.concatenate(parts).tolist() == whole_batch.variant.tolist()


def test_field_that_is_not_given_is_an_error() -> None:
    plan = RoutingPlan("r", whole(), 2, {}, (FieldOverride("country", frozenset({"DE"}), 1),))
    with pytest.raises(KeyError, match="country"):
        route(plan, [b"a"])


@given(st.integers(0, SLOTS), st.integers(0, SLOTS))
def test_larger_share_only_adds_keys(first: int, second: int) -> None:
    keys = MANY[:2000]
    ranges = reallocated(whole(), (SLOTS - first, first))
    before = route(RoutingPlan("r", ranges), keys).variant
    after = route(RoutingPlan("r", reallocated(ranges, (SLOTS - second, second))), keys).variant
    assert (after >= before).all() if second >= first else (after <= before).all()


@pytest.mark.parametrize("make", [b"%d", b"customer-%012d", b"\x00\x00%d", b"%d-2024-01-01T00:00:00Z"])
def test_slots_are_even(make: bytes) -> None:
    """Chi-squared over 100 groups of slots; the keys are fixed, so this can't fail by chance."""
    hashes = hashed(Packed.of([make % number for number in range(100_000)]), "rollout-7").astype(np.uint64)
    counts = np.bincount((hashes * np.uint64(100) >> np.uint64(32)).astype(np.int64), minlength=100)
    assert chi2.sf(((counts - 1000) ** 2 / 1000).sum(), 99) > 0.001


@pytest.mark.parametrize("other", ["rollout-2", "rollout-10", "q", ""])
def test_variants_of_two_rollouts_are_independent(other: str) -> None:
    first, second = (
        (hashed(MANY, salt).astype(np.uint64) * np.uint64(20) >> np.uint64(32)).astype(np.int64)
        for salt in ("rollout-1", other)
    )
    table = np.bincount(first * 20 + second, minlength=400).reshape(20, 20)
    assert chi2_contingency(table).pvalue > 0.001


def test_variants_are_independent_of_kafkas_partitions() -> None:
    """A variant must not have the keys of some partitions only. Here the partition is by CRC-32, as librdkafka's default."""
    slots = hashed(MANY, "rollout-1").astype(np.uint64) * np.uint64(20) >> np.uint64(32)
    partitions = np.array([zlib.crc32(key) % 12 for key in MANY])
    table = np.bincount(slots.astype(np.int64) * 12 + partitions, minlength=240).reshape(20, 12)
    assert chi2_contingency(table).pvalue > 0.001


def test_library_refuses_keys_outside_of_their_buffer() -> None:
    compiled(LIBRARY, "hash_keys")
    bad = Packed(np.zeros(4, np.uint8), np.array([0, 3]), np.array([4, 2]))
    with pytest.raises(ValueError, match="key 1: expected bytes inside the buffer of 4, found 2 from 3 on"):
        hashed(bad, "r")


def test_worker_side_needs_no_scipy() -> None:
    """Workers route; only the job that judges has the extra packages."""
    code = "import sys, millstream.consumers.rollout.routing; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
