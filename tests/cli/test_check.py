"""`millstream check`: what would stop a worker, each in one message that says where, what and what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
from concurrent.futures import Future
from functools import partial
from shutil import copytree, rmtree
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml
from confluent_kafka import KafkaError, KafkaException
from onnx import helper, numpy_helper

from millstream.consumers.cli import main as cli
from millstream.consumers.supervision.child import MILLSTREAM
from millstream.topics import admin
from millstream.topics.errors import BrokerUnreachableError
from millstream.topics.lag import LagReader
from millstream.topics.local.ports import free_ports
from tests.broker.choice import Broker
from tests.broker.clients import create_topic
from tests.consumers.python_service import python_service
from tests.consumers.service import flights_service, vector_service
from tests.inference.models import splitting_texts, tensor, write_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.consumers.service import Service

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")  # for what is found without a broker
LISTS = "inputs: [{tensor: x, field: 'x[]', dtype: float32, max_length: 8}]\noutputs: [{tensor: y}]\n"


def said_by_check(service: Service, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The message of a check that fails."""
    assert cli.run(["check", str(service.file), *options]) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.count("\n") == 1
    return said


def test_pipeline_that_would_run_is_ok(kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = flights_service(tmp_path, kafka)
    assert cli.run(["check", str(service.file)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.splitlines()[-1] == "ok        a worker would start"
    assert "from carrier, origin, dest" in said.out
    assert f"all exist on {kafka.bootstrap}" in said.out


def test_offsets_that_cannot_be_read_are_no_problem(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_reader: LagReader) -> None:
        raise BrokerUnreachableError("the lag can't be read")

    monkeypatch.setattr(LagReader, "read_past_end", refuse)
    assert cli.run(["check", str(flights_service(tmp_path, kafka).file)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.splitlines()[-1] == "ok        a worker would start"


@pytest.mark.parametrize(
    ("sections", "noted"),
    [
        ({}, False),
        ({"comparison": {"threshold": 0.2}}, True),
        ({"comparison": {"threshold": 0.2}, "shadows": [{"version": 2}]}, False),
        ({"comparison": {"threshold": 0.2}, "rollout": {"strategy": "manual"}}, False),
    ],
)
def test_comparison_that_only_replays_and_reports_use_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sections: dict[str, Any], noted: bool
) -> None:
    service = flights_service(tmp_path, NOWHERE, with_topics=False, **sections)
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    assert ("only `millstream replay` and `millstream report` use this section" in capsys.readouterr().out) is noted


def test_shadow_is_listed_with_its_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    shadow_that_takes("x")(tmp_path)
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    lines = capsys.readouterr().out.splitlines()
    config = tmp_path / "models" / "vector" / "2" / "config.yaml"
    at = lines.index(f"shadow    model vector version 2 ({config})")
    assert lines[at + 1] == "input     x: float32 [32] per event, from x"
    assert lines[at + 2].startswith("compared  ")


def test_shadow_whose_version_an_alias_made_live_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    shadow_that_takes("x")(tmp_path)
    in_pipeline("model", version="champion")(tmp_path)
    (tmp_path / "models" / "vector" / "aliases.yaml").write_text("champion: 2\n")
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "shadows: the shadow `shadow` is left out, because its version is live now: version 2 of vector" in said.out
    assert said.out.splitlines()[-1] == "ok        a worker would start"


def test_shadow_that_is_the_only_version_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False, shadows=[{"version": 1}])
    said = said_by_check(service, capsys, "--offline")
    assert "`shadow` is version 1 of vector, and so is the primary" in said
    assert "Name another version, or take this shadow out." in said


@pytest.mark.parametrize("wanted", ["latest", "champion", 1])
def test_version_that_an_alias_or_latest_names_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wanted: str | int
) -> None:
    service = flights_service(tmp_path, NOWHERE, with_topics=False)
    document = yaml.safe_load(service.file.read_text("utf-8"))
    document["model"]["version"] = wanted
    service.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    (tmp_path / "models" / document["model"]["name"] / "aliases.yaml").write_text("champion: 1\n")
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("version ")]
    number = 2 if wanted == "latest" and (tmp_path / "models" / document["model"]["name"] / "2").exists() else 1
    expected = f"version   {wanted} is version {number} now; running workers follow it"
    assert told == ([expected] if isinstance(wanted, str) else [])


def test_folders_that_look_like_versions_are_told_to_be_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    in_pipeline("model", version="latest")(tmp_path)
    for name in ("007", "20261129120000", "notes"):
        (tmp_path / "models" / "vector" / name).mkdir()
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    ignored = "ignored: 007, 20261129120000. A version is a number from 1 to 2,147,483,647 without zeros in front"
    assert f"version   {ignored}" in capsys.readouterr().out.splitlines()


def test_highest_of_several_schemas_with_the_name_is_said_to_be_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = flights_service(tmp_path, NOWHERE, with_topics=False)
    schemas = tmp_path / "schemas"
    for copied in (3, 12):
        (schemas / f"{copied}-flight-departure.avsc").write_text((schemas / "1-flight-departure.avsc").read_text())
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.endswith(
        "flight-departure, id 12 (files with this name: 1, 3, 12; all events are read with the highest ID)"
    )


def test_model_that_refuses_every_blank_event_is_not_said_to_be_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = python_service(tmp_path, NOWHERE, "raise KeyError('z')", with_topics=False)
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    *_, warm_up, output, _, verdict = capsys.readouterr().out.splitlines()
    assert warm_up.startswith("warm-up   refused: ")
    assert output == "output    y, from y"
    assert "model.py:8" in warm_up
    assert "KeyError: 'z'" in warm_up
    assert verdict.startswith("unsure    ")


def lists_service(folder: Path, body: str) -> Service:
    """A pipeline whose model in Python, with this body of `predict`, takes lists of up to 8 items."""
    service = python_service(folder, NOWHERE, body, with_topics=False)
    (folder / "models" / "number" / "1" / "config.yaml").write_text(LISTS, encoding="utf-8")
    in_pipeline("input", schema=None, event_id="id")(folder)
    return service


@pytest.mark.parametrize("executor", ["onnx", "python"])
def test_model_of_lists_that_refuses_blank_events_may_have_been_exported_for_one_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], executor: str
) -> None:
    service = lists_service(tmp_path, "raise ValueError(inputs['x'].shape)")
    if executor == "onnx":
        four = numpy_helper.from_array(np.ones((1, 4), np.float32), "four")
        add = helper.make_node("Add", ["x", "four"], ["y"])
        ends = [tensor("x", ["N", "L"])], [tensor("y", ["N", "M"])]
        made = write_model(tmp_path / "made", [add], *ends, config=LISTS, constants=[four])
        (tmp_path / "models" / "number" / "1" / "model.py").unlink()
        made.file.rename(tmp_path / "models" / "number" / "1" / "model.onnx")
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    verdict = capsys.readouterr().out.splitlines()[-1]
    assert verdict.startswith("unsure    a worker would start, but the model rejects blank events")
    assert ("A model that was exported for a single length does so" in verdict) == (executor == "onnx")


