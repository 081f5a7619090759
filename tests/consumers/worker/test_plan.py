"""What the pipeline file and the model's config say is what the worker's stages are given."""

from __future__ import annotations

import asyncio
import json
import math
import re
import shutil
import threading
from dataclasses import replace
from textwrap import dedent
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import yaml

from millstream.consumers.batch.batcher import Batcher, Limits
from millstream.consumers.errors import PlanError
from millstream.consumers.events import FetchedBatch
from millstream.consumers.execute.executor_pool import ExecutorPool
from millstream.consumers.flow.batch_window import BatchWindow
from millstream.consumers.observability.health import Health
from millstream.consumers.observability.metrics import Metrics
from millstream.consumers.record_types import Record
from millstream.consumers.records import Records
from millstream.consumers.source.crashes import CrashGuard
from millstream.consumers.worker import build, executor_slots, model_opening
from millstream.consumers.worker.build import Serving
from millstream.consumers.worker.clients import collecting, producer_settings
from millstream.consumers.worker.plan import (
    Plan,
    batches_ahead,
    check_gpu_options,
    make_plan,
    outputs_of,
    settings_of,
)
from millstream.consumers.worker.shared import shared_of
from millstream.inference.config_sections import RuntimeOptions
from millstream.inference.executors.choice import open_executor
from millstream.inference.executors.opened import OpenedModel
from millstream.pipeline.loading import load_pipeline
from tests.broker.choice import Broker
from tests.consumers.in_memory import EPOCHS, MODEL, MemoryRecord, NegatingExecutor, batch_of
from tests.consumers.python_service import python_service
from tests.consumers.remote_service import remote_service

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from millstream.consumers.sink.result_sink import Sink
    from millstream.consumers.source.kafka_source import Source
    from millstream.inference.executors.blocking import BlockingExecutor
    from millstream.inference.executors.interface import Executor, ModelExecutor, Tensors
    from millstream.inference.repository import ModelVersion

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
BATCH = {
    "max_events": 8,
    "max_bytes": "64KiB",
    "max_wait": "200ms",
    "target_p99": "50ms",
    "cost": "x",
    "max_cost": 40,
}
LIMITS = Limits(8, 65536, 0.2, 40, 0.05)


def plan_of(folder: Path, **sections: Any) -> Plan:
    service = python_service(folder, NOWHERE, 'return {"y": inputs["x"]}', with_topics=False, **sections)
    return make_plan(load_pipeline(service.file, {}))


@pytest.mark.parametrize(("max_wait", "asked"), [(0.0, None), (0.004, None), (0.005, "6"), (0.008, "10"), (0.5, "12")])
def test_broker_collects_while_a_batch_may_wait(max_wait: float, asked: str | None) -> None:
    settings = collecting(max_wait, exactly_once=False)
    assert settings.get("fetch.wait.max.ms") == asked
    assert ("fetch.min.bytes" in settings) == (asked is not None)


def test_primary_and_shadows_on_servers_share_an_event_loop(tmp_path: Path) -> None:
    pytest.importorskip("tritonclient.grpc", reason="the extra kserve is not installed")
    shadows = [{"name": name, "version": version} for version, name in enumerate(("new", "newer"), 2)]
    service = remote_service(
        tmp_path,
        NOWHERE,
        "{urls: ['grpc://127.0.0.1:1']}",
        with_topics=False,
        model={"name": "number", "version": 1},
        shadows=shadows,
        comparison={"topic": "compared"},
    )
    models = tmp_path / "models" / "number"
    for version in ("2", "3"):
        shutil.copytree(models / "1", models / version)
    plan = make_plan(load_pipeline(service.file, {}))
    executors = [plan.executor, *(shadow.executor for shadow in plan.shadows)]
    assert len({cast("BlockingExecutor", each).thread for each in executors}) == 1
    for each in executors[:-1]:
        each.close()
    left = cast("BlockingExecutor", executors[-1])
    assert left.thread.wait_for(asyncio.sleep(0, "runs on"), 10.0) == "runs on"
    left.close()


def test_broker_sends_each_event_at_once_to_a_worker_that_collects_until_its_commit() -> None:
    assert collecting(0.005, exactly_once=True) == {}


