"""`input.filter`: which events pass, whatever the others look like."""

from __future__ import annotations

import json
import logging
import math
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.consumers.decode.decoder import BlockDecoder, EventFields
from millstream.consumers.decode.event_filter import MANY, EventFilter, Split, open_filter
from millstream.consumers.errors import PlanError
from millstream.consumers.worker.plan import make_plan
from millstream.pipeline.conditions import parse_condition
from millstream.pipeline.errors import PipelineError
from millstream.pipeline.loading import load_pipeline
from millstream.schemas.decoded import Decoded
from millstream.schemas.errors import SchemaUnavailable
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.packed import Packed
from millstream.schemas.store import Schema
from tests.broker.choice import Broker
from tests.consumers.in_memory import SIGNATURE, polled
from tests.consumers.python_service import python_service
from tests.schemas.avro.avro_cases import WRITER_ID, decoder, record, written

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.consumers.events import DecodedBatch

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
KINDS = st.one_of(
    st.sampled_from(["order", "Order", "", "7", "7.0", "true", "NaN", "1e999", 7, 7.5, -1, True, False, None]),
    st.text(max_size=3),
)
CONDITIONS: dict[str, Any] = {
    "kind == order": lambda kind: kind == "order",
    "kind != order": lambda kind: kind not in ("order", "", None),
    "kind in [order, '7']": lambda kind: text(kind) in ("order", "7"),
    "kind not in [order, 'true']": lambda kind: text(kind) not in ("order", "true", ""),
    "kind == true": lambda kind: text(kind) == "true",
    "kind >= 7": lambda kind: (number(kind) or 0) >= 7,
    "kind == 7": lambda kind: number(kind) == 7,
    "kind != 7": lambda kind: number(kind) not in (7, None),
}


def text(kind: object) -> str:
    if isinstance(kind, bool):
        return str(kind).lower()
    return "" if kind is None else str(kind)


def number(kind: Any) -> float | None:
    if isinstance(kind, str):
        try:
            kind = json.loads(kind)
        except ValueError:
            return None
    is_number = isinstance(kind, int | float) and not isinstance(kind, bool) and math.isfinite(kind)
    return float(kind) if is_number else None  # Python's parser takes NaN and 1e999, which JSON has not


def in_json(*conditions: str) -> EventFilter:
    return open_filter([*map(parse_condition, conditions)], JsonDecoder.of_types)


def split(event_filter: EventFilter, values: Sequence[bytes]) -> Split:
    """Split a poll, as a worker does."""
    found = event_filter.split(Packed.of(values))
    event_filter.note(found)
    return found


@given(st.sampled_from(sorted(CONDITIONS)), st.lists(KINDS, max_size=12))
@settings(max_examples=150, deadline=None)
def test_events_pass_for_which_the_condition_holds(condition: str, kinds: list[Any]) -> None:
    events = [{"kind": kind, "x": float(at)} for at, kind in enumerate(kinds)]
    found = split(in_json(condition), [json.dumps(event).encode() for event in events])
    expected = [at for at, kind in enumerate(kinds) if CONDITIONS[condition](kind)]
    assert found.bad == []
    assert found.passed.tolist() == expected
    assert found.left_out.tolist() == sorted(set(range(len(kinds))) - set(expected))


OTHERS = [
    b'{"kind": "view"}',
    b'{"kind": "view", "x": {"y": []}}',
    b'{"kind": "view", "x": "text", "x": 1e999}',
    b'{"x": 1}',
    b'{"kind": null}',
    b"{}",
]
UNREADABLE = [b'{"kind": {"of": "order"}}', b'{"kind": ["order"]}', b"[]", b"no JSON", b"", b'{"kind": "order', b"\xff"]
OWN = [b'{"kind": "order", "x": 4}', b'{"x": 5.5, "kind": "order"}', b'{"kind": "order", "x": "text"}']


@given(st.lists(st.sampled_from([*OTHERS, *UNREADABLE, *OWN]), max_size=20))
@settings(deadline=None)
def test_only_events_of_which_nobody_can_tell_are_bad(values: list[bytes]) -> None:
    found = split(in_json("kind == order"), values)
    rows = [[at for at, value in enumerate(values) if value in of] for of in (OWN, OTHERS, UNREADABLE)]
    assert [found.passed.tolist(), found.left_out.tolist(), [record.row for record in found.bad]] == rows


def test_field_is_read_only_in_events_for_which_the_conditions_before_it_hold() -> None:
    values = [
        b'{"kind": "view", "data": "text"}',
        b'{"kind": "order", "data": {"total": 5}}',
        b'{"kind": "view", "data": {"total": []}}',
        b'{"kind": "order", "data": "text"}',
        b'{"kind": {}, "data": {"total": 5}}',
        b'{"kind": "order", "data": {"total": 500}}',
    ]
    found = split(in_json("kind == order", "data.total < 100", "data.total > 1"), values)
    assert (found.passed.tolist(), found.left_out.tolist()) == ([1], [0, 2, 5])
    assert [(record.row, record.error.partition(":")[0]) for record in found.bad] == [(3, "data"), (4, "kind")]


