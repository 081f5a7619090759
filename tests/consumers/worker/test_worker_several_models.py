"""Workers with several models: each event is answered once, in order, by the model that its prediction names."""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.observability import metrics as m
from tests.consumers.processes import Worker
from tests.consumers.several_service import (
    CONFIG,
    assert_in_order,
    predictions,
    send,
    several_service,
    write_onnx,
    write_scaled,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.consumers.service import Service

EXACTLY_ONCE = {"delivery": "exactly_once"}


def run_until_idle(service: Service) -> None:
    """Let a worker answer all events."""
    with Worker(service.file, "--until-idle") as worker:
        assert worker.wait() == 0, worker.log


def check_delivered(service: Service, events: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each event has one prediction or one dead letter, in order. Returns the predictions by the events' ids."""
    found = predictions(service)
    letters = [f"e{_x_of(letter.value):g}" for letter in service.dead_letters()]
    assert Counter([*(row["event_id"] for row in found), *letters]) == Counter(f"e{event['x']:g}" for event in events)
    assert_in_order(service)
    assert service.committed() == service.input_ends()
    return {row["event_id"]: row for row in found}


def _x_of(value: bytes | None) -> float:
    return float(json.loads(value or b"")["x"])


@pytest.mark.broker
def test_events_of_other_kinds_need_no_field_of_the_only_model(kafka: Broker, tmp_path: Path) -> None:
    write_scaled(tmp_path / "models", "orders", 2, config=CONFIG.replace("fields: [x]", "fields: [amount]"))
    service = several_service(tmp_path, kafka, {"route": {"field": "who", "values": {"order": "orders"}}})
    orders = [{"x": 1.0, "who": "order", "amount": 5.0}, {"x": 2.0, "who": "order"}]
    send(service, [*orders, {"x": 3.0, "who": "view"}, {"x": 4.0}])
    run_until_idle(service)
    assert [(row["event_id"], row["outputs"]) for row in predictions(service)] == [("e1", {"y": 10.0})]
    letters = {_x_of(letter.value): letter.reason for letter in service.dead_letters()}
    assert letters == {2: "unfit", 3: "no_model", 4: "no_model"}


@pytest.mark.durable
def test_route(kafka: Broker, tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_onnx(models, "eu", 2, version=3)
    write_scaled(models, "us", 3, 'if (x == 13).any(): raise ValueError("13 brings bad luck")')
    route = {"field": "who", "values": {"DE": "eu", "AT": "eu", "US": "us"}}
    service = several_service(tmp_path, kafka, {"route": route}, **EXACTLY_ONCE)
    names = ["DE", "AT", "US", "FR"]
    events: list[dict[str, Any]] = [{"x": float(x), "who": names[x // 4 % 4]} for x in range(4000)]
    events[13]["who"] = "US"
    send(service, events)
    run_until_idle(service)
    found = check_delivered(service, events)
    for event in events:
        row = found.get(f"e{event['x']:g}")
        if event["who"] == "FR" or event["x"] == 13:
            assert row is None
        else:
            assert row is not None
            model, version, factor = ("us", 1, 3) if event["who"] == "US" else ("eu", 3, 2)
            assert (row["model"], row["version"]) == (model, version)
            assert row["outputs"] == {"y": pytest.approx(event["x"] * factor)}
    letters = Counter((letter.reason, letter.error) for letter in service.dead_letters())
    assert letters.pop(("no_model", "no model answers events whose field `who` is 'FR'")) == sum(
        event["who"] == "FR" for event in events
    )
    ((reason, error),) = letters
    assert reason == "model_rejected"
    assert error.startswith("model us version 1: ")
    assert error.endswith("ValueError: 13 brings bad luck")


@pytest.mark.durable
def test_cascade_survives_kills(kafka: Broker, tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_scaled(models, "small", 1, "import time; time.sleep(0.002)")
    write_onnx(models, "large", 10, version=7)
    steps = [{"model": "small", "escalate": {"output": "y", "between": [1000, 2000]}}, {"model": "large"}]
    service = several_service(
        tmp_path, kafka, {"cascade": steps}, membership={"static": True}, batch={"max_events": 16}, **EXACTLY_ONCE
    )
    events = [{"x": float(x)} for x in range(6000)]
    send(service, events)
    for written in (500, 2500):
        with Worker(service.file) as worker:
            worker.wait_for(lambda: len(service.predictions()) >= written, 60, "answering")  # noqa: B023
            worker.stop(signal.SIGKILL)
    with Worker(service.file) as worker:
        service.wait_committed(60)
        metrics = worker.metrics()
        assert worker.stop() == 0
    found = check_delivered(service, events)
    assert len(found) == len(events)
    for event in events:
        row = found[f"e{event['x']:g}"]
        escalated = 1000 < event["x"] < 2000
        assert row["outputs"] == {
            "y": pytest.approx(event["x"] * (10 if escalated else 1)),
            "escalated": escalated,
            "models": "small:1 large:7" if escalated else "small:1",
        }
        assert (row["model"], row["version"]) == (("large", 7) if escalated else ("small", 1))
    assert metrics[m.CASCADE_EVENTS.name] >= metrics[m.ESCALATED.name]
    assert metrics[m.CASCADE_EVENTS.name] > 0
    assert metrics[m.INTERNAL_ERRORS.name] == 0


@pytest.mark.durable
def test_ensemble(kafka: Broker, tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_scaled(models, "first", 1)
    write_onnx(models, "second", 3)
    judge = "inputs: [{tensor: x, fields: [a, b], dtype: float32}]\noutputs: [{tensor: y}]\n"
    write_scaled(models, "judge", 5, 'if (x[:, 0] == 13).any(): raise ValueError("bad")', judge)
    ensemble = {
        "name": "jury",
        "version": 2,
        "steps": {"a": "first", "b": "second", "j": {"name": "judge", "feed": {"x": {"stack": ["a.y", "b.y"]}}}},
        "outputs": {"mean": {"mean": ["a.y", "b.y"]}, "verdict": "j.y"},
    }
    service = several_service(tmp_path, kafka, {"ensemble": ensemble}, **EXACTLY_ONCE)
    events = [{"x": float(x)} for x in range(2000)]
    send(service, events)
    run_until_idle(service)
    found = check_delivered(service, events)
    assert found.keys() == {f"e{x}" for x in range(2000) if x != 13}
    for x in (0, 1, 1999):
        row = found[f"e{x}"]
        assert row["outputs"] == {"mean": 2 * x, "verdict": 5 * x, "models": "first:1 second:1 judge:1"}
        assert (row["model"], row["version"]) == ("jury", 2)


@pytest.mark.full
@pytest.mark.durable
def test_hundreds_of_tenants_with_a_small_budget(kafka: Broker, tmp_path: Path) -> None:
    models = tmp_path / "models"
    for tenant in range(300):
        write_onnx(models, f"churn-t{tenant}", tenant, version=1 + tenant % 3)
    write_onnx(models, "world", -1)
    (models / "churn-t7" / "2" / "model.onnx").write_bytes(b"broken")
    tenants = {"field": "who", "name": "churn-{tenant}", "default": "world", "memory": "20MiB"}
    service = several_service(tmp_path, kafka, {"tenants": tenants}, batch={"max_events": 64}, **EXACTLY_ONCE)
    # Some tenants have many events; some have no model; one would leave the repository.
    others = ["nobody", "../world", None, "t7"]
    events: list[dict[str, Any]] = [
        {"x": float(x), "who": others[x // 10 % 4] if x % 10 == 0 else f"t{x * 7 % 300 if x % 3 else x % 5}"}
        for x in range(6000)
    ]
    send(service, events)
    with Worker(service.file) as worker:
        service.wait_committed(120)
        metrics = worker.metrics()
        assert worker.stop() == 0
    found = check_delivered(service, events)
    for event in events:
        row, who = found.get(f"e{event['x']:g}"), event["who"]
        if who == "t7":
            assert row is None
            continue
        assert row is not None
        number = int(who[1:]) if who is not None and who[1:].isdigit() else -1
        assert row["outputs"] == {"y": pytest.approx(event["x"] * number)}
        model = ("world", 1) if number == -1 else (f"churn-t{number}", 1 + number % 3)
        assert (row["model"], row["version"]) == model
    assert {letter.reason for letter in service.dead_letters()} == {"no_model"}
    assert metrics[m.INTERNAL_ERRORS.name] == 0
    assert 0 < metrics[m.TENANT_MODEL_BYTES.name] <= 20 * 2**20
    assert metrics[m.TENANT_MODELS.name] < 20
    assert metrics[f"{m.TENANT_LOADS.name}{{result=loaded}}"] > 100
    assert metrics[f"{m.TENANT_LOADS.name}{{result=failed}}"] >= 1
    loaded = metrics[f"{m.TENANT_LOADS.name}{{result=loaded}}"] - metrics[m.TENANT_UNLOADS.name]
    assert loaded == metrics[m.TENANT_MODELS.name]


@pytest.mark.full
@pytest.mark.durable
def test_tenants_survive_the_loss_of_a_worker(kafka: Broker, tmp_path: Path) -> None:
    for tenant in range(40):
        write_onnx(tmp_path / "models", f"churn-t{tenant}", tenant)
    tenants = {"field": "who", "name": "churn-{tenant}", "memory": "8MiB"}
    service = several_service(
        tmp_path, kafka, {"concurrent_batches": 2, "tenants": tenants}, batch={"max_events": 32}, **EXACTLY_ONCE
    )
    events: list[dict[str, Any]] = [{"x": float(x), "who": f"t{x * 7 % 41}"} for x in range(12_000)]
    with Worker(service.file) as first, Worker(service.file) as second:
        first.wait_ready()
        second.wait_ready()
        send(service, events)
        service.wait_written(1000)
        first.stop(signal.SIGKILL)
        service.wait_committed(90)
        assert second.metrics()[m.INTERNAL_ERRORS.name] == 0
        assert second.stop() == 0
    found = check_delivered(service, events)
    for event in events:
        row, number = found.get(f"e{event['x']:g}"), int(event["who"][1:])
        if number == 40:  # it has no model, and there is no default
            assert row is None
        else:
            assert row is not None
            assert (row["model"], row["outputs"]) == (f"churn-t{number}", {"y": pytest.approx(event["x"] * number)})
    assert {letter.reason for letter in service.dead_letters()} == {"no_model"}