@pytest.mark.parametrize(
    ("device", "concurrent", "max_events", "ahead"),
    [("cpu", 1, 256, 0), ("cpu", 2, 256, 24), ("cuda", 1, 256, 24), ("tensorrt", 1, 10_000, 1)],
)
def test_device_has_batches_waiting_while_the_next_block_is_decoded(
    device: str, concurrent: int, max_events: int, ahead: int
) -> None:
    assert batches_ahead(device, concurrent, max_events) == ahead


# From the files to the settings


def test_batch_section_is_the_batchers_limits(tmp_path: Path) -> None:
    assert settings_of(plan_of(tmp_path, batch=BATCH), until_idle=True).batch == LIMITS


def test_batch_section_says_nothing_of_cost_and_target_where_they_are_left_out(tmp_path: Path) -> None:
    limits = settings_of(plan_of(tmp_path, batch={"max_events": 8}), until_idle=True).batch
    assert (limits.max_cost, limits.target_p99) == (None, None)


@pytest.mark.parametrize(("takes", "expected"), [(3, 3), (100, 8)])
def test_batches_are_no_larger_than_the_executor_takes(tmp_path: Path, takes: int, expected: int) -> None:
    executor = cast("ModelExecutor", SimpleNamespace(max_events=takes))
    plan = replace(plan_of(tmp_path, batch=BATCH), executors=[executor])
    assert settings_of(plan, until_idle=True).batch == replace(LIMITS, max_events=expected)


def test_copies_of_the_model_share_the_gpu_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, Any]] = []

    def spy(model: ModelVersion, **options: Any) -> ModelExecutor:
        opened.append(options)
        return open_executor(model, **options)

    monkeypatch.setattr(model_opening, "open_executor", spy)
    model = {"name": "number", "instances": 3, "gpu_memory": "3GiB", "engine_cache": "kept"}
    with pytest.raises(
        PlanError, match=r"model.gpu_memory: only the executors onnx and torch keep a limit, found python"
    ):
        plan_of(tmp_path, model=model)
    assert [options["gpu_memory"] for options in opened] == [2**30] * 3
    assert {options["engine_cache"] for options in opened} == {tmp_path / "kept"}


def test_copy_that_runs_cuda_graphs_takes_one_batch_at_a_time(tmp_path: Path) -> None:
    service = python_service(
        tmp_path,
        NOWHERE,
        'return {"y": inputs["x"]}',
        with_topics=False,
        model={"name": "number", "concurrent_batches": 2},
    )
    pipeline = load_pipeline(service.file, {})
    model = replace(make_plan(pipeline).model, runtime=RuntimeOptions(cuda_graphs=True))
    check_gpu_options(pipeline, model, "cpu")
    with pytest.raises(
        PlanError, match=r"model.concurrent_batches: expected 1, .* found 2. Write `instances: 2` instead"
    ):
        check_gpu_options(pipeline, model, "cuda")


def test_schema_says_in_which_format_a_time_is(tmp_path: Path) -> None:
    service = python_service(tmp_path, NOWHERE, 'return {"y": inputs["x"]}', with_topics=False)
    schema = tmp_path / "schemas" / "1-number-event.avsc"
    micros = '{"name": "x", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}'
    schema.write_text(schema.read_text(encoding="utf-8").replace('{"name": "x", "type": "double"}', micros))
    config = (
        "inputs: [{tensor: x, fields: [{field: x, as: hour, missing: -1}], dtype: float64}]\noutputs: [{tensor: y}]"
    )
    (tmp_path / "models" / "number" / "1" / "config.yaml").write_text(config, encoding="utf-8")
    plan = make_plan(load_pipeline(service.file, {}))
    values = [b'{"id": "a", "x": 7200000000}', b'{"id": "b", "x": null}']
    records: list[Record] = [MemoryRecord(at, value) for at, value in enumerate(values)]
    block = plan.decoder.decode(FetchedBatch(Records.of(records), EPOCHS, 0.0, 0))
    assert block.tensors["x"].tolist() == [[2.0], [-1.0]]


