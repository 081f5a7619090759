"""`millstream predict`: the mapping and the model on events from a file, without Kafka."""

from __future__ import annotations

import gzip
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from millstream.consumers.cli import main as cli
from millstream.consumers.demo.example import example_folder
from tests.broker.choice import Broker
from tests.cli.command import millstream_here
from tests.consumers.python_service import python_service
from tests.consumers.service import flights_service
from tests.native import with_native
from tests.topics.letters import a_letter, write_letters

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
EVENTS = example_folder() / "events.jsonl"


def predicted(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    assert cli.run(["predict", *arguments, "--json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_features_are_the_events_fields_and_outputs_are_the_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = flights_service(tmp_path, NOWHERE, with_topics=False)
    found = predicted(capsys, str(service.file), str(EVENTS))
    events = [json.loads(line) for line in EVENTS.read_text().splitlines()]
    assert [one["event_id"] for one in found] == [event["id"] for event in events]
    model = onnxruntime.InferenceSession(next((tmp_path / "models").glob("*/1/model.onnx")))
    for one, event in zip(found, events, strict=True):
        for fields in one["features"].values():
            assert fields == {field: event[field] for field in fields}
        inputs = {
            "numbers": np.array([list(one["features"]["numbers"].values())], np.float32),
            "route": np.array([list(one["features"]["route"].values())], object),
        }
        assert one["outputs"]["late_probability"] == pytest.approx(float(model.run(None, inputs)[0].item()), abs=1e-6)


def test_half_of_a_character_does_not_end_the_readers_of_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = python_service(
        tmp_path, NOWHERE, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id"}, with_topics=False
    )
    events = tmp_path / "events.jsonl"
    events.write_text('{"id": "a\\ud800", "x": 1.5}\n')
    [found] = predicted(capsys, str(service.file), str(events), code=1)
    assert found["event_id"] == "a\ufffd"


def test_a_field_may_fill_several_elements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    [mapping] = re.findall(r"^One field may fill several elements,.*\n\n```yaml\n((?:- .*\n)+)```$", page, re.MULTILINE)
    json_events = {"format": "json", "event_id": "id"}
    service = python_service(
        tmp_path, NOWHERE, 'return {"y": inputs["times"][:, 0]}', input=json_events, with_topics=False
    )
    config = tmp_path / "models" / "number" / "1" / "config.yaml"
    config.write_text(f"inputs:\n{mapping}outputs: [{{tensor: y}}]\n")
    events = tmp_path / "events.jsonl"
    events.write_text('{"id": "a", "sold_at": "2026-11-26T17:30:00Z", "store": 205, "amount": 2.5}\n')
    [found] = predicted(capsys, str(service.file), str(events))
    assert found["features"] == {
        "times": {"sold_at (1)": 17.0, "sold_at (2)": 3.0},
        "numbers": {"store": 205.0, "amount": 2.5},
        "store_index": {"store": 1},
    }
    assert found["outputs"] == {"y": 17.0}


def test_avro_union_of_number_and_text_fills_a_tensor_with_type_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = python_service(
        tmp_path,
        NOWHERE,
        'return {"y": inputs["x"][:, 0]}',
        input={"format": "avro", "schema": "order", "event_id": "id"},
        model={"name": "number", "inputs": {"x": [{"field": "amount", "type": "any", "missing": -1}]}},
        with_topics=False,
    )
    fields = [{"name": "id", "type": "string"}, {"name": "amount", "type": ["null", "double", "string"]}]
    (tmp_path / "schemas" / "2-order.avsc").write_text(
        json.dumps({"type": "record", "name": "Order", "fields": fields})
    )
    events = tmp_path / "events.jsonl"
    amounts = [12.5, "13.5", None, "free"]
    events.write_text("".join(f"{json.dumps({'id': f'{n}', 'amount': x})}\n" for n, x in enumerate(amounts)))
    found = predicted(capsys, str(service.file), str(events), code=1)
    assert [one["outputs"]["y"] for one in found[:3]] == [12.5, 13.5, -1]
    assert found[3]["reason"] == "unfit"
    assert "field `amount` is 'free', but tensor `x` needs a number" in found[3]["error"]


@pytest.mark.parametrize("native", [True, False], ids=["many at a time", "one by one"])
def test_field_of_type_any_comes_as_number_text_or_boolean_and_ids_as_number_or_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], native: bool
) -> None:
    inputs = {"x": [{"field": "x", "type": "any"}]}
    service = python_service(
        tmp_path,
        NOWHERE,
        'return {"y": inputs["x"][:, 0]}',
        input={"format": "json", "event_id": "id"},
        model={"name": "number", "inputs": inputs},
        with_topics=False,
    )
    events = tmp_path / "events.jsonl"
    values = ["12.5", '"12.5"', "true", '"1"', '"free"', "[1]"]
    events.write_text(
        "".join(f'{{"id": {n if n % 2 else f"{chr(34)}{n}{chr(34)}"}, "x": {x}}}\n' for n, x in enumerate(values))
    )
    with with_native(on=native):
        found = predicted(capsys, str(service.file), str(events), code=1)
    assert [one.get("outputs") for one in found] == [*[{"y": 12.5}] * 2, *[{"y": 1.0}] * 2, None, None]
    assert [one["event_id"] for one in found[:4]] == ["0", "1", "2", "3"]
    assert (
        "field `x` is 'free', but tensor `x` needs a number, true or false, or text with a number" in found[4]["error"]
    )
    assert "x: expected text, a number, or true or false, found an array" in found[5]["error"]


@pytest.mark.skipif(find_spec("tokenizers") is None, reason="needs the extra `text`")
def test_pairs_of_texts_fill_the_inputs_of_a_bert_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors  # noqa: PLC0415

    service = python_service(
        tmp_path,
        NOWHERE,
        'return {"y": (inputs["input_ids"] * inputs["token_type_ids"] * inputs["attention_mask"]).sum(axis=1)}',
        input={"format": "json", "event_id": "id"},
        with_topics=False,
    )
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "[SEP]": 1, "a": 3, "bird": 5}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("$A", "$A [SEP] $B:1", [("[SEP]", 1)])
    folder = tmp_path / "models" / "number" / "1"
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.yaml").write_text(
        "inputs:\n"
        "  - {tensor: input_ids, field: q, pair: a, tokenizer: tokenizer.json, dtype: int64, max_length: 16}\n"
        "  - {tensor: attention_mask, mask: true, dtype: int64}\n"
        "  - {tensor: token_type_ids, token_types: true, dtype: int64}\n"
        "outputs: [{tensor: y}]\n"
    )
    events = tmp_path / "events.jsonl"
    events.write_text('{"id": 1, "q": "a", "a": "bird a"}\n{"id": 2, "q": "a"}\n{"id": 3, "q": "bird a a", "a": "a"}\n')
    found = predicted(capsys, str(service.file), str(events), code=1)
    assert [one.get("outputs") for one in found] == [{"y": 8}, None, {"y": 3}]
    assert found[0]["features"] == {"input_ids": [3, 1, 5, 3], "token_type_ids": [0, 0, 1, 1]}
    assert "field `a` is absent or null, but tensor `input_ids` needs a text" in found[1]["error"]