def test_list_in_the_field_of_a_condition_has_no_advice_that_no_filter_can_follow() -> None:
    [bad] = split(in_json("kind == order"), [b'{"kind": ["order"]}']).bad
    assert bad.error == "kind: expected text, a number, or true or false, found an array"


def test_all_conditions_must_hold_and_paths_lead_into_objects() -> None:
    event_filter = in_json("meta.kind == order", "v >= 2")
    values = [b'{"meta": {"kind": "order"}, "v": 2, "x": 1}', b'{"meta": {"kind": "order"}, "v": 1}', b'{"v": 3}']
    found = split(event_filter, values)
    assert (found.passed.tolist(), found.left_out.tolist()) == ([0], [1, 2])


@pytest.mark.parametrize(
    ("avro", "condition", "kinds", "expected"),
    [
        ("string", "kind == order", ["order", "view"], [0]),
        (["null", "string"], "kind != view", ["order", "view", None], [0]),
        ("long", "kind in [7, 8]", [7, 9, 8], [0, 2]),
        ("int", "kind == '7'", [7, 9, 8], [0]),
        ("float", "kind == 0.1", [0.1, 1.0], [0]),
        ("boolean", "kind == true", [True, False], [0]),
        ({"type": "enum", "name": "K", "symbols": ["order", "view"]}, "kind == order", ["view", "order"], [1]),
    ],
)
def test_avro(avro: Any, condition: str, kinds: list[Any], expected: list[int]) -> None:
    schema = record(("kind", avro), ("x", "double"))
    values = written(Schema(WRITER_ID, "", schema), [{"kind": kind, "x": 1.0} for kind in kinds])
    found = split(open_filter([parse_condition(condition)], lambda _types: decoder(schema, schema)), values)
    assert found.bad == []
    assert found.passed.tolist() == expected


class Unavailable:
    """Its schemas can't be read for the last value."""

    columns = JsonDecoder.of_types({"x": "float64"}).columns

    def decode(self, values: Sequence[bytes]) -> Decoded:
        error = SchemaUnavailable("the registry is away")
        error.row = len(values) - 1
        raise error