@pytest.mark.parametrize(
    ("logical", "stated"),
    [("timestamp-micros", "milliseconds"), ("timestamp-millis", "seconds"), ("local-timestamp-millis", "microseconds")],
)
def test_unit_of_a_time_that_is_not_the_schemas_is_refused(tmp_path: Path, logical: str, stated: str) -> None:
    service = python_service(tmp_path, NOWHERE, 'return {"y": inputs["x"]}', with_topics=False)
    schema = tmp_path / "schemas" / "1-number-event.avsc"
    time = f'{{"name": "x", "type": {{"type": "long", "logicalType": "{logical}"}}}}'
    schema.write_text(schema.read_text(encoding="utf-8").replace('{"name": "x", "type": "double"}', time))
    config = f"inputs: [{{tensor: x, fields: [{{field: x, time: {stated}, as: month}}], dtype: float64}}]"
    (tmp_path / "models" / "number" / "1" / "config.yaml").write_text(f"{config}\noutputs: [{{tensor: y}}]")
    with pytest.raises(
        PlanError, match=rf"`x` with `time: {stated}`, but schema `number-event` has {logical} there"
    ) as no:
        make_plan(load_pipeline(service.file, {}))
    assert "write `time: null` in the pipeline file's `inputs`" in str(no.value)
    document = yaml.safe_load(service.file.read_text(encoding="utf-8"))
    document["model"]["inputs"] = {"x": [{"field": "x", "time": None}]}
    service.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    make_plan(load_pipeline(service.file, {}))


def test_only_the_logical_types_of_avro_are_times(tmp_path: Path) -> None:
    source = {"format": "json", "schema": "number-event", "event_time": "at", "event_time_format": "seconds"}
    service = python_service(tmp_path, NOWHERE, 'return {"y": inputs["x"]}', with_topics=False, input=source)
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "epoch-seconds"}},
        {"name": "x", "type": {"type": "string", "logicalType": "timestamp-millis"}},
    ]
    schema = {"type": "record", "name": "NumberEvent", "fields": fields}
    (tmp_path / "schemas" / "1-number-event.avsc").write_text(json.dumps(schema), encoding="utf-8")
    config = "inputs: [{tensor: x, fields: [{field: x, time: iso8601, as: month}], dtype: float64}]"
    (tmp_path / "models" / "number" / "1" / "config.yaml").write_text(f"{config}\noutputs: [{{tensor: y}}]")
    plan = make_plan(load_pipeline(service.file, {}))
    value = b'{"at": 1772359200, "x": "2026-03-01T10:00:00Z"}'
    block = plan.decoder.decode(FetchedBatch(Records.of([MemoryRecord(0, value)]), EPOCHS, 0.0, 0))
    assert block.tensors["x"].tolist() == [[3.0]]
    assert block.event_times.tolist() == [1_772_359_200_000]


def test_json_without_a_schema_becomes_features_by_paths(tmp_path: Path) -> None:
    source = {"format": "json", "event_id": "id", "event_time": "at", "event_time_format": "seconds"}
    service = python_service(tmp_path, NOWHERE, 'return {"y": inputs["x"]}', with_topics=False, input=source)
    config = """
    inputs:
      - tensor: x
        fields:
          - {field: customer.age, type: text, missing: nan}
          - {field: 'basket.items[0].price', missing: -1}
          - {field: customer.country, vocabulary: ['no', se], unknown: 9}
          - {field: customer.since, time: iso8601, as: weekday}
          - {field: customer.seen, time: seconds, as: age}
        dtype: float64
      - {tensor: tags, field: 'basket.items[].tag', vocabulary: [a, 7], missing: -1, dtype: int64, shape: [3], pad: 5}
    outputs: [{tensor: y}]
    """
    (tmp_path / "models" / "number" / "1" / "config.yaml").write_text(dedent(config), encoding="utf-8")
    customer = {"age": "33.5", "country": "se", "since": "2026-01-31T09:30:00+01:00", "seen": 90.5}
    items = [{"price": 2.5, "tag": "a"}, {"tag": 7}, {}]
    events = [
        {"id": "full", "at": 100, "customer": customer, "basket": {"items": items}},
        {"id": "bad", "at": 100, "customer": customer | {"age": "old"}, "basket": {"items": []}},
        {"id": "poor", "at": 100, "customer": customer | {"age": None, "country": 3}, "basket": {"items": []}},
        {"id": "odd", "at": 100, "customer": customer | {"country": 1.5}, "basket": {"items": []}},
    ]
    records: list[Record] = [MemoryRecord(at, json.dumps(event).encode()) for at, event in enumerate(events)]
    plan = make_plan(load_pipeline(service.file, {}))
    block = plan.decoder.decode(FetchedBatch(Records.of(records), EPOCHS, 0.0, 0))
    expected = [[33.5, 2.5, 1.0, 5.0, 9.5], [math.nan, -1.0, 9.0, 5.0, 9.5]]
    np.testing.assert_array_equal(block.tensors["x"], expected)
    assert block.tensors["tags"].tolist() == [[0, 1, -1], [5, 5, 5]]
    assert {row: why.reason for row, why in block.rejected.items()} == {1: "unfit", 3: "undecodable"}
    assert block.rejected[1].error.startswith("field `customer.age` is 'old', but tensor `x` needs text with a number")
    assert block.rejected[3].error.startswith("customer.country: ")