@pytest.mark.parametrize("make_service", [lists_service, partial(python_service, kafka=NOWHERE, with_topics=False)])
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "return {'late': inputs['x']}",
            "`predict` returned the outputs ['late'], without ['y'], which config.yaml names",
        ),
        ("return inputs['x']", "`predict` returned ndarray, not a dict of arrays by output name"),
        (
            "return {'y': inputs[\"amnt\"][:, 0]}",
            "model.py:8: `predict` reads the input `amnt`, which config.yaml doesn't map (mapped: x)",
        ),
        (
            "return {'y': input_s['x']}",
            "model.py:8: NameError: name 'input_s' is not defined. The code is at fault, not an event. Correct this line.",
        ),
    ],
)
def test_python_model_that_works_for_no_event_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make_service: Callable[..., Service], body: str, says: str
) -> None:
    assert says in said_by_check(make_service(tmp_path, body=body), capsys, "--offline")


@pytest.mark.parametrize("make_service", [lists_service, partial(python_service, kafka=NOWHERE, with_topics=False)])
def test_model_that_takes_a_few_blank_events_at_once_is_not_said_to_be_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make_service: Callable[..., Service]
) -> None:
    service = make_service(tmp_path, body="return {'y': inputs['x'][:, 0] + [0, 0, 0][len(inputs['x'])]}")
    in_pipeline("batch", max_events=8)(tmp_path)
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    *_, warm_up, _, _, verdict = capsys.readouterr().out.splitlines()
    assert warm_up == "warm-up   runs on cpu with 1, 2 events"
    assert verdict.startswith("unsure    a worker would start, but the model takes no 4, 8 blank events at once.")
    assert verdict.endswith("correct the model, or write `max_events: 2` under `batch:`")


def test_json_without_a_schema_needs_no_folder_of_schemas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = python_service(tmp_path, NOWHERE, "return {'y': inputs['x']}", with_topics=False)
    in_pipeline("input", schema=None, event_id="meta.id")(tmp_path)
    rmtree(tmp_path / "schemas")
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    said = capsys.readouterr().out
    assert "schema    none (events are JSON objects, of which the named paths are read)" in said


def test_labels_that_are_texts_are_pointed_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    in_pipeline("labels", topic="t", schema="vector-event", event_id="id", value="id")(tmp_path)
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    said = capsys.readouterr().out
    assert 'labels.value: field `id` of schema `vector-event` is text: only texts such as "1" and "0" count' in said


def test_folder_stands_for_its_pipeline_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flights_service(tmp_path, NOWHERE, with_topics=False)
    assert cli.run(["check", str(tmp_path), "--offline"]) == 0
    assert "topics    not checked (--offline)" in capsys.readouterr().out


def remove_schema(folder: Path) -> None:
    (folder / "schemas" / "2-vector-event.avsc").unlink()


def remove_model(folder: Path) -> None:
    (folder / "models" / "vector" / "1" / "model.onnx").unlink()


def spoil_model(folder: Path) -> None:
    (folder / "models" / "vector" / "1" / "model.onnx").write_bytes(b"no model")


