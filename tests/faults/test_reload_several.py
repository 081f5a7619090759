"""Models that work together change one by one under load, while workers are killed.

Each event has one result, of exactly the versions that its prediction names.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from onnx import TensorProto, helper

from tests.consumers.service import prediction_of
from tests.consumers.serving.versions import name_alias, write_version
from tests.faults.load import owned, owner_of, x_of
from tests.faults.named_versions import named, wait_answered
from tests.faults.service import assert_exactly_once, under_load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.processes import Worker
    from tests.consumers.service import Service

    Row = dict[str, Any]

pytestmark = [pytest.mark.durable, pytest.mark.full]
INPUT = {"format": "json", "event_id": "id"}
CONFIG = {
    "inputs": [{"tensor": "x", "fields": ["x"], "dtype": "float32"}],
    "outputs": [{"tensor": "number"}, {"tensor": "left"}],
}
VERSIONS = (1, 2, 3)
BROKEN = 4
FIRST_NUMBERS = {"m-a": 0, "m-b": 10}
"""Version v of a model answers the number v + this one, and `x` minus it (`left`)."""
GOOD = {"m-a": 1, "m-b": 2}  # what answers while each model in turn has a broken version
SURE = 2.5  # a cascade goes on if `left` is above it: which events do so shows the first model's version


@dataclass(frozen=True)
class Several:
    """A way in which the models `m-a` and `m-b` work together."""

    section: Mapping[str, Any]  # of `models`
    outputs: Callable[[Row], Mapping[str, Any]]  # those that a prediction must have, from the versions that it names
    refusals: str = "millstream_model_reloads_total{result=load}"  # counts versions that a worker refused


def answer(model: str, version: int, x: float) -> dict[str, Any]:
    """The outputs of a version."""
    number = FIRST_NUMBERS[model] + version
    return {"number": number, "left": x - number}


def of_the_owner(row: Row) -> Mapping[str, Any]:
    """`m-a` answers the events of `a`, and `m-b` all others."""
    model = "m-a" if owner_of(row["event_id"]) == "a" else "m-b"
    return answer(model, row["version"], x_of(row["event_id"]))


def of_a_cascade(row: Row) -> Mapping[str, Any]:
    """`m-a` answers first, and `m-b` where `m-a` isn't sure."""
    versions, x = named(row), x_of(row["event_id"])
    escalated = answer("m-a", versions["m-a"], x)["left"] > SURE
    models = ["m-a", "m-b"] if escalated else ["m-a"]
    ran = " ".join(f"{model}:{versions.get(model)}" for model in models)
    return {**answer(row["model"], row["version"], x), "escalated": escalated, "models": ran}


def of_an_ensemble(row: Row) -> Mapping[str, Any]:
    """Both models answer."""
    versions, x = named(row), x_of(row["event_id"])
    a, b = (answer(model, versions[model], x) for model in ("m-a", "m-b"))
    return {"a": a["number"], "b": b["number"], "left": a["left"], "models": row["outputs"]["models"]}


A, B = ({"name": name, "version": "champion"} for name in FIRST_NUMBERS)
SEVERAL = {
    "route": Several({"route": {"field": "who", "values": {"a": A}, "default": B}}, of_the_owner),
    "cascade": Several(
        {"cascade": [{"model": A, "escalate": {"output": "left", "between": [SURE, 1000]}}, {"model": B}]}, of_a_cascade
    ),
    "ensemble": Several(
        {
            "ensemble": {
                "steps": {"a": A, "b": B},
                "outputs": {"a": "a.number", "b": "b.number", "left": "a.left"},
            }
        },
        of_an_ensemble,
    ),
    # Owner b has a model of its own. Those of c and d get the default, which is the same one.
    "tenants": Several(
        {"tenants": {"field": "who", "name": "m-{tenant}", "version": "champion", "default": B, "memory": "1GiB"}},
        of_the_owner,
        refusals="millstream_tenant_model_loads_total{result=failed}",
    ),
}


@pytest.mark.parametrize("kind", SEVERAL)
def test_workers_are_killed_while_models_change(kafka: Broker, tmp_path: Path, kind: str) -> None:
    several, chance = SEVERAL[kind], random.Random(12)
    folders = {name: tmp_path / "models" / name for name in FIRST_NUMBERS}
    models = {**several.section, "poll_interval": "200ms"}
    with under_load(tmp_path, kafka, seed=204, load=owned, input=INPUT, models=models) as (service, fleet, stream):
        for name, folder in folders.items():
            write_versions(folder, FIRST_NUMBERS[name])
        fleet.start("w0", "w1")
        fleet.wait_ready()
        for turn in range(8):
            name_alias(chance.choice(list(folders.values())), champion=chance.choice(VERSIONS))
            time.sleep(chance.uniform(0, 0.4))  # at any moment of a reload
            victim = f"w{turn % 2}"
            fleet.kill(victim)
            fleet.start(victim)
            fleet.wait_written()
        for versions in ({"m-a": 2, "m-b": 3}, {"m-a": 3, "m-b": 3}, GOOD):
            follow(service, folders, versions)
        for name, folder in folders.items():
            break_model(folder, [fleet["w0"], fleet["w1"]], several.refusals)
            wait_answered(service, GOOD)
            name_alias(folder, champion=GOOD[name])
        follow(service, folders, {"m-a": 3, "m-b": 1})
        assert_exactly_once(service, fleet.finish(stream))
    rows = [prediction_of(message) for message in service.predictions()]
    wrong = [row for row in rows if row["outputs"] != several.outputs(row)]
    assert wrong == [], f"{len(wrong)} of {len(rows)} name other versions than those that answered: {wrong[:3]}"
    assert service.dead_letters() == []
    assert (
        {named(row).get("m-a") for row in rows} - {None}
        == {named(row).get("m-b") for row in rows} - {None}
        == {*VERSIONS}
    )


def write_versions(folder: Path, first: int) -> None:
    """Write the versions of a model. `first`: see `FIRST_NUMBERS`."""
    for version in VERSIONS:
        write_version(folder, version, config=CONFIG, content=number_model(first + version))
    write_version(folder, BROKEN, config=CONFIG, content=b"no model")
    name_alias(folder, champion=1)


def number_model(number: int) -> bytes:
    """A model x float32 [batch, 1] -> number and left, float32 [batch, 1] each: see `answer`."""
    constants = [helper.make_tensor("n", TensorProto.FLOAT, [1], [number])]
    tensors = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 1]) for name in ("x", "number", "left")
    }
    nodes = [helper.make_node("Sub", ["x", "n"], ["left"]), helper.make_node("Sub", ["x", "left"], ["number"])]
    graph = helper.make_graph(nodes, "number", [tensors["x"]], [tensors["number"], tensors["left"]], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def follow(service: Service, folders: Mapping[str, Path], versions: Mapping[str, int]) -> None:
    """Let the alias of each model name a version, and wait until they answer."""
    for name, folder in folders.items():
        name_alias(folder, champion=versions[name])
    wait_answered(service, versions)


def break_model(folder: Path, workers: Sequence[Worker], refusals: str) -> None:
    """Let the alias of a model name the broken version, and wait until all workers refuse it."""
    before = [worker.metrics().get(refusals, 0) for worker in workers]
    name_alias(folder, champion=BROKEN)
    for worker, count in zip(workers, before, strict=True):
        worker.wait_for(
            lambda w=worker, c=count: w.metrics().get(refusals, 0) > c,  # type: ignore[misc]
            60,
            f"refusing the broken version of {folder.name}",
        )
