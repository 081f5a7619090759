"""The section `models` with real model folders: what `check` says, and what `predict` shows."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from millstream.consumers.cli import main as cli
from millstream.consumers.worker.plan import make_plan, outputs_of, settings_of
from millstream.inference.combined.tenants import Tenants
from millstream.inference.combined.version import CombinedVersion
from millstream.pipeline.loading import load_pipeline
from tests.broker.choice import Broker
from tests.consumers.several_service import CONFIG, INPUT, several_service, write_onnx, write_scaled

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
TWO = "inputs: [{tensor: x, fields: [x, z], dtype: float32}]\noutputs: [{tensor: y}]\n"
KSERVE = "executor: kserve\nserver: {urls: ['http://127.0.0.1:1']}\n" + CONFIG
CASCADE: list[dict[str, Any]] = [{"model": "small", "escalate": {"output": "y", "between": [1, 5]}}, {"model": "large"}]
STEPS: dict[str, Any] = {"a": "small", "b": {"name": "large", "feed": {"x": {"stack": ["a.y", "a.y"]}}}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`small` takes `x`; `large` takes `x` and `z`; `other` has another output."""
    models = tmp_path / "models"
    write_onnx(models, "small", 1)
    write_scaled(models, "large", 10, config=TWO)
    write_scaled(models, "other", 1, config=CONFIG.replace("{tensor: y}", "{tensor: y, name: risk}"))
    write_scaled(models, "server", 1, config=KSERVE)
    (models / "server" / "1" / "model.py").unlink()
    return tmp_path


def run(
    folder: Path, capsys: pytest.CaptureFixture[str], models: dict[str, Any], *command: str
) -> tuple[int, str, str]:
    """Run a command on a pipeline with these models."""
    service = several_service(folder, NOWHERE, models, with_topics=False)
    code = cli.run([command[0], str(service.file), *command[1:]])
    out, err = capsys.readouterr()
    return code, out, err


def check(folder: Path, capsys: pytest.CaptureFixture[str], models: dict[str, Any]) -> tuple[int, str, str]:
    return run(folder, capsys, models, "check", "--offline")


def predict(
    folder: Path, capsys: pytest.CaptureFixture[str], models: dict[str, Any], *events: dict[str, Any]
) -> list[dict[str, Any]]:
    file = folder / "events.jsonl"
    file.write_text("".join(json.dumps({"id": str(at), **event}) + "\n" for at, event in enumerate(events)))
    _, out, _ = run(folder, capsys, models, "predict", str(file), "--json")
    return [json.loads(line) for line in out.splitlines()]


def test_check_lists_the_models_and_what_a_prediction_has(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = check(folder, capsys, {"cascade": CASCADE})
    assert (code, err) == (0, "")
    assert f"member    model small version 1 ({folder}/models/small/1/config.yaml)\n" in out
    assert f"member    model large version 1 ({folder}/models/large/1/config.yaml)\n" in out
    assert "input     x: float32 [1] per event, from x\ninput     large.x: float32 [2] per event, from x, z\n" in out
    assert "output    escalated, from the pipeline\noutput    models, from the pipeline\n" in out
    assert "ok        a worker would start" in out


def test_check_names_the_model_that_takes_few_events_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(folder / "models" / "small")
    write_scaled(folder / "models", "small", 1, check="assert len(x) < 9")
    code, out, _ = check(folder, capsys, {"cascade": CASCADE})
    assert code == 0
    place = f"model small version 1 ({folder}/models/small/1/config.yaml)"
    assert out.splitlines()[-1].startswith(f"unsure    a worker would start, but {place} takes no 16, 32, ")


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (
            {"route": {"field": "who", "values": {"a": "small", "b": "smal"}}},
            "has no model `smal` (there: large, other, server, small). Did you mean `small`?",
        ),
        (
            {"route": {"field": "who", "values": {"a": "small", "b": "other"}}},
            "expected the outputs y, as model small version 1",
        ),
        (
            {"route": {"field": "who", "values": {"a": "server"}}},
            "the executor kserve runs on a server, which `models` doesn't support. Give the model a pipeline of its own",
        ),
        (
            {"cascade": [{**CASCADE[0], "escalate": {"output": "p", "below": 1}}, CASCADE[1]]},
            "expected an output `p` of numbers, as `escalate.output` in the pipeline file wants; found y. Name another output",
        ),
        (
            {"tenants": {"field": "who", "name": "churn-{tenant}"}},
            "models.tenants.name: expected at least one model named churn-{tenant} in",
        ),
        (
            {"ensemble": {"steps": {**STEPS, "b": {"name": "large", "feed": {"q": "a.y"}}}, "outputs": {"y": "b.y"}}},
            "models.ensemble.steps.b.feed.q: expected an input of model large (x), found q.",
        ),
        (
            {"ensemble": {"steps": {**STEPS, "b": {"name": "large", "feed": {"x": "a.y"}}}, "outputs": {"y": "b.y"}}},
            "models.ensemble.steps.b.feed.x: expected [2] x float32 per event for tensor `x`, found [] x float32.",
        ),
        (
            {"ensemble": {"steps": STEPS, "outputs": {"y": "b.z"}}},
            "models.ensemble.outputs.y: expected an output of step b (y), found b.z. Name one of them.",
        ),
        (
            {"ensemble": {"steps": STEPS, "outputs": {"models": "b.y"}}},
            "models.ensemble.outputs: expected no output `models`",
        ),
        (
            {"gpu_memory": "1GiB", "cascade": CASCADE},
            "models.gpu_memory: only the executors onnx and torch keep a limit, found python.",
        ),
    ],
)
def test_check_names_each_mistake_once(
    folder: Path, capsys: pytest.CaptureFixture[str], models: dict[str, Any], said: str
) -> None:
    code, _, err = check(folder, capsys, models)
    assert code == 1
    assert err.count("\n") == 1
    assert said in err