def test_rejected_events_say_why_and_their_neighbours_are_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = python_service(
        tmp_path,
        NOWHERE,
        """
        if (inputs["x"] == 3).any(): raise ValueError("no threes")
        return {"y": np.log(inputs["x"][:, 0])}
        """,
        with_topics=False,
    )
    events = tmp_path / "events.jsonl"
    events.write_text(
        '{"id": "a", "x": 1}\n\n{"id": "b", "x": "two"}\nnonsense\n{"id": "c", "x": 3}\n{"id": "d", "x": 0}\n'
    )
    found = predicted(capsys, str(service.file), str(events), code=1)
    assert [one.get("reason") for one in found] == [None, "undecodable", "undecodable", "model_rejected", "nan_output"]
    assert [one["place"].rpartition(":")[2] for one in found] == ["1", "3", "4", "5", "6"]
    assert found[0]["outputs"] == {"y": 0.0}
    assert found[3]["features"] == {"x": {"x": 3.0}}
    assert "no threes" in found[3]["error"]

    assert cli.run(["predict", str(service.file), str(events), "--limit", "2"]) == 1
    said = capsys.readouterr()
    assert said.out.splitlines()[:4] == [f"{events}:1  event a", "  x", "    x: 1.0", "  => y: 0.0"]
    assert "  => no prediction (undecodable): " in said.out
    assert said.err == (
        "1 event predicted, 1 dead letter (1 undecodable)\n`millstream docs wire-format` explains the reasons.\n"
    )


def test_text_of_an_output_keeps_a_zero_at_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    predict = "n = len(inputs['x']); return {'y': ['a\\0'] * n, 'z': [['a\\0', 'b']] * n}"
    service = python_service(tmp_path, NOWHERE, predict, with_topics=False)
    config = tmp_path / "models" / "number" / "1" / "config.yaml"
    config.write_text(config.read_text().replace("outputs: [{tensor: y}]", "outputs: [{tensor: y}, {tensor: z}]"))
    events = tmp_path / "events.jsonl"
    events.write_text('{"id": "a", "x": 1}\n{"id": "b", "x": 2}\n')
    found = predicted(capsys, str(service.file), str(events))
    assert [one["outputs"] for one in found] == [{"y": "a\0", "z": ["a\0", "b"]}] * 2


def test_what_a_model_prints_is_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = python_service(tmp_path, NOWHERE, "print('loaded'); return {'y': inputs['x'][:, 0]}", with_topics=False)
    events = tmp_path / "events.jsonl"
    events.write_text('{"id": "a", "x": 1}\n')
    assert cli.run(["predict", str(service.file), str(events), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["outputs"] == {"y": 1.0}
    assert "loaded" in said.err


def test_missing_value_is_told_with_the_option_that_replaces_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = python_service(
        tmp_path, NOWHERE, "return {'y': inputs['x']}", input={"format": "json", "event_id": "id"}, with_topics=False
    )
    events = tmp_path / "events.jsonl"
    events.write_text('{"id": "a", "x": null}\n')
    assert cli.run(["predict", str(service.file), str(events)]) == 1
    said = capsys.readouterr()
    assert "field `x` is absent or null" in said.out
    assert "unfit: x: `missing:` beside the field replaces an absent or null value" in said.err


def reading(folder: Path, fields: str, events: list[dict[str, Any]]) -> list[str]:
    """The files of a pipeline whose model reads these fields, and of these events."""
    service = python_service(folder, NOWHERE, "return {'y': inputs['x']}", input={"format": "json"}, with_topics=False)
    config = folder / "models" / "number" / "1" / "config.yaml"
    config.write_text(f"inputs: [{{tensor: x, fields: [{fields}], dtype: float32}}]\noutputs: [{{tensor: y}}]\n")
    file = folder / "events.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return [str(service.file), str(file)]


@pytest.mark.parametrize(
    ("battery", "advice"),
    [
        ({"temps_c": None}, "battery.temps_c[]: `missing:` beside the field replaces an absent or null value"),
        ({"temps": [1]}, "battery.temps_c[]: `battery` has no `temps_c`. It has the fields temps."),
    ],
)
def test_array_that_is_absent_or_null_gets_the_advice_of_a_single_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], battery: dict[str, Any], advice: str
) -> None:
    config, events, file = reading_one(tmp_path, "x", [{"battery": battery}])
    mapping = config.read_text().replace("fields: [x]", 'field: "battery.temps_c[]"')
    config.write_text(mapping)
    assert cli.run(["predict", str(file), str(events)]) == 1
    said = capsys.readouterr()
    assert "field `battery.temps_c[]` is absent or null, but tensor `x` needs 1 values" in said.out
    assert f"unfit: {advice}" in said.err
    config.write_text(mapping.replace("shape:", "missing: 0, shape:"))
    predicted(capsys, str(file), str(events))


@pytest.mark.parametrize(
    ("air", "advice"),
    [
        ({"celsius": None}, "`missing:` beside the field replaces an absent or null value"),
        (
            {"celsius_c": 7, "wind": 1},
            "`probes[].air` has no `celsius`. It has the fields celsius_c, wind. Did you mean `celsius_c`? If the field was "
            "renamed, write its new name in the mapping",
        ),
    ],
)
def test_item_that_is_absent_or_null_gets_the_advice_of_a_single_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], air: dict[str, Any], advice: str
) -> None:
    rows = [{"probes": [{"air": {"celsius": 1}}, {"air": air}]}, {"probes": [{"air": air}, {"air": air}]}]
    config, events, file = reading_one(tmp_path, "x", rows)
    config.write_text(
        config.read_text().replace("fields: [x]", 'field: "probes[].air.celsius"').replace("shape: [1]", "shape: [2]")
    )
    assert cli.run(["predict", str(file), str(events)]) == 1
    said = capsys.readouterr()
    for item in (1, 0):
        assert f"field `probes[].air.celsius`[{item}] is absent or null, but tensor `x` needs a value" in said.out
    assert said.err.count(f"unfit: probes[].air.celsius: {advice}") == 1
    assert "was missing" not in said.err


def test_item_that_no_event_has_is_told_with_the_nearest_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"probes": [{"air": {"celsius_c": 7}}] * number} for number in (2, 0, 1)]
    config, events, file = reading_one(tmp_path, "x", rows)
    config.write_text(config.read_text().replace("fields: [x]", 'field: "probes[].air.celsius"'))
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert (
        "warning: field probes[].air.celsius was missing or null in 2 of 2 events. Did you mean `probes[].air.celsius_c`?\n"
    ) in capsys.readouterr().err