def map_to(text: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "models" / "vector" / "1" / "config.yaml").write_text(text, encoding="utf-8")

    return change


def in_pipeline(section: str, **options: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "pipeline.yaml"
        document: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
        document.setdefault(section, {}).update(options)
        file.write_text(yaml.safe_dump(document), encoding="utf-8")

    return change


def cost_of_records() -> Callable[[Path], None]:
    """The cost is an array of records."""

    def change(folder: Path) -> None:
        (file,) = (folder / "schemas").glob("*vector-event.avsc")
        schema = json.loads(file.read_text(encoding="utf-8"))
        item = {"type": "record", "name": "Item", "fields": [{"name": "price", "type": "double", "default": 0.0}]}
        schema["fields"].append({"name": "basket", "type": {"type": "array", "items": item}, "default": []})
        file.write_text(json.dumps(schema), encoding="utf-8")
        in_pipeline("batch", cost="basket", max_cost=9)(folder)

    return change


def included_bytes() -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (file,) = (folder / "schemas").glob("*vector-event.avsc")
        schema = json.loads(file.read_text(encoding="utf-8"))
        schema["fields"].append({"name": "raw", "type": "bytes", "default": ""})
        file.write_text(json.dumps(schema), encoding="utf-8")
        in_pipeline("output", topic="t", include=["raw"])(folder)

    return change


def shadow_that_takes(field: str) -> Callable[[Path], None]:
    """A version 2 beside the primary, of another field."""

    def change(folder: Path) -> None:
        version = folder / "models" / "vector" / "2"
        copytree(version.with_name("1"), version)
        config = f"inputs: [{{tensor: x, field: {field}, dtype: float32, shape: [32]}}]\n{OUTPUTS}"
        (version / "config.yaml").write_text(config, encoding="utf-8")
        file = folder / "pipeline.yaml"
        document = yaml.safe_load(file.read_text(encoding="utf-8")) | {"shadows": [{"version": 2}]}
        document["model"]["version"] = 1
        file.write_text(yaml.safe_dump(document), encoding="utf-8")

    return change


def shadow_that_answers(name: str, **comparison: object) -> Callable[[Path], None]:
    """A version 2 beside the primary, whose output has this name; `comparison` are options of that section."""

    def change(folder: Path) -> None:
        shadow_that_takes("x")(folder)
        config = folder / "models" / "vector" / "2" / "config.yaml"
        config.write_text(config.read_text().replace("{tensor: score}", f"{{tensor: score, name: {name}}}"))
        if comparison:
            in_pipeline("comparison", **comparison)(folder)

    return change


def bring(file: str) -> Callable[[Path], None]:
    """A model of another kind in place of the ONNX model."""

    def change(folder: Path) -> None:
        target = folder / "models" / "vector" / "1" / file
        target.parent.mkdir(exist_ok=True)
        (folder / "models" / "vector" / "1" / "model.onnx").rename(target)

    return change


def content_of_model(content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "models" / "vector" / "1" / "model.onnx").write_bytes(content)

    return change


def beside_the_versions(folder: Path) -> None:
    version = folder / "models" / "vector" / "1"
    for file in version.iterdir():
        file.rename(folder / "models" / "vector" / file.name)
    version.rmdir()


def beside_its_version(folder: Path) -> None:
    file = folder / "models" / "vector" / "1" / "model.onnx"
    file.rename(folder / "models" / "vector" / file.name)


def in_the_repository(folder: Path) -> None:
    version = folder / "models" / "vector" / "1"
    for file in version.iterdir():
        file.rename(folder / "models" / file.name)
    rmtree(folder / "models" / "vector")


OUTPUTS = "outputs: [{tensor: score}]\n"
MISFITS: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "schema missing": (remove_schema, ["vector-event", "/schemas"]),
    "model file missing": (remove_model, ["model.onnx"]),
    "no model": (spoil_model, ["model.onnx", "can't be loaded"]),
    "pointer of Git LFS": (
        content_of_model(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
        ["model.onnx can't be loaded: this is a pointer of Git LFS, not the model itself", "git lfs pull"],
    ),
    "web page": (
        content_of_model(b"<!DOCTYPE html><html><body>Sign in</body></html>"),
        ["model.onnx can't be loaded: this is a web page, not a model"],
    ),
    "empty model": (content_of_model(b""), ["model.onnx can't be loaded: the file is empty"]),
    "pickle named as ONNX": (content_of_model(b"\x80\x04\x95"), ["this is a pickle with another name", "skl2onnx"]),
    "archive named as ONNX": (content_of_model(b"PK\x03\x04"), ["this is a zip archive, as torch writes it"]),
    "XGBoost's UBJSON named as ONNX": (
        content_of_model(b"{L\0\0\0\0\0\0\0\x07learner{L\0\0\0\0\0\0\0\x0aattributes"),
        ["model.onnx can't be loaded: this looks like a model of XGBoost. Convert it to ONNX"],
    ),
    "XGBoost's JSON named as ONNX": (
        content_of_model(b'{"learner":{"attributes":{}}}'),
        ["model.onnx can't be loaded: this looks like a model of XGBoost."],
    ),
    "LightGBM's text named as ONNX": (
        content_of_model(b"tree\nversion=v4\nnum_class=1\n"),
        ["model.onnx can't be loaded: this looks like a model of LightGBM."],
    ),
    "CatBoost's file named as ONNX": (content_of_model(b"CBM1\x10\0"), ["this looks like a model of CatBoost."]),
    "locale that this machine lacks": (
        content_of_model(splitting_texts(locale="xx_XX.UTF-8")),
        ["the locale xx_XX.UTF-8, which this machine lacks", "models#text-vectorizers", "or install xx_XX.UTF-8 on"],
    ),
    "pattern of words in Python's syntax": (
        content_of_model(splitting_texts(locale="C", pattern=r"(?u)\w+")),
        ["isn't in RE2's syntax: invalid perl operator: (?u", "with the option `tokenexp`"],
    ),
    "pickle in the version's folder": (
        bring("model.pkl"),
        ["1/model.pkl: a pickled model runs code", "skl2onnx.to_onnx"],
    ),
    "joblib in the version's folder": (bring("forest.joblib"), ["1/forest.joblib: a pickled model runs code"]),
    "booster in the version's folder": (bring("model.ubj"), ["1/model.ubj: this looks like a model of XGBoost"]),
    "Keras in the version's folder": (
        bring("churn.keras"),
        ["1/churn.keras: this looks like a model of Keras", "tf2onnx"],
    ),
    "Keras 2 in the version's folder": (bring("model.h5"), ["1/model.h5: this looks like a model of Keras", "tf2onnx"]),
    "SavedModel in the version's folder": (
        bring("saved_model.pb"),
        ["1: this is a SavedModel of TensorFlow.", "vector/1 --output ", "vector/1/model.onnx`"],
    ),
    "folder of a SavedModel in the version's folder": (
        bring("export/saved_model.pb"),
        ["1/export: this is a SavedModel of TensorFlow.", "vector/1/export --output ", "vector/1/model.onnx`"],
    ),
    "model beside the versions": (
        beside_the_versions,
        ["model `vector` has no version in", "but model.onnx beside the folders of versions", "to ", "/vector/1."],
    ),
    "model beside its version": (
        beside_its_version,
        ["model `vector` version 1 has no model in", "model.onnx beside it: move that into ", "/vector/1."],
    ),
    "model without a folder of its name": (
        in_the_repository,
        ["has no model `vector`, but model.onnx itself", "move model.onnx and its config.yaml to", "/vector/1."],
    ),
    "model of nearly this name": (in_pipeline("model", name="vectr"), ["no model `vectr`", "Did you mean `vector`?"]),
    "schema of nearly this name": (
        in_pipeline("input", schema="vector-evnt"),
        ["pipeline.yaml:LINE: input.schema: ", "Did you mean `vector-event`?"],
    ),
    "exported program": (bring("model.pt2"), ["model.pt2 can run code", "`trust: true` under `model:`"]),
    "TorchScript": (bring("model.pt"), ["model.pt can run code", "`trust: true` under `model:`"]),
    "huge number in the config": (
        map_to(f"inputs: [{{tensor: x, field: x, dtype: float32, shape: [{'9' * 5000}]}}]\n" + OUTPUTS),
        ["config.yaml:1: inputs[0].shape[0]: expected a whole number of fewer digits, found '999"],
    ),
    "tag in the config": (
        map_to(OUTPUTS + "inputs: !!python/object/apply:os.getcwd []\n"),
        ["config.yaml:2: inputs: the YAML tag", "means nothing here"],
    ),
    "huge number in the pipeline": (
        in_pipeline("batch", max_events=10**4000),
        ["pipeline.yaml:LINE: batch.max_events: expected a whole number, found '1000"],
    ),
    "model elsewhere": (in_pipeline("model", name="../vector"), ["pipeline.yaml:LINE: model.name: expected one name"]),
    "plugin of the Kafka client": (
        in_pipeline("kafka", client={"plugin.library.paths": "./plugin.so"}),
        ["pipeline.yaml:LINE: kafka.client.plugin.library.paths: a pipeline file may not run code"],
    ),
    "version missing": (in_pipeline("model", version=7), ["7", "vector"]),
    "model missing": (in_pipeline("model", name="other"), ["other"]),
    "field not there": (
        map_to("inputs: [{tensor: x, field: y, dtype: float32, shape: [32]}]\n" + OUTPUTS),
        ["tensor `x`", "field `y`", "schema `vector-event`", "no such field"],
    ),
    "field of another type": (
        map_to("inputs: [{tensor: x, field: id, dtype: float32, shape: [32]}]\n" + OUTPUTS),
        ["tensor `x`", "field `id`", "string"],
    ),
    "mapping of no tensor": (
        in_pipeline("model", inputs={"z": "x"}),
        ["pipeline.yaml:LINE: model.inputs.z: ", "found z"],
    ),
    "mapping of a scalar tensor": (
        in_pipeline("model", inputs={"x": ["id"]}),
        ["pipeline.yaml:LINE: model.inputs.x: ", "32 values"],
    ),
    "mapping to no field": (
        in_pipeline("model", inputs={"x": "y"}),
        ["pipeline.yaml:LINE: model.inputs.x: ", "field `y`"],
    ),
    "tensor of another name": (
        map_to("inputs: [{tensor: z, field: x, dtype: float32, shape: [32]}]\n" + OUTPUTS),
        ["config.yaml:1): the model has no input `z`. Inputs of the model that are not mapped: x. Map each once."],
    ),
    "tensor of another shape": (
        map_to("inputs: [{tensor: x, field: x, dtype: float32, shape: [16]}]\n" + OUTPUTS),
        ["tensor `x`", "[16]", "32"],
    ),
    "tensor of another type": (
        map_to("inputs: [{tensor: x, field: x, dtype: float64, shape: [32]}]\n" + OUTPUTS),
        ["config.yaml:1): tensor `x`", "float64", "tensor(float)", "Write `dtype: float32`."],
    ),
    "output not there": (
        map_to("inputs: [{tensor: x, field: x, dtype: float32, shape: [32]}]\noutputs: [{tensor: answer}]\n"),
        ["`answer`", "score"],
    ),
    "schema of another name": (in_pipeline("input", schema="other"), ["pipeline.yaml:LINE: input.schema: ", "'other'"]),
    "event id not there": (
        in_pipeline("input", event_id="uid"),
        ["pipeline.yaml:LINE: input.event_id: ", "uid", "vector-event"],
    ),
    "event id a list": (
        in_pipeline("input", event_id="x"),
        ["pipeline.yaml:LINE: input.event_id: ", "a number or a boolean", "`x`", "Name another field"],
    ),
    "event time no time": (in_pipeline("input", event_time="x"), ["pipeline.yaml:LINE: input.event_time: ", "`x`"]),
    "key no field": (in_pipeline("input", key="gone"), ["pipeline.yaml:LINE: input.key: ", "`gone`", "vector-event"]),
    "path with a mistake": (
        in_pipeline("input", event_id="id["),
        ["pipeline.yaml:LINE: input.event_id: ", "path `id[`, character 4: expected `]`, found its end"],
    ),
    "path into a text": (
        in_pipeline("input", event_id="id.x"),
        ["pipeline.yaml:LINE: input.event_id: ", "expected a record or a map at `id`, found string"],
    ),
    "event time of a kind that is not its format": (
        in_pipeline("input", event_time="event_time", event_time_format="iso8601"),
        ["pipeline.yaml:LINE: input.event_time_format: expected milliseconds", "timestamp-millis, found iso8601"],
    ),
    "format without an event time": (
        in_pipeline("input", event_time=None, event_time_format="iso8601"),
        ["pipeline.yaml:LINE: input.event_time_format: expected input.event_time beside it"],
    ),
    "key of several values": (
        in_pipeline("input", key="x[]"),
        ["pipeline.yaml:LINE: input.key: expected a path to one value, found `x[]`"],
    ),
    "Avro without a schema": (
        in_pipeline("input", schema=None),
        ["pipeline.yaml:LINE: input.schema: expected the name of a schema, found nothing"],
    ),
    "array without its items in JSON without a schema": (
        in_pipeline("input", format="json", schema=None),
        [
            "tensor `x` takes the array `x`",
            "write `[]` behind the array: `x[]`",
            "one value and no array, write `fields: [x]`",
        ],
    ),
    "cost no field": (in_pipeline("batch", cost="gone", max_cost=9), ["pipeline.yaml:LINE: batch.cost: ", "`gone`"]),
    "cost an array of records": (
        cost_of_records(),
        ["pipeline.yaml:LINE: batch.cost: expected a number, a text, or a list of numbers or texts", "`basket`"],
    ),
    "cost a moment": (
        in_pipeline("batch", cost="event_time", max_cost=9),
        ["pipeline.yaml:LINE: batch.cost: ", "timestamp-millis"],
    ),
    "included field not there": (
        in_pipeline("output", topic="t", include=["id", "event_tim"]),
        ["pipeline.yaml:LINE: output.include[1]: ", "`event_tim`", "did you mean 'event_time'?"],
    ),
    "included field of bytes": (
        included_bytes(),
        ["pipeline.yaml:LINE: output.include[0]: expected a number", "`raw`", "is binary", "Name another field"],
    ),
    "labels without a schema": (
        in_pipeline("labels", topic="t", schema="nosuch", event_id="id", value="x"),
        ["pipeline.yaml:LINE: labels.schema: ", "'nosuch'"],
    ),
    "label no field": (
        in_pipeline("labels", topic="t", schema="vector-event", event_id="id", value="late"),
        ["pipeline.yaml:LINE: labels.value: ", "`late`"],
    ),
    "label a list": (
        in_pipeline("labels", topic="t", schema="vector-event", event_id="id", value="x"),
        [
            "pipeline.yaml:LINE: labels.value: expected true or false, or 1 or 0 (",
            ", and field `x` of schema",
            "Name another field",
        ],
    ),
    "no output with the comparison's name": (
        shadow_that_answers("score", output="probability"),
        ["pipeline.yaml:LINE: comparison.output: ", "`probability`", "It has `score`"],
    ),
    "item beyond the output": (
        shadow_that_answers("score", item=1),
        ["pipeline.yaml:LINE: comparison.item: ", "`score`", "found 1. Its last item is 0."],
    ),
    "shadow of another output": (
        shadow_that_answers("other", output="score"),
        ["pipeline.yaml:LINE: comparison.output: ", "`score`", "It has `other`"],
    ),
    "no output in common": (
        shadow_that_answers("other"),
        ["pipeline.yaml:LINE: shadows: ", "`score`", "`other`"],
    ),
    "no GPU": (in_pipeline("model", device="cuda"), ["model.device: cuda", "GPU"]),
    "shadow of another field": (
        shadow_that_takes("y"),
        ["model vector version 2", "tensor `x`", "field `y`", "schema `vector-event`"],
    ),
    "unknown option": (in_pipeline("batch", max_event=3), ["pipeline.yaml:", "batch.max_event", "max_events"]),
}


@pytest.mark.parametrize(("change", "expected"), MISFITS.values(), ids=MISFITS)
def test_misfit_is_told_in_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], None], expected: list[str]
) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    change(tmp_path)
    said = said_by_check(service, capsys, "--offline")
    told = re.sub(r"(pipeline\.yaml:)\d+:", r"\1LINE:", said)
    for words in expected:
        assert words in told