def plan_without_schema(folder: Path, config: str, **sections: Any) -> Plan:
    service = python_service(folder, NOWHERE, 'return {"y": inputs["x"]}', with_topics=False, **sections)
    (folder / "models" / "number" / "1" / "config.yaml").write_text(config, encoding="utf-8")
    return make_plan(load_pipeline(service.file, {}))


FLOAT_OF_ID = "inputs: [{tensor: x, fields: [id], dtype: float32}]\noutputs: [{tensor: y}]"


def test_id_that_is_also_a_feature_stays_exact(tmp_path: Path) -> None:
    plan = plan_without_schema(tmp_path, FLOAT_OF_ID, input={"format": "json", "event_id": "id"})
    values = [b'{"id": 17}', b'{"id": 12345678901234567}', b'{"id": "a"}']
    records: list[Record] = [MemoryRecord(at, value) for at, value in enumerate(values)]
    block = plan.decoder.decode(FetchedBatch(Records.of(records), EPOCHS, 0.0, 0))
    assert list(block.ids) == ["17", "12345678901234567"]
    assert block.tensors["x"].tolist() == [[17.0], [np.float32(12345678901234567)]]
    assert {row: why.reason for row, why in block.rejected.items()} == {2: "undecodable"}


@pytest.mark.parametrize(
    ("dtype", "sections", "says"),
    [
        (
            "float32",
            {"input": {"event_time": "id", "event_time_format": "iso8601"}},
            "input.event_time: expected one type of field `id` for all that read it, found a text for `input.event_time` and a "
            "number for tensor `x` of model `number`, version 1. For tensors, `time: iso8601` beside the field, without `type`, "
            "makes a number of a time, such as its hour: `{field: id, time: iso8601, as: hour}`, in config.yaml",
        ),
        (
            "bool",
            {"input": {"event_time": "id", "event_time_format": "iso8601"}},
            "true or false for tensor `x` of model `number`, version 1. Let one of them read another field.",
        ),
        (
            "bool",
            {"input": {"event_id": "id"}},
            "found a text or a whole number for `input.event_id` and true or false for tensor `x` of model `number`, version 1.",
        ),
        (
            "float32",
            {"output": {"format": "json", "include": {"id": "text"}}},
            "found a text for `output.include.id` and a number for tensor `x` of model `number`, version 1.",
        ),
        (
            "float32",
            {"input": {"event_id": "key"}, "output": {"format": "json", "include": {"key": "boolean"}}},
            "found true or false for `output.include.key` and a text or a whole number for `input.event_id`.",
        ),
        (
            "float32",
            {
                "input": {"event_id": "key", "event_time": "key"},
                "output": {"format": "json", "include": {"key": "text"}},
            },
            "found a text for `output.include.key` and a number for `input.event_time`.",
        ),
    ],
)
def test_uses_of_a_field_that_contradict_each_other_are_told(
    tmp_path: Path, dtype: str, sections: dict[str, Any], says: str
) -> None:
    sections["input"] = {"format": "json"} | sections.get("input", {})
    with pytest.raises(PlanError, match=re.escape(says)):
        plan_without_schema(tmp_path, FLOAT_OF_ID.replace("float32", dtype), **sections)


