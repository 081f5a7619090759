"""The check that predictions have the variants that routing gives."""

from __future__ import annotations

import math
from typing import Any

import pytest

from millstream.consumers.replay.conclusion import routing_lines
from millstream.consumers.replay.routing_check import Prediction, RoutingCheck
from millstream.consumers.rollout.record import RolloutRecord, RolloutVariant
from millstream.consumers.rollout.routing import FieldOverride, route
from millstream.consumers.rollout.slots import SlotRange
from millstream.consumers.serving.rollout_router import texts_of
from millstream.schemas.column import column_of
from millstream.schemas.dtypes import Dtype


def record(revision: int, share: int, **overrides: Any) -> RolloutRecord:
    return RolloutRecord(
        pipeline="p",
        revision=revision,
        replaces=revision - 1,
        change_id=str(revision),
        at=0,
        by="t",
        action="step",
        reason="",
        rollout="p-1",
        strategy="canary",
        state="running",
        variants=(RolloutVariant("primary", "m", 1), RolloutVariant("canary", "m", 2)),
        ranges=(SlotRange(10_000 - share, 0), SlotRange(share, 1)),
        **overrides,
    )


def predicted(of: RolloutRecord, keys: list[bytes | None], **event: Any) -> list[Prediction]:
    """What workers that follow the record write."""
    ids = [f"event-{number}" for number in range(len(keys))]
    routing = [name.encode() if key is None else key for name, key in zip(ids, keys, strict=True)]
    plan = of.plan()
    routed = route(plan, routing, {name: [value] * len(keys) for name, value in event.items()})
    return [
        (
            key,
            {
                "event_id": name,
                "event": event,
                "rollout": {
                    "id": of.rollout,
                    "revision": of.revision,
                    "assigned": of.variants[place].name,
                    "propensity": float(plan.shares[place]),
                    "randomised": randomised,
                },
            },
        )
        for name, key, place, randomised in zip(
            ids, keys, routed.variant.tolist(), routed.randomised.tolist(), strict=True
        )
    ]


KEYS: list[bytes | None] = [f"k{number}".encode() if number % 3 else None for number in range(1000)]


def test_predictions_of_several_revisions_match_their_records() -> None:
    records = [
        record(1, 100),
        record(2, 2500, keys=((b"k1", 1),), fields=(FieldOverride("country", frozenset({"DE"}), 1),)),
    ]
    check = RoutingCheck.of(records)
    check.add(predicted(records[0], KEYS) + predicted(records[1], KEYS, country="FR") + [(None, {"event_id": "x"})])
    check.add(predicted(records[1], KEYS, country="DE"))
    assert (check.checked, check.mismatches, check.seen) == (3000, 0, 3000)
    assert list(routing_lines(check)) == [
        "routing: 3,000 predictions checked: each has the variant that routing gives its key"
    ]


@pytest.mark.parametrize("change", [{"assigned": "primary"}, {"propensity": 0.49}])
def test_another_variant_or_propensity_is_told(change: dict[str, Any]) -> None:
    of = record(1, 5000)
    found = predicted(of, KEYS)
    at = next(row for row, (_, each) in enumerate(found) if each["rollout"]["assigned"] == "canary")
    found[at][1]["rollout"] |= change
    check = RoutingCheck.of([of])
    check.add(found)
    assert (check.checked, check.mismatches) == (1000, 1)
    lines = list(routing_lines(check))
    assert lines[0] == "routing: 1,000 predictions checked: 1 DON'T HAVE the variant that routing gives its key"
    assert lines[1].startswith(f"event {found[at][1]['event_id']}, rollout p-1 revision 1: expected canary with a")


def test_predictions_of_a_worker_that_was_loading_a_version_are_no_mismatch() -> None:
    of = record(1, 5000, keys=((b"k1", 1),))
    found = predicted(of, KEYS)
    for _, each in found:  # as `RolloutRouter` with `absent` decides
        each["rollout"] |= {"assigned": "primary", "propensity": 0.5, "randomised": False}
    check = RoutingCheck.of([of])
    check.add(found)
    assert (check.checked, check.mismatches, check.while_loading) == (1000, 0, 1000)
    assert "1,000 of them are of workers that were loading a version" in list(routing_lines(check))[1]


def test_candidate_that_no_override_names_is_a_mismatch_also_if_it_is_not_randomised() -> None:
    of = record(1, 5000)
    found = predicted(of, KEYS)
    at = next(row for row, (_, each) in enumerate(found) if each["rollout"]["assigned"] == "primary")
    found[at][1]["rollout"] |= {"assigned": "canary", "randomised": False}
    check = RoutingCheck.of([of])
    check.add(found)
    assert (check.mismatches, check.while_loading) == (1, 0)


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        ("float32", 0.1, "0.1"),
        ("float64", 0.1, "0.1"),
        ("float64", 1e-05, "0.00001"),
        ("float64", 2.0, "2.0"),
        ("float64", math.nan, "NaN"),
        ("int64", 7, "7"),
        ("boolean", True, "true"),
        ("string", "0.10", "0.10"),
    ],
)
def test_override_by_a_value_is_as_workers_compare_it(dtype: Dtype, value: Any, text: str) -> None:
    of = record(1, 100, fields=(FieldOverride("amount", frozenset({text}), 1),))
    column = column_of([value], dtype)
    found = predicted(of, KEYS, amount=texts_of(column)[0])
    for _, each in found:
        each["event"] = {"amount": column.to_list()[0]}  # a float of 32 bits as one of 64, as Avro has it
    check = RoutingCheck.of([of], singles=frozenset({"amount"} if dtype == "float32" else ()))
    check.add(found)
    assert {each["rollout"]["assigned"] for _, each in found} == {"canary"}
    assert (check.checked, check.mismatches, check.examples) == (1000, 0, [])


def test_control_topic_that_cannot_be_read_is_told_with_its_reason() -> None:
    check = RoutingCheck.of([], problem="topic p-rollout (rollout) does not exist. Create it")
    check.add(predicted(record(1, 100), KEYS) + predicted(record(2, 100), KEYS))
    assert list(routing_lines(check)) == [
        "routing: 2,000 predictions not checked: topic p-rollout (rollout) does not exist. Create it"
    ]


def test_what_can_not_be_checked_is_told() -> None:
    fields = tuple(FieldOverride(name, frozenset({"DE"}), 1) for name in ("country", "home"))
    of = record(2, 100, fields=fields, keys=((b"k1", 1),))
    check = RoutingCheck.of([of])
    found = predicted(of, [b"k1", b"k2"], country="DE", home="DE")
    for _, each in found:
        each["event"] = {}
    check.add(found)  # k1 is known by its own override
    check.add(predicted(record(1, 100), [b"k3"]))
    assert (check.checked, check.mismatches, check.seen) == (1, 0, 3)
    lines = list(routing_lines(check))
    assert "has no record of rollout p-1 revision 1" in lines[1]
    assert "they lack what overrides name (country, home). " in lines[2]