def test_problems_of_all_parts_are_told_in_one_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    shadow_that_takes("y")(tmp_path)
    map_to("inputs: [{tensor: x, field: x, dtype: float64, shape: [32]}]\n" + OUTPUTS)(tmp_path)
    in_pipeline("input", event_id="uid", key="gone")(tmp_path)
    in_pipeline("labels", topic="t", schema="vector-event", event_id="nobody", value="late")(tmp_path)
    assert cli.run(["check", str(service.file), "--offline"]) == 1
    said = capsys.readouterr().err
    lines = said.splitlines()
    assert len(lines) == len(set(lines)) == 6
    for words in (
        "input.event_id: expected a field of schema `vector-event`, found `uid`",
        "input.key: expected a field of schema `vector-event`, found `gone`",
        "model vector version 2",
        "tensor `x` is tensor(float) in the model, but config.yaml says float64",
        "labels.event_id: expected a field of schema `vector-event`, found `nobody`",
        "labels.value: expected a field of schema `vector-event`, found `late`",
    ):
        assert words in said


@pytest.mark.parametrize("config", [None, "", "outputs: [{tensor: y}]\n", "a: [\n"])
def test_config_that_fits_the_model_is_printed_if_there_is_none_or_one_without_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: str | None
) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    file = tmp_path / "models" / "vector" / "1" / "config.yaml"
    if config is None:
        file.unlink()
    else:
        file.write_text(config)
    assert cli.run(["check", str(service.file), "--offline"]) == 1
    _, printed = capsys.readouterr().out.split(f"Complete it, and write it to {file}:\n\n")
    file.write_text(dedent(printed))
    assert cli.run(["check", str(service.file), "--offline"]) == 0