def test_message_about_included_fields_without_a_type_names_all_fields_with_the_types_that_are_known(
    tmp_path: Path,
) -> None:
    config = (
        "inputs:\n  - {tensor: x, fields: [x], dtype: float32}\n  - {tensor: n, fields: [n], dtype: int64}\n"
        "  - {tensor: ok, fields: [ok], dtype: bool}\n  - {tensor: city, fields: [city], dtype: string}\n"
        "  - {tensor: tier, fields: [{field: tier, vocabulary: [a, b]}], dtype: int64}\n"
        "  - {tensor: mixed, fields: [{field: mixed, type: any}], dtype: float32}\n"
        '  - {tensor: tags, field: "tags[]", dtype: float32, shape: [2]}\noutputs: [{tensor: y}]'
    )
    listed = ["id", "x", "country", "n", "ok", "city", "tier", "mixed", "tags[]", "names[]"]
    sections: dict[str, Any] = {"input": {"format": "json", "event_id": "id"}}
    says = "expected the type of `country`, `names[]`, because there is no `input.schema` and the model doesn't read these fields"
    folders = tmp_path / "list", tmp_path / "written"
    for folder in folders:
        folder.mkdir()
    with pytest.raises(PlanError, match=re.escape(says)) as raised:
        plan_without_schema(folders[0], config, output={"format": "json", "include": listed}, **sections)
    written = (
        "{id: any, x: number, country: TYPE, n: int, ok: boolean, city: text, tier: any, mixed: any, "
        '"tags[]": number, "names[]": TYPE}'
    )
    assert f"Write include: {written}, and for TYPE what the events have there: text, int," in str(raised.value)
    include = yaml.safe_load(written.replace("TYPE", "text"))
    plan = plan_without_schema(folders[1], config, output={"format": "json", "include": include}, **sections)
    assert [*plan.included] == listed


def test_included_items_of_a_list_have_the_type_of_those_that_the_model_reads(tmp_path: Path) -> None:
    config = "inputs:\n  - {tensor: x, fields: ['a[0]', 'a[1]'], dtype: float32}\noutputs: [{tensor: y}]"
    plan = plan_without_schema(
        tmp_path, config, output={"format": "json", "include": ["a[]"]}, input={"format": "json", "event_id": "id"}
    )
    assert [*plan.included] == ["a[]"]


def test_included_field_is_reported_only_by_its_one_use_and_only_where_predictions_are_written(tmp_path: Path) -> None:
    include = {"id": "any", "x": "number", "at": "number", "size": "number", "plate": "text"}
    sections: dict[str, Any] = {
        "input": {"format": "json", "event_id": "id", "event_time": "at"},
        "batch": {"cost": "size", "max_cost": 9},
        "output": {"format": "json", "include": include},
        "model": {"name": "number", "version": 1},
        "shadows": [{"version": 2, "dedicated": True}],
    }
    service = python_service(tmp_path, NOWHERE, 'return {"y": inputs["x"]}', with_topics=False, **sections)
    models = tmp_path / "models" / "number"
    shutil.copytree(models / "1", models / "2")
    pipeline = load_pipeline(service.file, {})
    of_primary, of_shadow = ([*make_plan(pipeline, dedicated=role).decoder.replaceable] for role in (False, True))
    named = [[(source.field, source.option) for source in sources] for sources in (of_primary, of_shadow)]
    own = [("at", "event_time"), ("size", "cost")]
    assert named == [[*own, ("plate", "include")], own]


@pytest.mark.parametrize(
    ("dtype", "form"), [("string", "iso8601"), ("int64", "milliseconds"), ("float64", "milliseconds")]
)
def test_event_time_that_is_also_a_feature_has_its_type(tmp_path: Path, dtype: str, form: str) -> None:
    config = FLOAT_OF_ID.replace("float32", dtype).replace("[id]", "[at]")
    plan = plan_without_schema(tmp_path, config, input={"format": "json", "event_id": "at", "event_time": "at"})
    at = "2026-01-31T09:30:00Z" if form == "iso8601" else 1_769_851_800_000
    value = json.dumps({"at": at}).encode()
    block = plan.decoder.decode(FetchedBatch(Records.of([MemoryRecord(0, value)]), EPOCHS, 0.0, 0))
    assert (list(block.ids), block.event_times.tolist()) == ([str(at)], [1_769_851_800_000])


def test_field_that_the_batch_section_names_is_what_events_cost(tmp_path: Path) -> None:
    values = [b'{"id": "a", "x": 3.0}', b'{"id": "b", "x": 4.5}']
    records: list[Record] = [MemoryRecord(at, value) for at, value in enumerate(values)]
    block = plan_of(tmp_path, batch=BATCH).decoder.decode(FetchedBatch(Records.of(records), EPOCHS, 0.0, 0))
    assert block.costs is not None
    assert np.diff(block.costs, prepend=0).tolist() == [3, 5]


