"""The variants that a worker chooses are those of `routing.route`, however blocks are cut into batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.consumers.events import BatchSlice, DecodedBatch, MicroBatch
from millstream.consumers.rollout.routing import FieldOverride, RoutingPlan, route
from millstream.consumers.rollout.slots import reallocated, whole
from millstream.consumers.serving import rollout_router as module
from millstream.consumers.serving.rollout_router import RolloutRouter, keys_of, texts_of
from millstream.schemas.column import column_of
from millstream.schemas.packed import Packed
from millstream.schemas.table import Table
from tests.consumers.in_memory import block

KEYS = st.lists(st.none() | st.binary(max_size=4), min_size=1, max_size=20)
PLAN = RoutingPlan("r1", reallocated(whole(), (4000, 3000, 3000)), 3)
NAMED = replace(PLAN, keys={b"": 1, b"\0": 2}, fields=(FieldOverride("country", frozenset({"DE", "7"}), 2),))


def keyed(keys: list[bytes | None], start: int = 0, kinds: str = "", **columns: Any) -> DecodedBatch:
    """A block whose records have these keys. Some may be no events."""
    one = block(kinds or "e" * len(keys), start)
    packed = keys if None in keys else Packed.of([key for key in keys if key is not None])
    return replace(one, keys=packed, features=Table(columns) if columns else None)


def router_of(plan: RoutingPlan, *fields: str, absent: tuple[int, ...] = ()) -> RolloutRouter:
    return RolloutRouter(plan, fields, absent=absent, fallback=0)


def whole_of(*blocks: DecodedBatch) -> MicroBatch:
    return MicroBatch(tuple(BatchSlice(one, 0, len(one.offsets), 0, len(one.good)) for one in blocks), "size")


@given(KEYS, KEYS)
def test_a_key_is_the_records_or_else_the_events_id(first: list[bytes | None], second: list[bytes | None]) -> None:
    batch = whole_of(keyed(first), keyed(second, start=100))
    expected = [str(row).encode() if key is None else key for row, key in enumerate(first)]
    expected += [str(100 + row).encode() if key is None else key for row, key in enumerate(second)]
    assert [*keys_of(batch.parts[0].block), *keys_of(batch.parts[1].block)] == expected
    found = router_of(PLAN).assigned(batch, None)
    assert found.variant.tolist() == route(PLAN, expected).variant.tolist()
    assert found.randomised is None


@given(KEYS, st.data())
def test_however_a_block_is_cut_its_events_keep_their_variants(keys: list[bytes | None], data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from("eert"), min_size=len(keys), max_size=len(keys)).map("".join))
    one = keyed(keys, kinds=kinds, country=column_of([None] * kinds.count("e"), "string"))
    if not len(one.good):
        return
    router = router_of(NAMED, "country")
    expected = router_of(NAMED, "country").assigned(whole_of(one), None)
    size = data.draw(st.integers(1, len(keys)))
    parts = [part for part in whole_of(one).split(size) if part.events]
    found = [router.assigned(part, None) for part in parts]
    assert np.concatenate([each.variant for each in found]).tolist() == expected.variant.tolist()
    late = data.draw(st.sets(st.sampled_from(range(parts[0].events))))
    rows = np.array(sorted(late), np.int64)
    assert router.assigned(parts[0], rows).variant.tolist() == found[0].variant[rows].tolist()


def test_batches_of_several_blocks_are_routed_as_each_block(monkeypatch: pytest.MonkeyPatch) -> None:
    routed: list[int] = []

    def counted(plan: RoutingPlan, keys: Packed, fields: Any) -> Any:
        routed.append(len(keys))
        return route(plan, keys, fields)

    monkeypatch.setattr(module, "route", counted)
    blocks = [keyed([b"%d" % (100 * number + row) for row in range(50)], 100 * number) for number in range(3)]
    router = router_of(PLAN)
    for start in range(0, 50, 10):
        batch = MicroBatch(tuple(BatchSlice(one, start, start + 10, start, start + 10) for one in blocks), "size")
        expected = [b"%d" % (100 * number + start + row) for number in range(3) for row in range(10)]
        assert router.assigned(batch, None).variant.tolist() == route(PLAN, expected).variant.tolist()
    assert routed == [50] * 3, "each block once"


def test_overrides_decide_before_slots_and_do_not_count_as_random() -> None:
    country = column_of(["DE", None, "FR", "DE"], "string")
    one = keyed([b"a", b"", b"b", b"\0"], country=country)
    found = router_of(NAMED, "country").assigned(whole_of(one), None)
    assert found.randomised is not None
    assert found.randomised.tolist() == [False, False, True, False]
    assert [found.variant.tolist()[at] for at in (0, 1, 3)] == [2, 1, 2]


def test_override_by_a_field_that_the_worker_does_not_decode_decides_nothing() -> None:
    one = keyed([b"a", b"b"])
    plan = replace(PLAN, fields=NAMED.fields)
    assert router_of(plan).assigned(whole_of(one), None).variant.tolist() == route(PLAN, [b"a", b"b"]).variant.tolist()


@given(KEYS, st.sets(st.sampled_from([1, 2]), min_size=1))
def test_while_a_version_is_loaded_the_baseline_has_its_events_and_none_counts(
    keys: list[bytes | None], absent: set[int]
) -> None:
    batch = whole_of(keyed(keys))
    right = router_of(PLAN).assigned(batch, None).variant.tolist()
    found = router_of(PLAN, absent=tuple(absent)).assigned(batch, None)
    assert found.variant.tolist() == [0 if variant in absent else variant for variant in right]
    assert found.randomised is not None
    assert not found.randomised.any()


def test_one_variant_with_all_keys_needs_no_hash() -> None:
    plan = RoutingPlan("r1", whole(1), 2)
    found = router_of(plan).assigned(whole_of(keyed([b"a", None])), None)
    assert (found.variant.tolist(), found.randomised) == ([1, 1], None)


def test_values_of_fields_are_named_as_texts() -> None:
    assert texts_of(column_of([7, None, -1], "int64")) == ["7", None, "-1"]
    assert texts_of(column_of([True, False], "boolean")) == ["true", "false"]
    assert texts_of(column_of([0.5, 2.0], "float64")) == ["0.5", "2.0"]
    assert texts_of(column_of(["a", None, "ü"], "string")) == ["a", None, "ü"]