@pytest.mark.parametrize(
    ("typed", "wrong"),
    [("tensor: x", "tensor: xx"), ("tensor: x", "tensr: x"), ("inputs:", "inputs: ["), ("32]", "31]")],
)
def test_mistake_in_a_config_that_maps_inputs_is_told_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: str, wrong: str
) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    file = tmp_path / "models" / "vector" / "1" / "config.yaml"
    text = file.read_text()
    assert typed in text
    file.write_text(text.replace(typed, wrong))
    assert cli.run(["check", str(service.file), "--offline"]) == 1
    said = capsys.readouterr()
    assert str(file) in said.err
    assert "Complete it" not in said.out


@pytest.mark.process
def test_config_that_is_a_pipe_is_told_and_not_waited_for(tmp_path: Path) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    file = tmp_path / "models" / "vector" / "1" / "config.yaml"
    file.unlink()
    os.mkfifo(file)  # to open it takes until somebody writes
    run = subprocess.run(
        [*MILLSTREAM, "check", str(service.file), "--offline"], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 1
    assert str(file) in run.stderr
    assert "can't be read: expected a file, found something else" in run.stderr


def test_problem_elsewhere_prints_no_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    in_pipeline("input", event_id="uid")(tmp_path)
    assert cli.run(["check", str(service.file), "--offline"]) == 1
    assert "Complete it" not in capsys.readouterr().out


@pytest.mark.parametrize("option", [{"output": "probability"}, {"item": 1}])
@pytest.mark.parametrize("command", ["work", "compare"])
def test_wrong_output_of_the_comparison_stops_the_worker_and_the_job_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kafka: Broker, command: str, option: dict[str, Any]
) -> None:
    service = vector_service(tmp_path, kafka)
    shadow_that_answers("score", **option)(tmp_path)
    assert cli.run(["topics", "create", str(service.file)]) == 0
    assert cli.run([command, str(service.file)]) == (3 if command == "work" else 1)
    assert f"comparison.{next(iter(option))}: expected an" in capsys.readouterr().err