def test_as_many_copies_of_the_model_are_loaded_and_run_as_many_batches_as_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(build, "connect", lambda _shared, **named: given.update(named))
    plan = plan_of(tmp_path, model={"name": "number", "instances": 3, "concurrent_batches": 2})
    largest = dict.fromkeys((plan.pipeline.output.topic, plan.pipeline.dead_letters.topic), 1_000_000)
    build.build_worker(
        plan,
        Health(60),
        Metrics("p"),
        largest_outputs=largest,
        lost_broker=print,
        instance_id="p-0",
        until_idle=True,
    )
    assert len({id(executor) for executor in given["serving"].model.executors}) == 3
    assert given["serving"].model.executors == plan.executors
    assert given["serving"].in_flight == 2


@pytest.mark.parametrize(("largest", "least"), [(1_000_000, 2 * 1024), (12_000_000, 12_000_000 // 1024 + 1)])
def test_producers_queue_holds_the_largest_record(tmp_path: Path, largest: int, least: int) -> None:
    """One that does not fit would wait for room for ever."""
    plan = plan_of(tmp_path, limits={"in_flight_bytes": "8MiB"})
    settings = producer_settings(plan, {"out": 1_000_000, "dead": largest})
    assert settings["queue.buffering.max.kbytes"] >= least


def test_reasons_at_which_to_stop_or_to_write_nothing_are_the_sinks(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, on_error={"stop": ["unfit", "crashed"], "skip": ["expired"]})
    topics = (plan.pipeline.output.topic, plan.pipeline.dead_letters.topic)
    outputs = outputs_of(plan, dict.fromkeys(topics, 1_000_000))
    assert outputs.stop_at == {"unfit", "crashed"}
    assert outputs.dead_letters.skip == {"expired"}


# From the settings to the stages


class Made:
    """What a worker makes of its settings and of these executors; it reads and writes nothing."""

    pool: ExecutorPool
    window: BatchWindow
    limits: Limits  # that the batcher is given

    def __init__(self, plan: Plan, executors: Sequence[Executor], in_flight: int) -> None:
        shared = shared_of(settings_of(plan, until_idle=True), CrashGuard(3, 100), Health(60), Metrics("p"))
        self.abandon = shared.ending.abandon
        shared.assignment.add([("in", 0)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(executor_slots, "ExecutorPool", self._pool)
            patch.setattr(build, "Batcher", self._batcher)
            build.connect(
                shared,
                source=cast("Source", SimpleNamespace(start_offsets={})),
                decoder=plan.decoder,
                serving=Serving(OpenedModel(MODEL, executors), in_flight, 1),
                sink=cast("Sink", None),
                shadows=None,
            )

    def _pool(self, *given: Any, **named: Any) -> ExecutorPool:
        self.pool = ExecutorPool(*given, **named)
        return self.pool

    def _batcher(self, limits: Limits, *given: Any, window: BatchWindow) -> Batcher:
        self.limits, self.window = limits, window
        return Batcher(limits, *given, window=window)


def test_batcher_and_its_window_are_given_the_batch_section(tmp_path: Path) -> None:
    made = Made(plan_of(tmp_path, batch=BATCH), [NegatingExecutor()], 1)
    assert made.limits == LIMITS
    assert made.window.enough == 8
    assert made.window.length == 0.05  # the target leaves no more


@pytest.mark.parametrize(("instances", "in_flight"), [(1, 2), (2, 1), (2, 3)])
def test_each_executor_has_as_many_batches_in_the_model_at_a_time_as_told(
    tmp_path: Path, instances: int, in_flight: int
) -> None:
    """All wait for each other in the model: one by one none would come out."""
    together = threading.Barrier(instances * in_flight, timeout=10)

    def wait_for_all(_inputs: Tensors) -> None:
        try:
            together.wait()
        finally:
            if together.broken:
                made.abandon.set()

    executors = [NegatingExecutor(wait_for_all) for _ in range(instances)]
    made = Made(plan_of(tmp_path), executors, in_flight)
    for number in range(instances * in_flight):
        made.pool.submit(batch_of("e", number))
    made.pool.settle()
    made.pool.close()
    assert [len(executor.sizes) for executor in executors] == [in_flight] * instances