def test_field_that_is_absent_is_told_with_those_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event = {"price": {"total": 1, "currency": "EUR"}}
    assert cli.run(["predict", *reading(tmp_path, "price.amount", [event, event])]) == 1
    expected = (
        "unfit: price.amount: `price` has no `amount`. It has the fields total, currency. If the field was renamed, "
    )
    assert capsys.readouterr().err.count(expected) == 1


def test_each_absent_field_is_told_once_however_the_events_others_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking_a = [{"b": 1, f"other{number}": 1} for number in range(6)]
    assert cli.run(["predict", *reading(tmp_path, "a, b", [*lacking_a, {"a": 1}])]) == 1
    hints = [line.split(". It")[0] for line in capsys.readouterr().err.splitlines() if line.startswith("unfit: ")]
    assert hints == ["unfit: a: the event has no `a`", "unfit: b: the event has no `b`"]


FIELD = "{field: x}"


def reading_one(tmp_path: Path, field: str, events: list[dict[str, Any]]) -> tuple[Path, Path, Path]:
    """A model with one field, of events in JSON without a schema: its config.yaml, the events' file and the pipeline file."""
    options = {"format": "json", "event_id": "id"}
    service = python_service(tmp_path, NOWHERE, "return {'y': inputs['x'][:, 0]}", input=options, with_topics=False)
    config = tmp_path / "models" / "number" / "1" / "config.yaml"
    config.write_text(config.read_text().replace("fields: [x]", f"fields: [{field}]"))
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f"{json.dumps({'id': 'a', **event})}\n" for event in events))
    return config, file, service.file


def test_the_empty_text_can_be_an_entry_of_a_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    field = "{field: x, vocabulary: [a, '', b], missing: 7}"
    _, events, pipeline = reading_one(tmp_path, field, [{"x": "b"}, {"x": ""}, {"x": None}, {"x": "a"}])
    found = predicted(capsys, str(pipeline), str(events))
    assert [one["outputs"]["y"] for one in found] == [2, 1, 7, 0]


TO_NUMBERS = "`type: any` beside the field takes numbers, true and false, also as text;"


@pytest.mark.parametrize(
    ("field", "event", "advice"),
    [
        ("{field: x}", {"x": "33"}, f"x: {TO_NUMBERS} `type: text` takes only numbers written as text"),
        ("{field: x}", {"x": "true"}, f"x: {TO_NUMBERS} `type: text` takes only numbers written as text"),
        ("{field: x}", {"x": True}, f"x: {TO_NUMBERS} `type: boolean` takes only true and false"),
        (
            "{field: x, type: boolean}",
            {"x": "true"},
            f"x: {TO_NUMBERS} `type: text` takes only numbers written as text",
        ),
        ("{field: x, type: boolean}", {"x": 1}, f"x: {TO_NUMBERS} `type: number` takes only numbers"),
        ("{field: x, type: text}", {"x": 12.5}, f"x: {TO_NUMBERS} `type: number` takes only numbers"),
        ("{field: x, type: text}", {"x": False}, f"x: {TO_NUMBERS} `type: boolean` takes only true and false"),
        (
            "{field: x.y}",
            {"x": [{"y": 1}]},
            "x: a list needs an index in the path: `x[0].y` leads to the first item of the list, and `x[].y` to all",
        ),
        (
            '{field: "x.parts[0].y"}',
            {"x": [{"parts": [{"y": 1}]}]},
            "x: a list needs an index in the path: `x[0].parts[0].y` leads to the first item of the list, and "
            "`x[].parts[0].y` to all",
        ),
        (
            '{field: "x[0].y"}',
            {"x": [[{"y": 1}]]},
            "x[0]: a list needs an index in the path: `x[0][0].y` leads to the first item of the list",
        ),
        ('{field: "x[0]"}', {"x": [[1]]}, "x[0]: `x[0][0]` leads to the first item of the list, and `x[0][]` to all"),
        (
            '{field: "x[-1]"}',
            {"x": [[1], [2]]},
            "x[-1]: `x[-1][0]` leads to the first item of the list, and `x[-1][]` to all",
        ),
        (
            '{field: "x[0]"}',
            {"x": [{"years": 3}]},
            "x[0]: a path must go on to a value in the object (here: years), such as `x[0].years`. No path takes both",
        ),
        ("{field: x, type: text}", {"x": ["a"]}, "x: `x[0]` leads to the first item of the list, and `x[]` to all"),
        (
            "{field: x}",
            {"x": {"years": 3}},
            "x: a path must go on to a value in the object (here: years), such as `x.years`. No path takes both",
        ),
        ('{field: "i[0].x"}', {"i": [{"x": "1"}]}, f"i[].x: {TO_NUMBERS}"),
        (
            "{field: x, time: milliseconds, as: hour}",
            {"x": "2026-01-31T09:30:00Z"},
            "x: a time has one form in all events",
        ),
        ('{field: "i[0].x", time: iso8601}', {"i": [{"x": 1}]}, "i[].x: a time has one form in all events"),
        (
            "{field: x, vocabulary: [a, b]}",
            {"x": 1.5},
            "x: a vocabulary takes texts and whole numbers. With `type: any`",
        ),
        ("{field: y, missing: 0}", {"id": 1.5}, "id: `input.event_id` has no option `type`"),
    ],
)
def test_value_of_another_type_is_told_with_the_option_that_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, event: dict[str, Any], advice: str
) -> None:
    _, events, file = reading_one(tmp_path, field, [event, event])
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert capsys.readouterr().err.count(f"undecodable: {advice}") == 1


@pytest.mark.parametrize(
    ("dtype", "type_", "event", "advised"),
    [
        ("float64", "", "33", {"any", "text"}),
        ("int64", "", "33", {"any", "text"}),
        ("float64", "", True, {"any", "boolean"}),
        ("int64", "boolean", 7, {"any", "number"}),
        ("float64", "text", 1.5, {"any", "number"}),
        ("bool", "", "true", {"any", "text"}),
        ("bool", "number", "0", {"any", "text"}),
        ("bool", "", 1, {"any", "number"}),
        ("bool", "text", True, {"any", "boolean"}),
        ("string", "", True, {"any"}),
        ("string", "", 1.5, {"any"}),
        ("int64", "", 33.0, {"any", "number"}),
        ("int32", "int", 33.0, {"any", "number"}),
        ("int64", "text", 33.0, {"any", "number"}),
        ("float64", "int", 33.5, {"any", "number"}),
        ("bool", "int", 1.0, {"any", "number"}),
    ],
)
def test_each_type_that_the_advice_names_takes_the_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: str, type_: str, event: object, advised: set[str]
) -> None:
    config, events, file = reading_one(tmp_path, FIELD, [{"x": event}])
    mapping = config.read_text().replace("float64", dtype)
    config.write_text(mapping.replace(FIELD, f"{{field: x, type: {type_}}}" if type_ else "x"))
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert {*re.findall("`type: (.*?)`", capsys.readouterr().err)} == advised
    for option in advised:
        config.write_text(mapping.replace(FIELD, f"{{field: x, type: {option}}}"))
        predicted(capsys, str(file), str(events))