def test_item_beyond_the_compared_output_is_told_with_how_many_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = 'return {"y": np.hstack([inputs["x"], -inputs["x"]])}'
    comparing: dict[str, Any] = {"model": {"name": "number", "version": 1}, "shadows": [{"version": 2}]}
    service = python_service(tmp_path, NOWHERE, body, with_topics=False, **comparing, comparison={"item": 2})
    copytree(tmp_path / "models" / "number" / "1", tmp_path / "models" / "number" / "2")
    said = said_by_check(service, capsys, "--offline")
    assert "comparison.item: expected an item of output `y`" in said
    assert "found 2. Its last item is 1." in said
    in_pipeline("comparison", item=1)(tmp_path)
    assert cli.run(["check", str(service.file), "--offline"]) == 0


@pytest.mark.durable
def test_topics_that_are_missing_are_all_named(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = vector_service(tmp_path, kafka, with_topics=False)
    said = said_by_check(service, capsys)
    for words in (f"{service.inputs[0]} (input)", f"{service.output} (output)", f"{service.letters} (dead letters)"):
        assert words in said
    assert "millstream topics create" in said


@pytest.mark.durable
def test_compacted_topics_of_results_are_told(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = vector_service(tmp_path, kafka, with_topics=False)
    for topic, settings in (
        (service.inputs[0], {}),
        (service.output, {"cleanup.policy": "compact"}),
        (service.letters, {}),
    ):
        create_topic(kafka.bootstrap, topic, 1, settings)
    assert cli.run(["check", str(service.file)]) == 0
    said = capsys.readouterr().out
    assert f"warning: {service.output} is compacted, so an event without a key ends the worker" in said
    assert said.count("is compacted") == 1


@pytest.mark.durable
def test_settings_of_topics_that_the_user_may_not_read_are_told(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = vector_service(tmp_path, kafka)
    denied = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    def refuse(_admin: admin.Admin, asked: list[Any], **_options: Any) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {each: Future() for each in asked}
        for answer in answers.values():
            answer.set_exception(denied)
        return answers

    monkeypatch.setattr(admin.Admin, "describe_configs", refuse)
    assert cli.run(["check", str(service.file)]) == 0
    said = capsys.readouterr().out
    for topic in (service.output, service.letters):
        assert f"warning: the settings of topic {topic} can't be read: grant DESCRIBE_CONFIGS on it" in said
    client = admin.Admin({"bootstrap.servers": kafka.bootstrap})
    assert admin.largest_records(client, [service.output]) == {service.output: admin.DEFAULT_MAX_BYTES}


def test_defaults_of_used_fields_are_named_at_each_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = vector_service(tmp_path, NOWHERE, with_topics=False)
    (schema,) = (tmp_path / "schemas").glob("*vector-event.avsc")
    tree = json.loads(schema.read_text(encoding="utf-8"))
    first = {"name": "f0", "type": "float", "default": 1.5}
    fields = [first, *({"name": f"f{number}", "type": "float"} for number in range(1, 32))]
    box = {"type": "record", "name": "Box", "fields": fields}
    tree["fields"].append({"name": "box", "type": {"type": "array", "items": box}, "default": []})
    tree["fields"].append({"name": "unused", "type": "int", "default": 7})
    schema.write_text(json.dumps(tree), encoding="utf-8")
    config = tmp_path / "models" / "vector" / "1" / "config.yaml"
    written = yaml.safe_load(config.read_text(encoding="utf-8"))
    written["inputs"] = [{"tensor": "x", "fields": [f"box[0].f{number}" for number in range(32)], "dtype": "float32"}]
    config.write_text(yaml.safe_dump(written), encoding="utf-8")
    cli.run(["check", str(service.file), "--offline"])
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("default ")]
    assert [line.split(", the schema's")[0] for line in told] == [
        "default   events without `box` get []",
        "default   events without `box[0].f0` get 1.5",
    ]


def test_broker_that_is_away_is_told_with_its_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT", 0.5)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    service = vector_service(tmp_path, Broker(address, durable=False, kind="mock"), with_topics=False)
    assert cli.run(["check", str(service.file)]) == 1
    waits, said = capsys.readouterr().err.splitlines()
    assert waits.startswith(f"Kafka at {address} does not answer; waiting for up to 0.5 s")
    assert address in said
    assert "kafka.bootstrap" in said


def test_file_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["check", str(tmp_path / "absent.yaml")]) == 1
    said = capsys.readouterr().err
    assert "absent.yaml" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("columns", [1, 2])
def test_class_that_a_threshold_decides_on_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    service = python_service(
        tmp_path, NOWHERE, f"return {{'y': np.ones((len(inputs['x']), {columns}))}}", with_topics=False
    )
    config = tmp_path / "models" / "number" / "1" / "config.yaml"
    output = "{tensor: y, name: label, classes: [late, ok], threshold: 0.7}"
    config.write_text(config.read_text().replace("{tensor: y}", output))
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    assert (
        "output    label, from y: `ok` if the score of `ok` is at least 0.7, else `late`\n" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("returned", "option", "listed"),
    [
        ("inputs['x'].astype(int)[:, 0]", "classes: [a, b, c, d]", "label"),
        ("np.ones((len(inputs['x']), 4))", "classes: [a, b, c, d]", "label.a, label.b, label.c, ..."),
        ("np.ones((len(inputs['x']), 2))", "classes: [a, b]", "label.a, label.b"),
        ("np.ones((len(inputs['x']), 2))", "classes: [a, b], top: 1", "label, label_scores"),
        ("inputs['x']", "", "label"),
        ("1 / 0", "classes: [a, b, c, d]", "label or label.a, label.b, label.c, ..."),
        ("1 / 0", "classes: [a, b], top: 1", "label, label_scores"),
        ("1 / 0", "threshold: 0.5", "label"),
    ],
)
def test_outputs_are_listed_by_the_names_that_predictions_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], returned: str, option: str, listed: str
) -> None:
    service = python_service(tmp_path, NOWHERE, f"return {{'y': {returned}}}", with_topics=False)
    config = tmp_path / "models" / "number" / "1" / "config.yaml"
    output = f"{{tensor: y, name: label, {option}}}"
    config.write_text(config.read_text().replace("{tensor: y}", output))
    assert output in config.read_text()
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    assert f"output    {listed}, from y\n" in capsys.readouterr().out