def test_check_says_how_to_name_one_of_several_versions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_onnx(folder / "models", "small", 2, version=2)
    _, _, err = check(folder, capsys, {"cascade": CASCADE})
    assert "models.cascade[0].model: expected a `version`, because model `small` has several" in err
    assert "write `{name: small, version: 2}` in place of the name (there: 1, 2)" in err


def test_predict_routes_and_shows_the_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    route = {"field": "who", "values": {"a": "small", 7: "large"}}
    first, second, third, fourth = predict(
        folder, capsys, {"route": route}, {"who": "a", "x": 1}, {"who": 7, "x": 2, "z": 1}, {"who": 7, "x": 2}, {"x": 1}
    )
    assert (first["model"], first["version"], first["outputs"]) == ("small", 1, {"y": 1})
    assert (second["model"], second["outputs"]) == ("large", {"y": 20})
    assert (third["reason"], third["error"]) == (
        "unfit",
        "field `z` is absent or null, but tensor `large.x` needs a value",
    )
    assert (fourth["reason"], "model" in fourth) == ("no_model", False)


def test_predict_counts_by_reason_what_a_worker_would_do_with_events_without_a_prediction(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    route = {"route": {"field": "who", "values": {"a": "small", "b": "large"}}}
    events: list[dict[str, Any]] = [
        {"who": "a", "x": 1},
        {"who": "b", "x": 2},
        {"who": "b", "x": 3},
        {"who": "a"},
        {"x": 1},
        {"x": "1"},
    ]
    file = folder / "events.jsonl"
    file.write_text("".join(json.dumps({"id": "e", **event}) + "\n" for event in events))
    stop = {"on_error": {"stop": ["no_model", "unfit"]}}
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "5 dead letters (3 unfit, 1 no_model, 1 undecodable)"),
        ({"input": {**INPUT, "filter": "who in [a, b]"}}, "3 dead letters (3 unfit), 2 skipped (2 filtered)"),
        (stop, "1 dead letter (1 undecodable), 4 at which a worker would stop (3 unfit, 1 no_model)"),
    ]
    for sections, counts in cases:
        service = several_service(folder, NOWHERE, route, with_topics=False, **sections)
        assert cli.run(["predict", str(service.file), str(file)]) == 1
        assert f"1 event predicted, {counts}\n" in capsys.readouterr().err


def test_predict_routes_by_booleans_and_rules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    route: dict[str, Any] = {"field": "vip", "values": {"true": "large", "false": "small"}}
    events: list[dict[str, Any]] = [{"vip": True, "x": 1, "z": 0}, {"vip": False, "x": 1}]
    assert [found["model"] for found in predict(folder, capsys, {"route": route}, *events)] == ["large", "small"]
    rules = [{"when": ["vip == true", "x >= 1"], "model": "large"}]
    found = predict(folder, capsys, {"route": {"rules": rules, "default": "small"}}, *events, {"vip": True, "x": 0.5})
    assert [each["model"] for each in found] == ["large", "small", "small"]


