"""`input.filter`: which events pass, whatever the others look like."""

from __future__ import annotations

import json
import logging
from shutil import rmtree
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumers.decode.event_filter import MANY, RARE, EventFilter, FilteredDecoder
from millstream.consumers.errors import PlanError
from millstream.consumers.worker.plan import make_plan
from millstream.pipeline.conditions import parse_condition
from millstream.pipeline.loading import load_pipeline
from millstream.schemas.decoded import Decoded
from millstream.schemas.errors import SchemaUnavailable
from millstream.schemas.json.decoder import JsonDecoder
from millstream.schemas.store import Schema
from tests.broker.choice import Broker
from tests.consumers.in_memory import polled
from tests.consumers.python_service import python_service
from tests.schemas.avro.avro_cases import WRITER_ID, decoder, record, written
from tests.schemas.tables import dicts_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.consumers.events import DecodedBatch
    from millstream.schemas.decoded import Decoder

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
KINDS = st.one_of(
    st.sampled_from(["order", "Order", "", "7", "7.0", "true", 7, 7.5, -1, True, False, None]), st.text(max_size=3)
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
    return float(kind) if isinstance(kind, int | float) and not isinstance(kind, bool) else None


def filtered(inner: Decoder, of_filter: Decoder, *conditions: str) -> FilteredDecoder:
    return FilteredDecoder(inner, EventFilter(tuple(map(parse_condition, conditions)), of_filter))


def in_json(*conditions: str, paths: Sequence[str] = ("kind",)) -> FilteredDecoder:
    return filtered(
        JsonDecoder.of_types({"x": "float64"}), JsonDecoder.of_types(dict.fromkeys(paths, "mixed")), *conditions
    )


@given(st.sampled_from(sorted(CONDITIONS)), st.lists(KINDS, max_size=12))
@settings(max_examples=150, deadline=None)
def test_events_pass_for_which_the_condition_holds(condition: str, kinds: list[Any]) -> None:
    events = [{"kind": kind, "x": float(at)} for at, kind in enumerate(kinds)]
    found = in_json(condition).decode([json.dumps(event).encode() for event in events])
    expected = [at for at, kind in enumerate(kinds) if CONDITIONS[condition](kind)]
    assert found.bad == []
    assert found.rows.tolist() == expected
    assert [row["x"] for row in dicts_of(found.table)] == expected
    assert found.filtered.tolist() == sorted(set(range(len(kinds))) - set(expected))


OTHERS = [
    b'{"kind": "view"}',
    b'{"kind": "view", "x": {"y": []}}',
    b'{"kind": "view", "x": "text", "x": 1e999}',
    b'{"x": 1}',
    b'{"kind": null}',
    b"{}",
]
UNREADABLE = [b'{"kind": {"of": "order"}}', b'{"kind": ["order"]}', b"[]", b"no JSON", b"", b'{"kind": "order', b"\xff"]
OWN = [b'{"kind": "order", "x": 4}', b'{"x": 5.5, "kind": "order"}']
WRONG = [b'{"kind": "order", "x": "text"}', b'{"kind": "order", "x": []}']


@given(st.lists(st.sampled_from([*OTHERS, *UNREADABLE, *OWN, *WRONG]), max_size=20))
@settings(deadline=None)
def test_only_events_that_pass_or_cannot_be_told_are_bad(values: list[bytes]) -> None:
    found = in_json("kind == order").decode(values)
    rows = {
        name: [at for at, value in enumerate(values) if value in of] for name, of in (("own", OWN), ("others", OTHERS))
    }
    assert found.rows.tolist() == rows["own"]
    assert found.filtered.tolist() == rows["others"]
    bad = [at for at, value in enumerate(values) if value in [*UNREADABLE, *WRONG]]
    assert [record.row for record in found.bad] == bad
    alone = JsonDecoder.of_types({"x": "float64"})
    for row, reason, error in found.bad:
        if values[row] in WRONG:
            [expected] = alone.decode([values[row]]).bad
            assert (reason, error) == (expected.reason, expected.error)


def test_list_in_the_field_of_a_condition_has_no_advice_that_no_filter_can_follow() -> None:
    [bad] = in_json("kind == order").decode([b'{"kind": ["order"]}']).bad
    assert bad.error == "kind: expected text, a number, or true or false, found an array"


def test_all_conditions_must_hold_and_paths_lead_into_objects() -> None:
    decoder = in_json("meta.kind == order", "v >= 2", paths=("meta.kind", "v"))
    values = [b'{"meta": {"kind": "order"}, "v": 2, "x": 1}', b'{"meta": {"kind": "order"}, "v": 1}', b'{"v": 3}']
    found = decoder.decode(values)
    assert (found.rows.tolist(), found.filtered.tolist()) == ([0], [1, 2])


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
    inner, of_filter = decoder(schema, schema), decoder(schema, schema)
    found = filtered(inner, of_filter, condition).decode(values)
    assert found.bad == []
    assert found.rows.tolist() == expected


class Unavailable:
    """Its schemas can't be read for the second value."""

    columns = JsonDecoder.of_types({"x": "float64"}).columns

    def decode(self, values: Sequence[bytes]) -> Decoded:
        error = SchemaUnavailable("the registry is away")
        error.row = len(values) - 1
        raise error


def test_outage_names_the_event_among_all() -> None:
    decoder = filtered(Unavailable(), JsonDecoder.of_types({"kind": "mixed"}), "kind == order")
    with pytest.raises(SchemaUnavailable) as raised:
        decoder.decode([OWN[0], OTHERS[0], OWN[1], OTHERS[1]])
    assert raised.value.row == 2


def test_filter_that_no_event_passes_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    decoder = in_json("kind == odrer")
    for _ in range(3):
        decoder.decode([b'{"kind": "order"}'] * (MANY // 2) + [b"{}"])
    [said] = [record.getMessage() for record in caplog.records]
    assert "none of the last 1002 events" in said
    assert "passes `kind == odrer`; the events have in `kind`: 'order', nothing." in said


def test_filter_of_rare_events_warns_only_once_they_are_much_rarer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    decoder = in_json("kind == order")
    view = b'{"kind": "view"}'
    for _ in range(4):
        decoder.decode([view] * (MANY // 2 - 1))
        decoder.decode([view, OWN[0], view, OWN[1]])
    rare = MANY // 2  # others between two that pass
    decoder.decode([view] * (RARE * rare - 1))
    assert not caplog.records
    decoder.decode([view] * 2)
    assert len(caplog.records) == 1
    decoder.decode([view] * MANY)
    assert len(caplog.records) == 1
    decoder.decode([OWN[0]])
    decoder.decode([view] * RARE * MANY)  # no longer rarer than ever before
    assert len(caplog.records) == 1


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
    assert block.filtered.tolist() == [0, 4]
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


def test_number_for_a_boolean_is_told(tmp_path: Path) -> None:
    options = {"format": "json", "schema": "number-event", "event_id": "id", "filter": "paid == 1"}
    service = python_service(tmp_path, NOWHERE, 'return {"y": inputs["x"]}', with_topics=False, input=options)
    schema = tmp_path / "schemas" / "1-number-event.avsc"
    fields = json.loads(schema.read_text())["fields"]
    paid = {"name": "paid", "type": "boolean", "default": False}
    schema.write_text(json.dumps({"type": "record", "name": "NumberEvent", "fields": [*fields, paid]}))
    with pytest.raises(
        PlanError, match=r"`paid == 1`: expected true or false, .* found a number. Write `paid == true`."
    ):
        make_plan(load_pipeline(service.file, {}))