@pytest.mark.parametrize("value", ["1,5", " -1.234,50 "])
@pytest.mark.parametrize("dtype", ["float64", "int64", "bool"])
def test_decimal_comma_is_told_that_no_option_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: str, value: str
) -> None:
    config, events, file = reading_one(tmp_path, "x.y", [{"x": {"y": value}}])
    mapping = config.read_text().replace("float64", dtype)
    config.write_text(mapping)
    assert cli.run(["predict", str(file), str(events)]) == 1
    said = capsys.readouterr().err
    assert (
        "x.y: no option takes numbers with a decimal comma, because numbers in texts are written as in JSON. Let"
        in said
    )
    assert "`type" not in said
    for option in ("any", "text"):
        config.write_text(mapping.replace("x.y", f"{{field: x.y, type: {option}}}"))
        assert cli.run(["predict", str(file), str(events)]) == 1
    capsys.readouterr()
    config.write_text(mapping.replace(dtype, "string"))
    predicted(capsys, str(file), str(events))


def test_number_with_a_fraction_of_zero_is_told_to_be_whole_for_a_tensor_of_ints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, events, file = reading_one(tmp_path, "x", [{"x": 33.0}])
    config.write_text(config.read_text().replace("float64", "int64"))
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert "A tensor of ints takes 33.0 as 33, and no fractions." in capsys.readouterr().err


def test_vocabulary_whose_field_is_included_with_a_type_is_told_to_leave_it_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, events, file = reading_one(tmp_path, "{field: x, vocabulary: [a, '7'], unknown: 0}", [{"x": 7}, {"x": "a"}])
    text = file.read_text()
    file.write_text(text.replace("output:\n", "output:\n  include: {x: text}\n"))
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert "x: the type of `x` under `output.include` holds for the field's vocabulary, too. Leave the type out" in (
        capsys.readouterr().err
    )
    file.write_text(text.replace("output:\n", "output:\n  include: [x]\n"))
    predicted(capsys, str(file), str(events))


@pytest.mark.parametrize("number", [33.5, 2**63, 1e300])
@pytest.mark.parametrize("type_", ["int", "text"])
def test_number_that_no_tensor_of_ints_can_hold_gets_no_advice_on_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: float, type_: str
) -> None:
    config, events, file = reading_one(tmp_path, FIELD, [{"x": number}])
    mapping = config.read_text().replace("float64", "int64")
    config.write_text(mapping.replace(FIELD, f"{{field: x, type: {type_}}}"))
    assert cli.run(["predict", str(file), str(events)]) == 1
    said = capsys.readouterr().err
    assert "x: a tensor of int64 takes only whole numbers that it can hold, whatever `type` says." in said
    for option in ("any", "number"):
        config.write_text(mapping.replace(FIELD, f"{{field: x, type: {option}}}"))
        assert cli.run(["predict", str(file), str(events)]) == 1


def test_field_that_is_the_id_too_gets_only_the_type_that_goes_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, events, file = reading_one(tmp_path, FIELD, [{"id": 33.0}])
    mapping = config.read_text()
    config.write_text(mapping.replace(FIELD, "id"))
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert {*re.findall("`type: (.*?)`", capsys.readouterr().err)} == {"any"}
    config.write_text(mapping.replace(FIELD, "{field: id, type: any}"))
    predicted(capsys, str(file), str(events))


@pytest.mark.parametrize(
    ("field", "type_", "event", "advised"),
    [
        ("n", "text", {"n": 12.5}, {"any", "number"}),
        ("n", "int", {"n": 33.0}, {"any", "number"}),
        ("n", "number", {"n": True}, {"any", "boolean"}),
        ("n", "boolean", {"n": "yes"}, {"any", "text"}),
        ("n[]", "text", {"n": ["a", 12.5]}, {"any"}),
        ("n[0].k", "int", {"n": [{"k": "a"}]}, {"any", "text"}),
    ],
)
def test_each_type_of_an_included_field_that_the_advice_names_takes_the_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], field: str, type_: str, event: dict[str, Any], advised: set[str]
) -> None:
    _, events, file = reading_one(tmp_path, "x", [{"x": 1, **event}])
    text = file.read_text()

    def include(option: str) -> None:
        file.write_text(text.replace("output:\n", f"output:\n  include: {{'{field}': {option}}}\n"))

    include(type_)
    assert cli.run(["predict", str(file), str(events)]) == 1
    [advice] = [line for line in capsys.readouterr().err.splitlines() if "under `output.include`" in line]
    named = {*re.findall(rf"`\"?{re.escape(field)}\"?: (\w+)`", advice)}
    assert advised <= named
    for option in advised:
        include(option)
        predicted(capsys, str(file), str(events))


@pytest.mark.parametrize(
    ("dtype", "value", "stated", "given"),
    [("float64", "55", "number", "text"), ("bool", 1, "boolean", "number"), ("string", 7, "text", None)],
)
def test_included_field_that_fills_a_tensor_is_told_to_have_the_type_in_both_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: str, value: object, stated: str, given: str | None
) -> None:
    config, events, file = reading_one(tmp_path, "x", [{"x": value}])
    text, mapping = file.read_text(), config.read_text().replace("float64", dtype)

    def write(beside: str | None, include: str) -> None:
        config.write_text(mapping.replace("[x]", f"[{{field: x, type: {beside}}}]" if beside else "[x]"))
        file.write_text(text.replace("output:\n", f"output:\n  include: {{x: {include}}}\n"))

    write(None, stated)
    assert cli.run(["predict", str(file), str(events)]) == 1
    said = capsys.readouterr().err
    assert "Write `any` in both places (`x: any` there" in said
    assert [*re.findall(r"or `(\w+)` in both places", said)] == ([given] if given else [])
    write("any", stated)
    assert cli.run(["check", str(file), "--offline"]) == 1
    assert "Write `x: any` here.\n" in "".join(capsys.readouterr())
    write(None, "number" if dtype == "string" else "text")
    assert cli.run(["check", str(file), "--offline"]) == 1
    both_types = f"Write `x: {stated}` here. If the events have both types there, write `any` in both places: `type: any` beside "
    assert both_types in "".join(capsys.readouterr())
    for both in filter(None, ("any", given)):
        write(both, both)
        predicted(capsys, str(file), str(events))