@pytest.mark.parametrize("by_rules", [False, True])
def test_members_of_one_version_are_told_with_what_chooses_them(
    folder: Path, capsys: pytest.CaptureFixture[str], by_rules: bool
) -> None:
    other: dict[str, Any] = {"name": "small", "inputs": {"x": ["z"]}}
    if by_rules:
        rules = [{"when": "who == a", "model": "small"}, {"when": "who == b", "model": other}]
        route, places = {"rules": rules, "default": other}, ["route.rules[0]", "route.rules[1]"]
    else:
        values = {"a": "small", "b": other}
        route, places = {"field": "who", "values": values, "default": other}, ["route.values.a", "route.values.b"]
    by_route = {"route": route}
    code, out, err = check(folder, capsys, by_route)
    assert (code, err) == (0, "")
    second, first = [line for line in out.splitlines() if line.startswith("member    model small version 1 (")]
    assert first.endswith(f", by {places[0]}")
    assert second.endswith(f", by {places[1]}, route.default")
    events: list[dict[str, Any]] = [{"who": "a", "x": 1}, {"who": "b", "z": 2}, {"who": "c"}]
    found = predict(folder, capsys, by_route, *events)
    assert [each.get("chosen_by") for each in found] == [[places[0]], [places[1], "route.default"], None]
    _, out, _ = run(folder, capsys, by_route, "predict", str(folder / "events.jsonl"))
    assert [line for line in out.splitlines() if "=> model" in line] == [
        f"  => model small version 1 ({places[0]})",
        f"  => model small version 1 ({places[1]}, route.default)",
    ]


def test_predict_shows_a_cascade_and_an_ensemble(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sure, unsure = predict(folder, capsys, {"cascade": CASCADE}, {"x": 1}, {"x": 2, "z": 0})
    assert (sure["model"], sure["outputs"]) == ("small", {"y": 1, "escalated": False, "models": "small:1"})
    assert (unsure["model"], unsure["outputs"]) == ("large", {"y": 20, "escalated": True, "models": "small:1 large:1"})
    ensemble = {"name": "jury", "version": 3, "steps": STEPS, "outputs": {"score": {"mean": ["a.y", "b.y"]}}}
    (found,) = predict(folder, capsys, {"ensemble": ensemble}, {"x": 2})
    assert (found["model"], found["version"]) == ("jury", 3)
    assert found["outputs"] == {"score": 11, "models": "small:1 large:1"}


def test_copies_share_the_memory_of_tenants(folder: Path) -> None:
    write_onnx(folder / "models", "churn-a", 1)
    models = {"instances": 2, "tenants": {"field": "who", "name": "churn-{tenant}", "memory": "10MiB"}}
    service = several_service(folder, NOWHERE, models, with_topics=False)
    plan = make_plan(load_pipeline(service.file, {}))
    assert len(plan.executors) == 2
    assert isinstance(plan.model, CombinedVersion)
    assert isinstance(plan.model.several, Tenants)
    assert plan.model.several.memory == 5 * 2**20
    assert settings_of(plan, until_idle=False).batch.max_events == 256
    outputs_of(plan, {service.output: 2**20, service.letters: 2**20})


@pytest.mark.parametrize("command", ["profile", "optimize"])
def test_commands_for_one_model_refuse_several(folder: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    options = ["--output", "9", "--precision", "fp16"] if command == "optimize" else []
    code, _, err = run(folder, capsys, {"cascade": CASCADE}, command, *options)
    assert code == 1
    assert f"models: `millstream {command}` works on one model, found `models`." in err


def test_models_come_from_a_url(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_onnx(folder / "models", "small", 3, version=2)
    (folder / "models" / "small" / "aliases.yaml").write_text("champion: 1\n")
    remote = {"repository": f"file://{folder}/models", "cache": "cache", "trust": True}
    steps = [
        {**CASCADE[0], "model": {"name": "small", "version": "champion"}},
        {"model": {"name": "small", "version": "latest"}},
    ]
    (found,) = predict(folder, capsys, {**remote, "cascade": steps}, {"x": 2})
    assert found["outputs"] == {"y": 6, "escalated": True, "models": "small:1 small:2"}
    assert (folder / "cache").is_dir()


def test_rules_that_compare_a_field_with_texts_and_with_numbers_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = [{"when": "who == a", "model": "small"}, {"when": ["x > 1", "who == 7"], "model": "large"}]
    code, _, said = check(folder, capsys, {"route": {"rules": rules}})
    assert code == 1
    assert "route.rules[1].when: expected values of one type for field `who`" in said
    assert "found `who == a` and `who == 7`. Write both in the same way" in said