def test_outage_names_the_record_and_is_not_counted_twice(caplog: pytest.LogCaptureFixture) -> None:
    event_filter = in_json("kind == order")
    fields = EventFields(None, None, event_filter=event_filter)
    decoder = BlockDecoder(Unavailable(), fields, SIGNATURE, allow_nan=False)
    for _ in range(10):
        with pytest.raises(SchemaUnavailable) as raised:
            decoder.decode(polled([OWN[0], None, *[OTHERS[0]] * (MANY // 2), OWN[1], OTHERS[1]]))
        assert raised.value.row == MANY // 2 + 2
    of_filter = EventFilter([parse_condition("kind == order")], {"kind": Unavailable()})
    decoder = BlockDecoder(Unavailable(), EventFields(None, None, event_filter=of_filter), SIGNATURE, allow_nan=False)
    with pytest.raises(SchemaUnavailable) as raised:
        decoder.decode(polled([None, OWN[0], None, OWN[1]]))
    assert raised.value.row == 3
    split(event_filter, [OTHERS[0]] * MANY)
    [said] = [record.getMessage() for record in caplog.records]
    assert f"0 of the last {MANY} events pass" in said


def warnings(caplog: pytest.LogCaptureFixture, *polls: list[bytes]) -> list[str]:
    caplog.set_level(logging.WARNING)
    event_filter = in_json("kind == order")
    for poll in polls:
        split(event_filter, poll)
    return [record.getMessage() for record in caplog.records]


VIEW, ORDER = b'{"kind": "view"}', OWN[0]


def test_filter_that_no_event_passes_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    [said] = warnings(caplog, *[[VIEW] * (MANY // 2) + [b"{}"]] * 5)
    assert said.startswith(f"input.filter: 0 of the last {MANY + 2} events pass `kind == order`; ")
    assert "; the events have in `kind`: 'view', nothing. The others are skipped." in said


def test_kind_that_is_renamed_is_told_although_single_events_still_pass(caplog: pytest.LogCaptureFixture) -> None:
    usual, renamed = [VIEW, ORDER, VIEW, VIEW] * (MANY // 4), [ORDER, *[VIEW] * (MANY - 1)]
    [said] = warnings(caplog, *[usual] * 3, *[renamed] * 5)
    assert f"1 of the last {MANY} events pass `kind == order`, and before it were 25%; " in said


def test_each_time_that_a_kind_goes_away_is_told(caplog: pytest.LogCaptureFixture) -> None:
    usual, none = [VIEW, ORDER] * (MANY // 2), [VIEW] * MANY
    assert len(warnings(caplog, none, none, usual, usual, none, none, usual, none)) == 3


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20))
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rare_events_are_told_once(caplog: pytest.LogCaptureFixture, numbers: list[int]) -> None:
    caplog.clear()
    [said] = warnings(caplog, *[[ORDER] * number + [VIEW] * (MANY - number) for number in numbers])
    assert f"{numbers[0]} of the last {MANY} events pass" in said


def service_file(folder: Path, **options: Any) -> Path:
    service = python_service(
        folder,
        NOWHERE,
        'return {"y": inputs["x"]}',
        with_topics=False,
        input={"format": "json", "event_id": "id", **options},
    )
    rmtree(folder / "schemas")
    return service.file


def decoded(file: Path, values: Sequence[bytes | None]) -> DecodedBatch:
    return make_plan(load_pipeline(file, {})).decoder.decode(polled(list(values)))


def test_each_record_of_a_block_is_an_event_rejected_filtered_or_a_tombstone(tmp_path: Path) -> None:
    file = service_file(tmp_path, filter="kind == order")
    values = [
        b'{"kind": "view"}',
        b'{"kind": "order", "id": "a", "x": 1}',
        None,
        b'{"kind": "order", "x": 1}',
        b'{"kind": "view", "id": {}, "x": []}',
        b"{",
    ]
    block = decoded(file, values)
    assert block.good.tolist() == [1]
    assert np.asarray(block.tensors["x"]).tolist() == [[1.0]]
    assert block.left_out.tolist() == [0, 4]
    assert block.unread.tolist() == [5]
    assert {row: why.reason for row, why in block.rejected.items()} == {3: "unfit", 5: "undecodable"}


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("kinds[] == order", "input.filter: expected a path to one value, found `kinds[]`."),
        ("a..b == order", "input.filter: expected a path, found `a..b`"),
        (["a == b", "a.b == c"], "input.filter: "),
    ],
)
def test_wrong_paths_are_told(tmp_path: Path, condition: object, said: str) -> None:
    file = service_file(tmp_path, filter=condition)
    with pytest.raises(PlanError) as raised:
        make_plan(load_pipeline(file, {}))
    assert said in str(raised.value)
    assert f"{file}:" in str(raised.value)


def test_field_that_the_schema_lacks_or_that_is_no_value_is_told(tmp_path: Path) -> None:
    service = python_service(
        tmp_path,
        NOWHERE,
        'return {"y": inputs["x"]}',
        with_topics=False,
        input={"format": "json", "schema": "number-event", "event_id": "id", "filter": "kind == order"},
    )
    with pytest.raises(PlanError, match=r"input.filter: expected a field of schema `number-event`, found `kind`"):
        make_plan(load_pipeline(service.file, {}))
    schema = tmp_path / "schemas" / "1-number-event.avsc"
    kinds = {"name": "kind", "type": {"type": "array", "items": "string"}, "default": []}
    changed = json.loads(schema.read_text())
    schema.write_text(json.dumps(changed | {"fields": [*changed["fields"], kinds]}))
    with pytest.raises(PlanError, match="found `kind`, which is list"):
        make_plan(load_pipeline(service.file, {}))


@pytest.mark.parametrize(
    ("condition", "type_", "said"),
    [
        ("f == 1", "boolean", "`f == 1`: expected true or false, because `f` is a boolean."),
        ("f == order", "boolean", "expected true or false"),
        ("f in [1, a]", "long", "expected values of one type"),
        ("f == order", "int", "`f == order`: expected a number, because `f` is int32."),
        ("f == true", "double", "`f == true`: expected a number, because `f` is float64."),
    ],
)
def test_values_that_the_fields_type_never_has_are_told(tmp_path: Path, condition: str, type_: str, said: str) -> None:
    options = {"format": "json", "schema": "number-event", "event_id": "id", "filter": condition}
    service = python_service(tmp_path, NOWHERE, 'return {"y": inputs["x"]}', with_topics=False, input=options)
    schema = tmp_path / "schemas" / "1-number-event.avsc"
    fields = json.loads(schema.read_text())["fields"]
    added = {"name": "f", "type": type_, "default": False if type_ == "boolean" else 0}
    schema.write_text(json.dumps({"type": "record", "name": "NumberEvent", "fields": [*fields, added]}))
    with pytest.raises((PlanError, PipelineError)) as raised:
        make_plan(load_pipeline(service.file, {}))
    assert said in str(raised.value)
    assert f"{service.file}:" in str(raised.value)