def test_list_of_an_included_field_is_told_with_the_paths_that_take_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, events, file = reading_one(tmp_path, "x", [{"x": 1, "n": ["a"]}])
    text = file.read_text()
    file.write_text(text.replace("output:\n", "output:\n  include: {n: text}\n"))
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert "n: `n[0]` leads to the first item of the list, and `n[]` to all (`millstream" in capsys.readouterr().err
    for path in ("n[0]", "n[]"):
        file.write_text(text.replace("output:\n", f"output:\n  include: {{'{path}': text}}\n"))
        predicted(capsys, str(file), str(events))


def test_cost_of_another_type_is_told_to_have_no_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, events, file = reading_one(tmp_path, "x", [{"x": 1, "size": "large"}])
    file.write_text(f"{file.read_text()}\nbatch: {{cost: size, max_cost: 9}}\n")
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert "size: `batch.cost` has no option `type`." in capsys.readouterr().err


def test_other_texts_of_a_boolean_get_the_advice_that_takes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, events, file = reading_one(tmp_path, "{field: x, type: boolean}", [{"x": "yes"}])
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert "A `vocabulary` takes other texts, such as yes and no." in capsys.readouterr().err
    config.write_text(config.read_text().replace("type: boolean", 'vocabulary: ["no", "yes"]'))
    assert [one["outputs"] for one in predicted(capsys, str(file), str(events))] == [{"y": 1.0}]


def test_other_texts_of_a_tensor_of_bools_are_told_that_only_four_texts_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, events, file = reading_one(tmp_path, "{field: x, type: boolean}", [{"x": "yes"}])
    config.write_text(config.read_text().replace("float64", "bool"))
    assert cli.run(["predict", str(file), str(events)]) == 1
    said = capsys.readouterr().err
    assert "x: a tensor of bool takes only the texts true, false, 1 and 0." in said
    assert "vocabulary" not in said  # which makes numbers


def test_time_that_is_read_as_a_number_is_told_once_with_the_mapping_that_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = [{"x": f"2026-11-01T{hour:02}:32:34Z"} for hour in range(9)]
    config, events, file = reading_one(tmp_path, FIELD, times)
    assert cli.run(["predict", str(file), str(events)]) == 1
    said = capsys.readouterr().err
    [entry] = re.findall("undecodable: x: .* such as its hour: `({.*?})`", said)
    assert "vocabulary" not in said
    config.write_text(config.read_text().replace(FIELD, entry))
    assert [one["outputs"]["y"] for one in predicted(capsys, str(file), str(events))] == [*range(9)]


def test_texts_that_are_no_numbers_get_one_advice_per_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, events, file = reading_one(tmp_path, FIELD, [{"x": text} for text in ("yes", "no", "1,5", "2,5")])
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert capsys.readouterr().err.count("undecodable: x: no option ") == 2


@pytest.mark.parametrize(
    ("dtype", "options", "values", "advice"),
    [
        ("float32", "type: any", ["12,50", "1,5"], "no option takes numbers with a decimal comma"),
        ("int64", "type: text", ["12,50"], "no option takes numbers with a decimal comma"),
        (
            "float32",
            "type: any",
            ["yes", "no"],
            "no option makes a number of a text that isn't one. A `vocabulary` takes",
        ),
        ("int64", "type: any", ["yes"], "no option makes a number of a text that isn't one. A `vocabulary` takes"),
        ("bool", "type: any", ["yes", "no"], "a tensor of bool takes only the texts true, false, 1 and 0."),
        ("bool", "type: text", ["yes"], "a tensor of bool takes only the texts true, false, 1 and 0."),
        (
            "float32",
            "type: text",
            ["2026-11-01T00:32:34Z", "2026-11-01"],
            "`time: iso8601` beside the field, without `type`, makes a number of a time",
        ),
        (
            "float32",
            "time: iso8601",
            ["01.11.2026 12:00", "soon"],
            "`time` reads texts in ISO 8601 only, such as 2026-01-31T09:30:00Z. Let the producer send these",
        ),
        ("float32", "as: hour", ["soon"], "`time` reads texts in ISO 8601 only"),
        (
            "int64",
            "vocabulary: [web, app]",
            ["telex", "fax"],
            "if the model was trained with the value that the `vocabulary`",
        ),
    ],
)
@pytest.mark.parametrize("is_list", [False, True], ids=["single", "item"])
def test_value_that_a_conversion_does_not_take_gets_one_advice_per_field(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    dtype: str,
    options: str,
    values: list[str],
    advice: str,
    is_list: bool,
) -> None:
    config, events, file = reading_one(tmp_path, FIELD, [{"x": [value] if is_list else value} for value in values])
    mapping = config.read_text().replace("float64", dtype).replace("field: x", f"field: x, {options}")
    if is_list:
        mapping = mapping.replace(f"fields: [{{field: x, {options}}}]", f"field: 'x[]', {options}")
    config.write_text(mapping)
    assert cli.run(["predict", str(file), str(events)]) == 1
    said = capsys.readouterr().err
    assert said.count(f"unfit: {'x[]' if is_list else 'x'}: {advice}") == 1
    assert said.count("unfit: ") == 1


@pytest.mark.parametrize("path", ["x[][0]", "x[0][]"])
def test_lists_in_the_list_of_an_array_field_are_told_with_the_paths_that_take_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    config, events, file = reading_one(tmp_path, FIELD, [{"x": [[1.5]]}])
    mapping = config.read_text().replace(f"fields: [{FIELD}]", "field: 'x[]'")
    config.write_text(mapping)
    assert cli.run(["predict", str(file), str(events)]) == 1
    advice = "x[]: `x[][0]` leads to the first item of each list, and `x[0][]` to all of the first list"
    assert f"undecodable: {advice}" in capsys.readouterr().err
    config.write_text(mapping.replace("x[]", path))
    assert [one["outputs"] for one in predicted(capsys, str(file), str(events))] == [{"y": 1.5}]


def test_advice_that_is_not_shown_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("5", "7"):
        (tmp_path / folder).mkdir()
    lacking = [{other: 1 for other in "abcdefg" if other != name} for name in "abcdefg"]
    assert cli.run(["predict", *reading(tmp_path / "7", "a, b, c, d, e, f, g", lacking)]) == 1
    said = capsys.readouterr().err
    assert said.count("unfit: ") == 5
    assert (
        "\n... and advice on 2 more errors. To see it, correct these first and run `millstream predict` again" in said
    )
    assert cli.run(["predict", *reading(tmp_path / "5", "a, b, c, d, e, f, g", lacking[:5])]) == 1
    assert "... and advice on" not in capsys.readouterr().err


@pytest.mark.parametrize("native", [True, False], ids=["many at a time", "one by one"])
def test_number_of_type_any_that_the_tensor_cannot_hold_is_too_large(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], native: bool
) -> None:
    config, events, file = reading_one(tmp_path, "{field: x, type: any}", [{"x": 1e300}])
    config.write_text(config.read_text().replace("float64", "float32"))
    with with_native(on=native):
        [found] = predicted(capsys, str(file), str(events), code=1)
    assert found["error"] == "field `x` is 1e+300, too large for float32, which tensor `x` does not take"


