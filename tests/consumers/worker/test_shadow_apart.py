"""A shadow with a mapping of its own changes nothing for the primary, whatever the events hold. It fails by itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.consumers.events import BatchResult, BatchSlice, MicroBatch
from millstream.consumers.resilience.limited_retry import LimitedRetry
from millstream.consumers.shadow.shadow_loading import make_shadows
from millstream.consumers.worker.offline import Answer, answers, decoded
from millstream.consumers.worker.plan import Plan, make_plan
from millstream.pipeline.loading import load_pipeline
from millstream.schemas.comparisons import ComparisonDecoder
from millstream.schemas.store import Schema
from tests.broker.choice import Broker
from tests.consumers.service import write_service
from tests.native import with_native
from tests.schemas.avro.avro_cases import record, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
MODEL = """\
class Model:
    def __init__(self, folder, device):
        pass

    def predict(self, inputs):
        return {"y": inputs["x"].sum(axis=1)}
"""
NESTED = record(("a", "double"), ("b", "double"), name="Nested")
REQUIRED = {"id": "string", "at": "long", "x": "double", "note": "string", "fragile": "double", "nested": NESTED}
READER = record(*REQUIRED.items())
WRITERS = [
    Schema(1, "event", READER),
    Schema(2, "texts", record(*(REQUIRED | {"fragile": "string"}).items())),
    Schema(3, "nulls", record(*(REQUIRED | {"fragile": ["null", "double"]}).items())),
    Schema(4, "less", record(*(item for item in REQUIRED.items() if item[0] != "fragile"))),
    Schema(1, "bytes", record(*(REQUIRED | {"note": "bytes"}).items())),  # no file: it writes texts that are not UTF-8
]
NOTE = {"field": "note", "vocabulary": ["a", "b"], "unknown": 2}


class Form(NamedTuple):
    """How events are written, and what the two models read of them."""

    input: dict[str, Any]
    include: Any
    primary: list[Any]
    shadow: list[Any]


FORMS = {
    "JSON": Form(
        {"format": "json"},
        {"x": "number"},
        ["x", "nested.a", {"field": "note", "type": "any"}],
        ["x", "nested.b", "fragile", "note", {"field": "id", "type": "text"}],
    ),
    "JSON with a time that the shadow reads as text": Form(
        {"format": "json"}, {"x": "number"}, ["x"], ["x", {"field": "at", "type": "text"}]
    ),
    "JSON with a schema": Form(
        {"format": "json", "schema": "event"}, ["x"], ["x", "nested.a"], ["x", "nested.b", "fragile", NOTE]
    ),
    "Avro": Form({"format": "avro", "schema": "event"}, ["x"], ["x", "nested.a"], ["x", "nested.b", "fragile", NOTE]),
}


@dataclass(repr=False)
class Scene:
    """Three pipelines for the same events."""

    is_avro: bool
    alone: Plan  # the primary
    beside: Plan  # the primary with its shadow
    shadow: Plan  # the shadow's model as a primary, without ID and time


def plan_of(folder: Path, form: Form, **sections: Any) -> Plan:
    folder.mkdir()
    (folder / "schemas").mkdir()
    for schema in WRITERS[:-1]:
        (folder / "schemas" / f"{schema.id}-{schema.name}.avsc").write_text(json.dumps(schema.definition))
    for version, fields in enumerate((form.primary, form.shadow), 1):
        made = folder / "models" / "sum" / str(version)
        made.mkdir(parents=True)
        inputs = [{"tensor": "x", "fields": fields, "dtype": "float64"}]
        (made / "config.yaml").write_text(yaml.safe_dump({"inputs": inputs, "outputs": [{"tensor": "y"}]}))
        (made / "model.py").write_text(MODEL)
    output = {"format": "json", "include": form.include}
    service = write_service(folder, NOWHERE, with_topics=False, output=output, **sections)
    return make_plan(load_pipeline(service.file, {}))


@pytest.fixture(scope="module", autouse=True, params=["in C", "one by one"])
def reading(request: pytest.FixtureRequest) -> Iterator[None]:
    with with_native(on=request.param == "in C"):
        yield


@pytest.fixture(scope="module", params=FORMS)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    form, folder = FORMS[request.param], tmp_path_factory.mktemp("apart")
    identified = form.input | {"event_id": "id", "event_time": "at"}
    first, second = ({"name": "sum", "version": version} for version in (1, 2))
    return Scene(
        request.param == "Avro",
        plan_of(folder / "alone", form, input=identified, model=first),
        plan_of(folder / "beside", form, input=identified, model=first, shadows=[{"version": 2}]),
        plan_of(folder / "shadow", form, input=dict(form.input), model=second),
    )


NUMBERS = st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6)
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    st.sampled_from(["", "7", "a", "2026-01-31T09:30:00Z"]),
    st.just([1]),
    st.just({"b": True}),
)
USUAL = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["e1", "2"]),
        "at": st.just(1_769_851_800_000),
        "x": NUMBERS,
        "note": st.sampled_from([7, "7", "a"]),
        "fragile": NUMBERS,
        "nested": st.fixed_dictionaries({"a": NUMBERS, "b": NUMBERS | ANYTHING}),
    }
)
FIELDS = st.sampled_from(sorted(REQUIRED))
EVENTS = st.builds(
    lambda usual, odd, absent: {name: value for name, value in (usual | odd).items() if name not in absent},
    USUAL,
    st.dictionaries(FIELDS, ANYTHING, max_size=2),
    st.sets(FIELDS, max_size=1),
)
DAMAGED = st.sampled_from([b"", b"{", b"[]", b"\0\0\0\0\1", b'{"id": "e1", "x": "text"}'])
JSON_VALUES = EVENTS.map(lambda event: json.dumps(event).encode()) | DAMAGED


@st.composite
def avro_values(draw: st.DrawFn) -> bytes:
    writer = draw(st.sampled_from(WRITERS))
    fragile = {2: st.just("text"), 3: st.none() | NUMBERS}.get(writer.id, NUMBERS)
    event = {
        "id": draw(st.sampled_from(["e1", "2"])),
        "at": 1_769_851_800_000,
        "x": float(draw(NUMBERS)),
        "note": draw(st.sampled_from([b"a", b"\xff"])) if writer.name == "bytes" else draw(st.sampled_from(["a", "c"])),
        "fragile": draw(fragile),
        "nested": {"a": float(draw(NUMBERS)), "b": 1.5},
    }
    (value,) = written(writer, [event])
    return value[: draw(st.sampled_from([None, None, None, -1]))]


def told(plan: Plan, values: Sequence[bytes]) -> list[Answer]:
    return list(answers(plan, values, LimitedRetry(0.0, print)))


def compared(plan: Plan, values: Sequence[bytes]) -> dict[int, dict[str, Any] | None]:
    """Row of a value -> the shadow's outputs in its comparison, None for an error."""
    block = decoded(plan, values)
    events = len(block.good)
    if not events:
        return {}
    batch = MicroBatch((BatchSlice(block, 0, len(values), 0, events),), "size")
    outputs = plan.executor.run(batch.tensors())
    times = np.zeros(events, np.int64)
    result = BatchResult(0, batch, outputs, np.arange(events), {}, times, (plan.model.id,))
    (shadow,) = make_shadows(plan.shadows, plan.pipeline, plan.store)
    found = shadow.compare(result, result.rows)
    comparisons, bad = ComparisonDecoder(plan.store).decode([value for _, value in found.comparisons])
    assert bad == {}
    assert found.failed == sum(answer is None for answer in comparisons.shadow)
    return dict(zip(block.good.tolist(), comparisons.shadow, strict=True))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_predictions_are_those_without_the_shadow(scene: Scene, draw: st.DataObject) -> None:
    values = draw.draw(st.lists(avro_values() if scene.is_avro else JSON_VALUES, min_size=1, max_size=8))
    alone = told(scene.alone, values)
    assert list(map(repr, told(scene.beside, values))) == list(map(repr, alone))
    outputs = [None if answer.rejection else answer.outputs for answer in told(scene.shadow, values)]
    assert compared(scene.beside, values) == {
        row: outputs[row] for row, answer in enumerate(alone) if answer.rejection is None
    }