def with_classes(folder: Path, *orders: str, **sections: Any) -> Service:
    """A pipeline whose primary gives three scores, with classes in the first order. The second order is that of a shadow."""
    body = "return {'y': np.hstack([inputs['x']] * 3)}"
    sections = {"model": {"name": "number", "version": 1}, "shadows": [{"version": 2}]} | sections
    service = python_service(folder, NOWHERE, body, with_topics=False, **sections)
    versions = folder / "models" / "number"
    copytree(versions / "1", versions / "2")
    for version, order in enumerate(orders, 1):
        config = versions / str(version) / "config.yaml"
        config.write_text(config.read_text().replace("{tensor: y}", f"{{tensor: y, name: pet, classes: [{order}]}}"))
    return service


@pytest.mark.parametrize(
    ("orders", "wrong"), [(("bird, cat", "bird, cat, dog"), 1), (("bird, cat, dog", "bird, cat, dog, wolf"), 2)]
)
def test_classes_that_do_not_fit_the_scores_are_told_before_a_difference_between_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], orders: tuple[str, str], wrong: int
) -> None:
    service = with_classes(tmp_path, *orders, comparison={"task": "multiclass"})
    assert cli.run(["check", str(service.file), "--offline"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    file, number = tmp_path / "models" / "number" / str(wrong) / "config.yaml", len(orders[wrong - 1].split(", "))
    assert first.startswith(
        f"{file}:2: outputs[0]: output `pet` needs {number} scores an event from tensor `y`, found shape [1, 3]"
    )
    assert "expected all compared models to have the classes" in second


def test_class_that_only_the_shadow_knows_is_told_as_a_difference_between_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = with_classes(tmp_path, "bird, cat, dog", "bird, cat, wolf", comparison={"task": "multiclass"})
    assert "expected all compared models to have the classes" in said_by_check(service, capsys, "--offline")


@pytest.mark.parametrize("judged", ["shadow", "dedicated", "rollout"])
@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({}, "has the classes bird, cat, dog; found `classification`, which compares the probability of one class"),
        ({"task": "regression"}, "has the classes bird, cat, dog; found `regression`, which compares a number"),
        ({"task": "multiclass"}, ""),
        ({"output": "pet.cat"}, ""),
    ],
)
def test_classes_that_do_not_fit_the_comparison_are_refused_though_the_model_rejects_blank_events(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], judged: str, section: dict[str, Any], said: str
) -> None:
    sections: dict[str, Any] = {"comparison": section}
    if judged == "rollout":
        labels = {"topic": "seen", "format": "json", "event_id": "id", "value": "pet"}
        sections |= {"shadows": [], "rollout": {"strategy": "manual"}, "labels": labels}
    elif judged == "dedicated":
        sections["shadows"] = [{"version": 2, "dedicated": True}]
    service = with_classes(tmp_path, "bird, cat, dog", "bird, cat, dog", **sections)
    for version in ("1", "2"):
        code = tmp_path / "models" / "number" / version / "model.py"
        code.write_text(code.read_text().replace("return", "raise ValueError('blank')\n        return"))
    if said:
        assert said in said_by_check(service, capsys, "--offline")
    else:
        assert cli.run(["check", str(service.file), "--offline"]) == 0


@pytest.mark.parametrize("order", ["bird, cat, dog", "cat, bird, dog"])
def test_classes_in_another_order_than_the_primary_s_are_noted_with_both_orders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], order: str
) -> None:
    service = with_classes(tmp_path, "bird, cat, dog", order, comparison={"task": "multiclass"})
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note ")]
    versions = tmp_path / "models" / "number"
    assert notes == (
        []
        if order == "bird, cat, dog"
        else [
            "note      output `pet` has the same classes in two orders: bird, cat, dog in model number version 1 "
            f"({versions / '1' / 'config.yaml'}); cat, bird, dog in model number version 2 ({versions / '2' / 'config.yaml'}). "
            "Each order must be that of the model's training: a wrong one swaps classes, and nothing else shows it"
        ]
    )