def test_field_that_is_a_time_gets_no_advice_on_casts_but_where_they_do_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, events, file = reading_one(tmp_path, "{field: x, time: seconds}", [{"x": 1.5}, {"x": "1.5"}])
    assert cli.run(["predict", str(file), str(events)]) == 1
    [advice] = re.findall("undecodable: x: a time .*", capsys.readouterr().err)
    assert "`type: text`" not in advice
    assert "write `type: any` in place of `time`" in advice
    config.write_text(config.read_text().replace("time: seconds", "type: any"))
    assert [one["outputs"] for one in predicted(capsys, str(file), str(events))] == [{"y": 1.5}] * 2


def warnings(capsys: pytest.CaptureFixture[str], file: Path, events: Path) -> list[str]:
    assert cli.run(["predict", str(file), str(events)]) == 0
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]


def test_field_that_all_events_lack_is_told_with_what_the_model_gets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, events, file = reading_one(tmp_path, "{field: age, missing: -1}", [{"agee": 1}, {"agee": 2}])
    [warning] = warnings(capsys, file, events)
    place = f"as `missing` says in model number version 1 ({config}:1)"
    assert warning == (
        f"warning: field age was missing or null in 2 of 2 events; the model gets -1 instead, {place}. Did you mean `agee`?"
    )
    events.write_text('{"id": "a", "age": 1}\n{"id": "b"}\n')
    assert not warnings(capsys, file, events)


def test_values_that_stand_in_place_of_some_events_own_are_counted_by_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, Any]] = [{"age": 1, "color": "red"}, {"color": "blue"}, {"age": 2, "color": "tan"}, {"age": 3}]
    fields = "{field: age, missing: -1}, {field: color, vocabulary: [red], unknown: 5, missing: 6}"
    config, events, file = reading_one(tmp_path, fields, rows)
    config.write_text(config.read_text().replace("shape: [1]", "shape: [2]"))
    assert cli.run(["predict", str(file), str(events)]) == 0
    assert capsys.readouterr().err == (
        "4 events predicted, 0 dead letters, 2 missing values filled (1 age, 1 color), "
        "2 values outside a vocabulary (2 color)\n"
    )
    events.write_text('{"id": "a", "age": 1, "color": "red"}\n')
    assert cli.run(["predict", str(file), str(events)]) == 0
    assert capsys.readouterr().err == "1 event predicted, 0 dead letters\n"


def test_field_of_a_schema_that_is_null_in_all_events_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, events, file = reading_one(tmp_path, "{field: x, missing: 0}", [{"x": None}, {"x": None}])
    schema = tmp_path / "schemas" / "1-number-event.avsc"
    schema.write_text(schema.read_text().replace('"double"', '["null", "double"]'))
    file.write_text(file.read_text().replace("format: json", "format: json\n  schema: number-event", 1))
    [warning] = warnings(capsys, file, events)
    assert warning.startswith(
        "warning: x was absent or null in 2 of 2 events; the model gets 0 instead, as `missing` says in "
    )


def test_time_and_cost_that_all_events_lack_are_told_with_what_stands_instead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, events, file = reading_one(tmp_path, "x", [{"x": 1, "happened_at": 5}, {"x": 2, "happened_at": 6}])
    text = file.read_text().replace("event_id: id", "event_id: id\n  event_time: happened")
    file.write_text(f"{text}\nbatch: {{cost: size, max_cost: 9}}\n")
    absent, no_cost = "was missing or null in 2 of 2 events", "the event's cost is 0 instead, so that `batch.max_cost`"
    assert warnings(capsys, file, events) == [
        f"warning: field happened {absent}; the record's timestamp is the event's time instead. Did you mean `happened_at`?",
        f"warning: field size {absent}; {no_cost} doesn't limit it.",
    ]


def test_included_field_that_all_events_lack_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"x": 1, "car": {"plates": "M", "coupon": None}}, {"x": 2, "car": {"plates": "B", "coupon": "C"}}]
    _, events, file = reading_one(tmp_path, "x", rows)
    text = file.read_text()
    assert "output: {" not in text
    file.write_text(
        text.replace("output:\n", "output:\n  include: {car.plate: text, car.coupon: text, x: number}\n", 1)
    )
    assert warnings(capsys, file, events) == [
        "warning: field car.plate was missing or null in 2 of 2 events; their predictions have null in its place. "
        "Did you mean `car.plates`?"
    ]


def test_included_field_of_items_that_all_events_lack_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"x": 1, "play": {"parts": parts}}
        for parts in ([], [{"seconds": 1, "note": "a"}], [{"seconds": 2, "note": None}, {"seconds": 3}])
    ]
    _, events, file = reading_one(tmp_path, "x", rows)
    include = '{"play.parts[].sec": number, "play.parts[].note": text}'
    file.write_text(file.read_text().replace("output:\n", f"output:\n  include: {include}\n", 1))
    assert warnings(capsys, file, events) == [
        "warning: field play.parts[].sec was missing or null in 2 of 2 events; their predictions have null in its place. "
        "Did you mean `play.parts[].seconds`?"
    ]
    events.write_text('{"id": "a", "x": 1, "play": {"parts": []}}\n' * 3)
    assert not warnings(capsys, file, events)


def test_time_of_a_schema_that_is_null_in_all_events_is_told_with_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, events, file = reading_one(tmp_path, "x", [{"x": 1, "at": None}, {"x": 2, "at": None}])
    schema = tmp_path / "schemas" / "1-number-event.avsc"
    at = {"name": "at", "type": ["null", "long"], "default": None}
    schema.write_text(
        json.dumps(
            json.loads(schema.read_text())
            | {"fields": [{"name": "id", "type": "string"}, {"name": "x", "type": "double"}, at]}
        )
    )
    file.write_text(
        file.read_text().replace("format: json", "format: json\n  schema: number-event\n  event_time: at", 1)
    )
    [warning] = warnings(capsys, file, events)
    line = file.read_text().splitlines().index("  event_time: at") + 1
    assert warning == (
        "warning: at was absent or null in 2 of 2 events; the record's timestamp is the event's time instead. If the producer "
        f"renamed it, write its new name ({file}:{line}: input.event_time; "
        "`millstream docs models#a-field-that-is-renamed`)."
    )


def test_vocabulary_that_has_none_of_the_values_is_told_with_some_and_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    countries = [{"x": country} for country in ("DE", "DE", "FR", "NO", "SE")]
    config, events, file = reading_one(tmp_path, "{field: x, vocabulary: countries.txt, unknown: 0}", countries)
    listed = config.with_name("countries.txt")
    listed.write_text("other\nde\nfr\n")
    [warning] = warnings(capsys, file, events)
    assert warning.startswith(
        "warning: x: 5 of 5 values are no entry of the vocabulary, such as 'DE', 'FR', 'NO'; the model gets the index 0 instead, "
    )
    assert warning.endswith(f"correct {listed}.")
    listed.write_text("other\nDE\n")
    assert not warnings(capsys, file, events)


def test_included_fields_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = python_service(
        tmp_path,
        NOWHERE,
        "return {'y': inputs['x'][:, 0]}",
        input={"format": "json", "event_id": "id"},
        output={"format": "json", "include": {"customer.name": "text", "customer.age": "number", "tags[]": "text"}},
        with_topics=False,
    )
    events = tmp_path / "events.jsonl"
    events.write_text(
        '{"id": "a", "x": 1, "customer": {"name": "Li", "age": 33}, "tags": ["n"]}\n{"id": "b", "x": 2}\n'
    )
    first, second = predicted(capsys, str(service.file), str(events))
    assert first["event"] == {"customer.name": "Li", "customer.age": 33.0, "tags[]": ["n"]}
    assert second["event"] == {"customer.name": None, "customer.age": None, "tags[]": None}
    assert cli.run(["predict", str(service.file), str(events), "--limit", "1"]) == 0
    assert '  => event, customer.name: "Li"\n' in capsys.readouterr().out


def test_object_in_output_include_is_refused_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = python_service(
        tmp_path,
        NOWHERE,
        "return {'y': inputs['x']}",
        input={"format": "json", "event_id": "id"},
        output={"format": "json", "include": {"customer": "any"}},
        with_topics=False,
    )
    config = tmp_path / "models" / "number" / "1" / "config.yaml"
    config.write_text(config.read_text().replace("fields: [x]", "fields: [customer.age]"))
    assert cli.run(["check", str(service.file), "--offline"]) == 1
    said = capsys.readouterr().err
    lines = service.file.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "customer" in text)
    assert said.startswith(f"{service.file}:{line}: output.include.customer: expected a path to a value, because ")
    assert "no objects; found `customer`, which is an object: `customer.age` is read, too." in said


@pytest.mark.parametrize(
    ("indent", "separator"), [(2, ","), (None, ", "), (None, ",\n")], ids=["pretty", "one line", "one event a line"]
)
def test_list_of_events_is_refused_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], indent: int | None, separator: str
) -> None:
    options = {"format": "json", "event_id": "id"}
    service = python_service(tmp_path, NOWHERE, "return {'y': inputs['x']}", input=options, with_topics=False)
    events = tmp_path / "events.json"
    rows = [{"id": f"{number}", "x": number} for number in range(9)]
    events.write_text(json.dumps(rows, indent=indent, separators=(separator, ": ")))
    assert cli.run(["predict", str(service.file), str(events)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"{events}:1: expected one JSON object per line")
    assert "rite them as lines: jq -c '.[]' FILE" in said


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (gzip.compress(b'{"id": "a"}\n'), "a file that is compressed with gzip"),
        ('{"id": "a"}\n'.encode("utf-16"), "UTF-16"),
    ],
    ids=[
        "gzip",
        "UTF-16",
    ],  # by default, an ID has the content: a gzip header has the time, so each process has other IDs
)
@pytest.mark.parametrize("command", ["predict", "produce"])
def test_other_bytes_on_standard_input_are_refused_once(
    tmp_path: Path, command: str, content: bytes, found: str
) -> None:
    options = {"format": "json", "event_id": "id"}
    service = python_service(tmp_path, NOWHERE, "return {'y': inputs['x']}", input=options, with_topics=False)
    done = millstream_here(command, service.file, "-", stdin=content)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"standard input: expected events as UTF-8 text, found {found}")
    assert done.stderr.count("\n") == 1


def test_lines_that_end_with_a_bare_carriage_return_are_refused_once(tmp_path: Path) -> None:
    options = {"format": "json", "event_id": "id"}
    service = python_service(tmp_path, NOWHERE, "return {'y': inputs['x']}", input=options, with_topics=False)
    events = tmp_path / "events.jsonl"
    events.write_bytes(b'{"id": "a",\r "x": 1}\r{"id": "b", "x": 2}\r')
    done = millstream_here("predict", service.file, events)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{events}:1: expected one JSON object per line, found lines that end with a bare carriage return. Convert the file: "
        "tr '\\r' '\\n' < FILE > NEW.\n"
    )


@pytest.mark.parametrize("from_stdin", [False, True])
def test_lines_end_only_at_newlines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, from_stdin: bool
) -> None:
    options = {"format": "json", "event_id": "id"}
    service = python_service(tmp_path, NOWHERE, "return {'y': inputs['x'][:, 0]}", input=options, with_topics=False)
    events = tmp_path / "events.jsonl"
    texts = [b'{"id": "a",\r"x": 1}\r\n', b"\r\n", '{"id": "b\u2028", "x": 2}\n'.encode(), b'\x0c{"id": "c", "x": 3}\n']
    events.write_bytes(b"".join(texts))
    name = "-" if from_stdin else str(events)
    with events.open() as given:
        monkeypatch.setattr("sys.stdin", given)
        found = predicted(capsys, str(service.file), name, code=1)
    place = "standard input" if from_stdin else name
    assert [(one["place"], one["event_id"]) for one in found] == [
        (f"{place}:1", "a"),
        (f"{place}:3", "b\u2028"),
        (f"{place}:4", None),
    ]


def test_missing_values_are_valid_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = python_service(tmp_path, NOWHERE, "return {'y': inputs['x'][:, 0] == 1}", with_topics=False)
    config = tmp_path / "models" / "number" / "1" / "config.yaml"
    config.write_text(config.read_text().replace("fields: [x]", "fields: [{field: x, missing: nan}]"))
    service.file.write_text(service.file.read_text().replace("  schema: number-event\n", ""))
    events = tmp_path / "events.jsonl"
    events.write_text('{"id": "a"}\n')
    assert cli.run(["predict", str(service.file), str(events), "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["features"] == {"x": {"x": "NaN"}}


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_file_without_events_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    service = python_service(tmp_path, NOWHERE, "return {'y': inputs['x']}", with_topics=False)
    events = tmp_path / "events.jsonl"
    events.write_text(content)
    assert cli.run(["predict", str(service.file), str(events), "--json"]) == 0
    assert capsys.readouterr() == ("", f"{events} has no events.\n")


def test_row_that_the_schema_refuses_is_no_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = flights_service(tmp_path, NOWHERE, with_topics=False)
    events = tmp_path / "events.jsonl"
    events.write_text('{"id": 7}\n')
    assert cli.run(["predict", str(service.file), str(events), "--json"]) == 1
    said = capsys.readouterr()
    one = json.loads(said.out)
    assert one["reason"] == "no_event"
    assert "id" in one["error"]
    assert said.err.startswith("0 events predicted, 0 dead letters, 1 refused (1 no_event)\n")


def test_events_of_selected_dead_letters_are_run(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = python_service(tmp_path, kafka, "return {'y': inputs['x'][:, 0] + 1}")
    ours: dict[str, Any] = {"pipeline": service.group, "topic": service.inputs[0], "partition": 0}
    letters = [
        a_letter(**ours, value=b'{"id": "a", "x": 41}', error="field `x` is absent or null"),
        a_letter(**ours, value=b'{"id": "b", "x": 42}'),
        a_letter(**ours, value=b'{"id": "c", "x": 43}', error="x: expected a number, found text"),
        a_letter(**ours, value=None, error="x: too large"),
    ]
    write_letters(kafka.bootstrap, service.letters, letters)
    file = str(service.file)
    [one] = predicted(capsys, file, "--dead-letters", "--position", "0@1")
    assert (one["outputs"], one["place"]) == ({"y": 43.0}, "0@1")
    assert [one["place"] for one in predicted(capsys, file, "--dead-letters", "--limit", "2")] == ["0@0", "0@1"]
    assert cli.run(["predict", file, "--dead-letters", "--field", "x", "--json"]) == 1  # the event of one is gone
    said = capsys.readouterr()
    assert [json.loads(line)["outputs"]["y"] for line in said.out.splitlines()] == [42.0, 44.0]
    assert "0@3: the letter holds no event (it was too large), and the event is gone from topic" in said.err
    assert cli.run(["predict", file, "--dead-letters", "--field", "other"]) == 0
    assert capsys.readouterr() == ("", "No dead letter with an event is selected.\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--source-partition", "1"], "--source-partition selects dead letters. Add --dead-letters"),
        (["events.jsonl", "--dead-letters"], "--dead-letters takes its events from Kafka, so it takes no file"),
    ],
)
def test_options_of_dead_letters_stand_with_them_alone(
    capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["predict", "pipeline.yaml", *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_time_whose_field_is_included_with_a_type_is_told_which_type_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, events, file = reading_one(tmp_path, "{field: x, time: seconds}", [{"x": 1795821406.0}])
    text = file.read_text()
    file.write_text(text.replace("output:\n", "output:\n  include: {x: int}\n"))
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert "If all of them have numbers of seconds there, write `x: number` under `output.include`. Otherwise" in (
        capsys.readouterr().err
    )
    file.write_text(text.replace("output:\n", "output:\n  include: {x: number}\n"))
    assert cli.run(["predict", str(file), str(events)]) == 0


@pytest.mark.parametrize(
    ("stated", "value", "form"),
    [
        ("iso8601", 1795821406, "seconds"),
        ("iso8601", 1795821406123, "milliseconds"),
        ("iso8601", 1795821406123456, "microseconds"),
        ("milliseconds", "2026-11-28T11:00:00Z", "iso8601"),
    ],
)
def test_event_time_of_another_form_is_told_with_the_format_that_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stated: str, value: object, form: str
) -> None:
    _, events, file = reading_one(tmp_path, "x", [{"x": 1, "at": value}])
    text = file.read_text().replace("event_id: id", "event_id: id\n  event_time: at\n  event_time_format: FORM")
    file.write_text(text.replace("FORM", stated))
    assert cli.run(["predict", str(file), str(events)]) == 1
    said = "".join(capsys.readouterr())
    assert f"`event_time_format: {form}` under `input`" in said
    assert "`type`" not in said
    file.write_text(text.replace("FORM", form))
    predicted(capsys, str(file), str(events))


def test_event_time_that_is_a_feature_too_gets_no_advice_on_casts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, events, file = reading_one(tmp_path, "at", [{"at": "2026-11-28T11:00:00Z"}])
    file.write_text(file.read_text().replace("event_id: id", "event_id: id\n  event_time: at"))
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert "`type" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        (("iso8601", "text"), 1795821406123, ("milliseconds", "number")),
        (("milliseconds", "number"), "2026-11-28T11:00:00Z", ("iso8601", "text")),
    ],
)
def test_time_of_another_form_is_told_with_all_places_that_name_its_field(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    before: tuple[str, str],
    value: object,
    after: tuple[str, str],
) -> None:
    config, events, file = reading_one(tmp_path, "{field: at, time: FORM, as: hour}", [{"at": value}])
    mapping, form, type_ = config.read_text(), *after
    text = file.read_text().replace("event_id: id", "event_id: id\n  event_time: at\n  event_time_format: FORM")
    text = text.replace("output:\n", "output:\n  include: {at: TYPE}\n")
    told = (
        f"write `event_time_format: {form}` under `input`, `time: {form}` wherever the mapping names the field and `at: {type_}` "
        "under `output.include`"
    )

    def write(form: str, type_: str) -> None:
        config.write_text(mapping.replace("FORM", form))
        file.write_text(text.replace("FORM", form).replace("TYPE", type_))

    write(*before)
    assert cli.run(["predict", str(file), str(events)]) == 1
    assert told in capsys.readouterr().err
    write(before[0], type_)
    assert cli.run(["check", str(file), "--offline"]) == 1
    assert told in "".join(capsys.readouterr())
    write(*after)
    predicted(capsys, str(file), str(events))


def test_events_that_the_filter_leaves_out_are_skipped_and_miss_no_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"format": "json", "event_id": "id", "filter": "kind == order"}
    service = python_service(tmp_path, NOWHERE, "return {'y': inputs['x']}", input=options, with_topics=False)
    events = tmp_path / "events.jsonl"
    others = ['{"kind": "view", "id": [], "at": 5}', '{"x": "text"}']
    events.write_text("\n".join(['{"kind": "order", "id": "a", "x": 1.5}', *others, ""]))
    assert cli.run(["predict", str(service.file), str(events)]) == 0
    told = capsys.readouterr()
    assert told.out.count("=> skipped (filtered): input.filter is `kind == order`") == 2
    assert told.err == "1 event predicted, 0 dead letters, 2 skipped (2 filtered)\n"
    events.write_text("\n".join([*others, ""]))
    assert cli.run(["predict", str(service.file), str(events)]) == 1
    assert capsys.readouterr().err == (
        'warning: no event passes input.filter. The events have in kind: "view", null\n'
        "0 events predicted, 0 dead letters, 2 skipped (2 filtered)\n"
    )


def test_limit_counts_only_events_that_pass_the_filter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"format": "json", "event_id": "id", "filter": "kind == order"}
    service = python_service(tmp_path, NOWHERE, "return {'y': inputs['x']}", input=options, with_topics=False)
    events = tmp_path / "events.jsonl"
    kinds = ["view", "order", "view", "view", "order", "view", "order"]
    events.write_text("".join(f'{{"kind": "{kind}", "id": "e{at}", "x": 1}}\n' for at, kind in enumerate(kinds)))
    found = predicted(capsys, str(service.file), str(events), "--limit", "2")
    assert [one["event_id"] for one in found if "outputs" in one] == ["e1", "e4"]
    assert len(found) == 5
