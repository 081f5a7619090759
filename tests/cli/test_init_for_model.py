"""`millstream init --model --sample`: a pipeline for a model and events of the user's."""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper

from millstream.consumers.cli import main as cli
from millstream.consumers.cli.event_file import json_row
from millstream.pipeline.loading import load_pipeline
from millstream.topics.errors import BrokerUnreachableError, TopicError
from tests.broker.clients import create_topic, ensure_topic, produce
from tests.cli.test_init import uncommented
from tests.inference.executors.torch_models import torch
from tests.inference.models import splitting_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.broker.choice import Broker
    from tests.conftest import MakeTopic

EVENTS = [
    {
        "order_id": f"o-{number}",
        "created_at": f"2026-03-01T{number % 24:02d}:00:00Z",
        "customer": {"age": 20 + number, "country": "DE" if number % 2 else "FR", "vip": bool(number % 3)},
        "basket": {"items": [{"price": 1.5 * number, "sku": "a"}] * (1 + number % 3), "total": 9.25 + number},
        **({"discount": 0.5} if number % 4 else {}),  # the first event lacks it
        "embedding": [0.1, 0.2, float(number)],
    }
    for number in range(20)
]


def model(file: Path, inputs: Sequence[tuple[str, int, Sequence[int | str]]]) -> Path:
    """Its output is the sum of the first input's elements."""
    first = inputs[0][0]
    nodes = [
        helper.make_node("Cast", [first], ["x"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["x", "axis"], ["y"], keepdims=1),
    ]
    graph = helper.make_graph(
        nodes,
        "sum",
        [helper.make_tensor_value_info(name, kind, ["batch", *shape]) for name, kind, shape in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 1])],
        [onnx.numpy_helper.from_array(np.array([1], np.int64), "axis")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(file))
    return file


def sample(folder: Path) -> Path:
    file = folder / "sample.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in EVENTS))
    return file


def made(folder: Path, *arguments: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pipeline file and the model's config. A worker would take them, and predict each event of the sample."""
    assert cli.run(["init", str(folder), *map(str, arguments)]) == 0
    assert cli.run(["check", str(folder), "--offline"]) == 0
    pipeline = yaml.safe_load((folder / "pipeline.yaml").read_text())
    return pipeline, yaml.safe_load((folder / "models" / folder.name / "1" / "config.yaml").read_text())


def test_what_a_first_pipeline_does_without_is_a_comment(tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    made(
        folder, "--model", model(tmp_path / "model.onnx", [("X", TensorProto.FLOAT, [4])]), "--sample", sample(tmp_path)
    )
    file = folder / "pipeline.yaml"
    text = uncommented(file)
    assert text.count("\n  # key: FIELD ") == 1
    file.write_text(text.replace("# key: FIELD ", "key: customer.country "), encoding="utf-8")
    pipeline = load_pipeline(file, {})
    assert pipeline.labels is not None
    assert pipeline.rollout is not None
    assert (pipeline.labels.topic, pipeline.input.key) == ("orders-labels", "customer.country")


def test_one_tensor_gets_the_numeric_fields_and_the_guesses_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = model(tmp_path / "model.onnx", [("X", TensorProto.FLOAT, [4])])
    folder = tmp_path / "orders"
    pipeline, config = made(folder, "--model", file, "--sample", sample(tmp_path))
    assert pipeline["input"] == {
        "topics": ["orders-events"],
        "format": "json",
        "event_id": "order_id",
        "event_time": "created_at",
        "event_time_format": "iso8601",
    }
    assert config["outputs"] == [{"tensor": "y"}]
    [entry] = config["inputs"]
    assert entry["fields"] == [
        "customer.age",
        {"field": "customer.vip", "type": "boolean"},
        "basket.total",
        {"field": "discount", "missing": "nan"},
    ]
    said = capsys.readouterr().out
    assert "the order in which the model was trained" in said
    assert "5 of 20 events lack it" in said
    assert (folder / "models/orders/1/config.yaml").read_text().count("GUESS") == 2

    # Where the discount is missing, the model of this test answers NaN.
    assert cli.run(["predict", str(folder), str(folder / "events.jsonl"), "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert {line.get("reason") for line in lines} == {None, "nan_output"}
    assert [line["outputs"]["y"] for line in lines if line["event_id"] == "o-5"] == [25 + 1 + 14.25 + 0.5]


def test_inputs_are_filled_by_the_fields_of_their_names(tmp_path: Path) -> None:
    inputs = [
        ("total", TensorProto.FLOAT, [1]),
        ("country", TensorProto.STRING, [1]),
        ("embedding", TensorProto.FLOAT, [3]),
    ]
    file = model(tmp_path / "m.onnx", inputs)
    _, config = made(tmp_path / "named", "--model", file, "--sample", sample(tmp_path))
    total, country, embedding = config["inputs"]
    assert (total["fields"], country["fields"]) == (["basket.total"], ["customer.country"])
    assert (embedding["field"], embedding["shape"]) == ("embedding[]", [3])


def test_input_without_a_field_of_its_name_takes_no_field_of_another_inputs_name(tmp_path: Path) -> None:
    inputs = [("hour", TensorProto.FLOAT, [1]), ("age", TensorProto.FLOAT, [1]), ("total", TensorProto.FLOAT, [1])]
    _, config = made(tmp_path / "other", "--model", model(tmp_path / "m.onnx", inputs), "--sample", sample(tmp_path))
    hour, age, total = (entry["fields"] for entry in config["inputs"])
    assert (age, total) == (["customer.age"], ["basket.total"])
    assert hour not in (age, total)


def test_list_of_any_length_is_ragged(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", [("prices", TensorProto.FLOAT, ["items"])])
    _, config = made(tmp_path / "ragged", "--model", file, "--sample", sample(tmp_path))
    [entry] = config["inputs"]
    assert (entry["field"], entry["max_length"]) == ("basket.items[].price", 4)


@pytest.mark.parametrize("item", [{"price": None}, {"other": 1}], ids=["null", "absent"])
@pytest.mark.parametrize(
    ("dtype", "missing", "said"),
    [
        (TensorProto.FLOAT, "nan", "nan is right only for a model that takes missing values"),
        (TensorProto.INT64, 0, "`missing` gives the model 0 for these: write what the training had there"),
    ],
)
def test_list_with_items_that_lack_the_field_gets_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], item: dict[str, Any], dtype: int, missing: object, said: str
) -> None:
    events = [{"items": [{"price": number}] * 2 + [item] * (number % 4 == 0)} for number in range(12)]
    file = tmp_path / "items.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    inputs = [("price", dtype, ["n"])]
    _, config = made(tmp_path / "items", "--model", model(tmp_path / "m.onnx", inputs), "--sample", file)
    [entry] = config["inputs"]
    assert (entry["field"], entry["max_length"], entry["missing"]) == ("items[].price", 4, missing)
    assert f"3 of 12 events lack it in some items; {said}" in " ".join(capsys.readouterr().out.replace("#", "").split())
    refused = cli.run(["predict", str(tmp_path / "items"), str(file)])
    reasons = {*re.findall(r"no prediction \((\w+)\)", capsys.readouterr().out)}
    assert (refused, reasons) == ((1, {"nan_output"}) if missing == "nan" else (0, set())), (
        "the model computes with nan"
    )


def test_list_of_texts_with_nulls_says_how_many_events_have_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [{"tags": ["red", "blue", *[None] * (number % 4 == 0)]} for number in range(12)]
    file = tmp_path / "tags.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    inputs = [("ids", TensorProto.INT64, ["n"])]
    _, config = made(tmp_path / "tags", "--model", model(tmp_path / "m.onnx", inputs), "--sample", file)
    assert "missing" not in config["inputs"][0]
    said = " ".join(capsys.readouterr().out.replace("#", "").split())
    assert "3 of 12 events lack it in some items; `missing` can name the index for these" in said


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ([{}] * 3, "3 of 12 events lack it; nan is right only for"),
        (
            [{"heat": [1.5, None]}, {}, {}],
            "1 of 12 events lack it in some items, and 2 lack the whole list; nan is right only for",
        ),
    ],
)
def test_events_without_a_list_are_told_and_get_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], odd: list[dict[str, Any]], said: str
) -> None:
    events = [*({"heat": [0.5, 1.5]} for _ in range(9)), *odd]
    inputs = [("heat", TensorProto.FLOAT, [2])]
    sent = write_events(tmp_path, events)
    _, config = made(tmp_path / "heat", "--model", model(tmp_path / "m.onnx", inputs), "--sample", sent)
    assert (config["inputs"][0]["field"], config["inputs"][0]["missing"]) == ("heat[]", "nan")
    assert said in " ".join(capsys.readouterr().out.replace("#", "").split())


def test_empty_list_is_not_lacking_but_has_no_first_item(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [{"heat": [0.5] * (number % 4), "items": [{"x": 1.5}] * (number % 4)} for number in range(12)]
    inputs = [("heat", TensorProto.FLOAT, ["n"])]
    sent = write_events(tmp_path, events)
    _, config = made(tmp_path / "heat", "--model", model(tmp_path / "m.onnx", inputs), "--sample", sent)
    assert "missing" not in config["inputs"][0]
    said = capsys.readouterr().out
    assert (
        '- items[].x: a value of each item in a list; the first one\'s as a feature: {field: "items[0].x"}; 3 of 12'
        in said
    )
    assert "- items[]" not in said.replace("- items[].x", "")
    assert cli.run(["predict", str(tmp_path / "heat"), str(sent)]) == 0


def test_hints_for_an_open_input_have_missing_where_events_lack_the_field(tmp_path: Path) -> None:
    events = [{"at": "2026-11-01T10:00:00Z", "n": [1, 2]}] * 5 + [{"n": []}]
    config = unsure(tmp_path, [("w", TensorProto.FLOAT, [1])], events)
    assert "{field: at, time: iso8601, as: hour, missing: nan}" in config
    assert '{field: "n[0]", missing: nan}' in config


def test_list_of_texts_becomes_a_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [{"tags": [("red", "blue", "green")[place % 3] for place in range(number % 4)]} for number in range(12)]
    file = tmp_path / "tags.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    _, config = made(
        tmp_path / "tags", "--model", model(tmp_path / "m.onnx", [("ids", TensorProto.INT64, ["n"])]), "--sample", file
    )
    [entry] = config["inputs"]
    assert entry == {
        "tensor": "ids",
        "dtype": "int64",
        "max_length": 4,
        "field": "tags[]",
        "vocabulary": ["blue", "green", "red"],
    }
    assert "it must be the one of the training, in its order" in capsys.readouterr().out
    assert cli.run(["predict", str(tmp_path / "tags"), str(file)]) == 0


@pytest.mark.parametrize("names", [("tags", "tags_mask"), ("ids", "attention_mask")])
def test_input_that_is_called_a_mask_is_one(tmp_path: Path, names: tuple[str, str]) -> None:
    events = [{"tags": ["red", "blue"][: number % 3], "heat": [0.5, 1.5]} for number in range(12)]
    file = tmp_path / "tags.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    inputs = [(name, TensorProto.INT64, ["n"]) for name in names]
    _, config = made(tmp_path / "masked", "--model", model(tmp_path / "m.onnx", inputs), "--sample", file)
    tags, mask = config["inputs"]
    assert (tags["field"], tags["vocabulary"]) == ("tags[]", ["blue", "red"])
    assert mask == {"tensor": names[1], "dtype": "int64", "mask": True}
    assert cli.run(["predict", str(tmp_path / "masked"), str(file)]) == 0


def test_lists_of_other_lengths_do_not_fill_inputs_beside_each_other(tmp_path: Path) -> None:
    events = [{"steps": [1.5] * (1 + number % 5), "heat": [0.5] * (1 + number % 3)} for number in range(12)]
    config = unsure(tmp_path, [("steps", TensorProto.FLOAT, ["n"]), ("seen", TensorProto.FLOAT, ["n"])], events)
    assert 'field: "steps[]"' in config
    assert "heat" not in config
    assert "For the mask of another input, write `mask: true`" in config


def test_part_of_items_that_some_lack_is_told_with_the_option_that_it_needs(tmp_path: Path) -> None:
    events = [
        {"seen": [{"price": 1.5, "dwell_ms": 2.5} if item % 2 else {"price": 1.5} for item in range(number)]}
        for number in range(1, 8)
    ]
    config = unsure(tmp_path, [("price", TensorProto.FLOAT, ["n"]), ("dwell", TensorProto.FLOAT, ["n"])], events)
    assert "some items lack seen[].dwell_ms, which seems to be the one: write it with `missing`" in config


def test_inputs_that_are_called_tokens_get_a_tokenizer(tmp_path: Path) -> None:
    inputs = [(name, TensorProto.INT64, ["n"]) for name in ("input_ids", "attention_mask", "token_type_ids")]
    file = model(tmp_path / "m.onnx", inputs)
    prose = "a title of many words, which is no category"
    events = [{"id": f"e{n}", "kind": "ab"[n % 2], "title": f"{prose} {n}"} for n in range(12)]
    own = write_events(tmp_path, events)
    assert cli.run(["init", str(tmp_path / "one"), "--model", str(file), "--sample", str(own)]) == 0
    config = (tmp_path / "one/models/one/1/config.yaml").read_text()
    assert "put the model's tokenizer.json, of Hugging Face's `tokenizers`, beside the model" in config
    assert yaml.safe_load(config)["inputs"] == [
        {"tensor": "input_ids", "dtype": "int64", "max_length": 128, "field": "title", "tokenizer": "tokenizer.json"},
        {"tensor": "attention_mask", "dtype": "int64", "mask": True},
        {"tensor": "token_type_ids", "dtype": "int64", "token_types": True},
    ]
    own = write_events(tmp_path, [event | {"body": f"{prose} {n}, too"} for n, event in enumerate(events)])
    assert cli.run(["init", str(tmp_path / "two"), "--model", str(file), "--sample", str(own)]) == 0
    config = (tmp_path / "two/models/two/1/config.yaml").read_text()
    assert "These fields have texts: title, body" in config
    assert yaml.safe_load(config)["inputs"][0]["field"] == "TODO"
    del events[3]["title"]
    own = write_events(tmp_path, events)
    assert cli.run(["init", str(tmp_path / "lacking"), "--model", str(file), "--sample", str(own)]) == 0
    config = (tmp_path / "lacking/models/lacking/1/config.yaml").read_text()
    assert yaml.safe_load(config)["inputs"][0]["missing"] == ""


def test_lists_that_may_fill_an_input_are_named_with_the_option_that_they_need(tmp_path: Path) -> None:
    events = [{"tags": ["red", "blue"][: number % 3], "slots": [1, 2], "heat": [0.5, 1.5]} for number in range(12)]
    config = unsure(tmp_path, [("ids", TensorProto.INT64, ["n"])], events)
    assert "write one of tags[] with a `vocabulary`, slots[]" in config
    assert "heat" not in config


def test_input_with_several_values_per_item_says_what_to_do(tmp_path: Path) -> None:
    events = [{"win": [{"a": 1.5, "b": 2.5}] * (1 + number % 3)} for number in range(6)]
    config = unsure(tmp_path, [("win", TensorProto.FLOAT, ["n", 2])], events)
    assert (
        "GUESS: A model that takes several values per item needs one input for each, which it stacks itself" in config
    )
    assert 'field: "win[].a"' not in config


def test_long_vocabulary_of_a_list_gets_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tags.jsonl"
    file.write_text("".join(f"{json.dumps({'tags': [f'x{number}', f'x{19 - number}']})}\n" for number in range(20)))
    _, config = made(
        tmp_path / "long", "--model", model(tmp_path / "m.onnx", [("tags", TensorProto.INT64, ["n"])]), "--sample", file
    )
    assert config["inputs"][0]["vocabulary"] == "tags__.txt"
    assert len((tmp_path / "long" / "models" / "long" / "1" / "tags__.txt").read_text().splitlines()) == 20


def test_list_of_varying_length_is_padded_for_an_input_of_fixed_length(tmp_path: Path) -> None:
    events = [{"unit": 7, "readings": [0.5] * (1 + number % 5)} for number in range(12)]
    file = tmp_path / "readings.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    inputs = [("readings", TensorProto.FLOAT, [32])]
    _, config = made(tmp_path / "fixed", "--model", model(tmp_path / "m.onnx", inputs), "--sample", file)
    [entry] = config["inputs"]
    assert (entry["field"], entry["shape"], entry["pad"]) == ("readings[]", [32], 0)
    assert cli.run(["predict", str(tmp_path / "fixed"), str(file)]) == 0


def test_list_in_an_array_fills_the_input_with_the_arrays_name(tmp_path: Path) -> None:
    inputs = [("numbers", TensorProto.FLOAT, [3]), ("legs", TensorProto.FLOAT, [3])]
    events = [
        {
            "id": f"a{n}",
            "km": n + 0.5,
            "age": n % 9 + 0.25,
            "fare": 2.5 * n,
            "legs": [{"v": n + k / 4} for k in range(3)],
        }
        for n in range(30)
    ]
    _, config = made(
        tmp_path / "rides", "--model", model(tmp_path / "m.onnx", inputs), "--sample", write_events(tmp_path, events)
    )
    numbers, legs = config["inputs"]
    assert legs["field"] == "legs[].v"
    assert sorted(numbers["fields"]) == ["age", "fare", "km"]


def test_numbered_inputs_are_the_items_of_the_list_with_their_name(tmp_path: Path) -> None:
    events = [{"id": f"c{number}", "usageGb": [1.5, None if number == 3 else 2.5, 0.5]} for number in range(12)]
    inputs = [(f"usage_{number}", TensorProto.FLOAT, [1]) for number in (1, 2, 3)]
    sample = write_events(tmp_path, events)
    _, config = made(tmp_path / "items", "--model", model(tmp_path / "m.onnx", inputs), "--sample", sample)
    fields = [entry["fields"][0] for entry in config["inputs"]]
    assert fields == [{"field": f"usageGb[{item}]", "missing": "nan"} for item in range(3)]
    assert cli.run(["predict", str(tmp_path / "items"), str(sample)]) == 0


def test_list_of_other_length_than_the_numbered_inputs_is_not_taken(tmp_path: Path) -> None:
    events = [{"id": f"c{number}", "usageGb": [1.5] * 5, "other": 1.5} for number in range(12)]
    config = unsure(tmp_path, [(f"usage_{number}", TensorProto.FLOAT, [1]) for number in range(3)], events)
    assert config.count("TODO") == 3


def test_what_fits_several_inputs_is_said_once(tmp_path: Path) -> None:
    events = [{"id": f"c{number}", "width": number, "height": 1.5 * number} for number in range(12)]
    config = unsure(tmp_path, [(name, TensorProto.FLOAT, [1]) for name in ("alpha", "beta", "gamma")], events)
    assert config.count("TODO") == 3
    assert config.count("These fit: width, height") == 1
    assert config.count("name the field that fills this input: those that are named at input alpha fit here, too") == 2


def test_short_list_with_another_name_fills_no_input_for_which_more_fields_fit(tmp_path: Path) -> None:
    events = [
        {"id": f"c{number}", "a": number, "b": 1.5 * number, "c": number % 5, "scores": [0.5] * (number % 3)}
        for number in range(12)
    ]
    config = unsure(tmp_path, [("features", TensorProto.FLOAT, [4])], events)
    assert "scores[]" not in config
    assert config.count("TODO") == 1


def test_id_that_few_events_lack_is_taken_before_that_of_a_part(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"eventId": f"e{number}", "customer": {"id": f"c{number}"}, "a": number, "plan": {"code": number}}
        for number in range(20)
    ]
    del events[7]["eventId"]
    file = model(tmp_path / "m.onnx", [("a", TensorProto.FLOAT, [1])])
    pipeline, _ = made(tmp_path / "ids", "--model", file, "--sample", write_events(tmp_path, events))
    assert pipeline["input"]["event_id"] == "eventId"
    text = (tmp_path / "ids/pipeline.yaml").read_text()
    assert "GUESS: all differ; 1 of 20 events lack it: these become dead letters (`unfit`)" in text


def test_other_ids_that_differ_in_each_event_are_named(tmp_path: Path) -> None:
    events = [{"customer_id": f"c{n}", "a": n, "order": {"id": f"o{n}"}} for n in range(12)]
    file = model(tmp_path / "m.onnx", [("a", TensorProto.FLOAT, [1])])
    made(tmp_path / "ids", "--model", file, "--sample", write_events(tmp_path, events))
    text = (tmp_path / "ids/pipeline.yaml").read_text()
    assert "all differ; other IDs do, too: order.id. Take the one that names the event" in text


def test_object_that_is_null_in_some_events_is_an_object(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [{"id": f"c{number}", "plan": {"code": 1.5 * number}} for number in range(12)]
    events[3]["plan"] = None
    config = unsure(tmp_path, [("plan", TensorProto.FLOAT, [1]), ("other", TensorProto.FLOAT, [1])], events)
    assert "no event has a value there" not in config
    assert "plan.code" in config


def test_whole_number_beyond_64_bits_is_a_number(tmp_path: Path) -> None:
    events = [{"id": f"c{number}", "tickets": 2**63 if number == 3 else number} for number in range(12)]
    file = model(tmp_path / "m.onnx", [("tickets", TensorProto.FLOAT, [1])])
    sample = write_events(tmp_path, events)
    _, config = made(tmp_path / "large", "--model", file, "--sample", sample)
    assert config["inputs"][0]["fields"] == ["tickets"]
    assert "odd" not in (tmp_path / "large/models/large/1/config.yaml").read_text()
    assert cli.run(["predict", str(tmp_path / "large"), str(sample)]) == 0


def test_name_that_several_fields_have_is_left_open(tmp_path: Path) -> None:
    events = [{"id": f"c{number}", "doctor": {"age": 40 + number}, "patient": {"age": number}} for number in range(12)]
    config = unsure(tmp_path, [("age", TensorProto.FLOAT, [1])], events)
    assert "several fields have the input's name: write the one of the training, of doctor.age, patient.age" in config


def test_name_that_several_lists_have_is_left_open(tmp_path: Path) -> None:
    events = [{"id": f"c{n}", "query": {"embedding": [0.5] * 4}, "item": {"embedding": [n] * 4}} for n in range(12)]
    config = unsure(tmp_path, [("embedding", TensorProto.FLOAT, [4])], events)
    assert "several lists have the input's name: write one of query.embedding[], item.embedding[]" in config


def test_field_that_more_events_have_is_a_guess_beside_another_of_its_name(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", [("amount", TensorProto.FLOAT, [1])])
    sample = write_events(tmp_path, change_events())
    made(tmp_path / "changes", "--model", file, "--sample", sample)
    text = (tmp_path / "changes/models/changes/1/config.yaml").read_text()
    assert "GUESS: most events have this field; these have the input's name, too: before.amount" in text


def test_text_that_never_changes_fills_no_input(tmp_path: Path) -> None:
    events = [{"specversion": "1.0", "id": f"c{number}", "a": number, "b": 1.5 * number} for number in range(12)]
    config = unsure(tmp_path, [("features", TensorProto.FLOAT, [3])], events)
    assert config.count("TODO") == 1
    assert "{field: specversion, type: text}" in config


def test_fields_that_fill_an_input_are_preferred_to_a_short_list(tmp_path: Path) -> None:
    events = [{"a": 1.5, "b": number, "last": [0.5] * (number % 3)} for number in range(12)]
    file = tmp_path / "both.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    inputs = [("features", TensorProto.FLOAT, [2])]
    _, config = made(tmp_path / "both", "--model", model(tmp_path / "m.onnx", inputs), "--sample", file)
    assert config["inputs"][0]["fields"] == ["a", "b"]


def test_wide_input_that_no_field_fills_is_one_line_to_complete(tmp_path: Path) -> None:
    config = unsure(tmp_path, [("features", TensorProto.FLOAT, [32])], [{"a": 1.5, "b": number} for number in range(4)])
    assert config.count("TODO") == 1
    assert "the input has 32 elements, and the sample has 2 fields that fit: name a list of the event" in config
    assert "Lists of other lengths" not in config


def test_wide_input_names_lists_of_other_lengths_with_the_options_that_make_them_fit(tmp_path: Path) -> None:
    events = [{"clicks": [{"dwell": 1.5, "depth": 2}] * (10 + number), "a": 1.5} for number in range(4)]
    config = unsure(tmp_path, [("features", TensorProto.FLOAT, [12])], events)
    assert "Lists of other lengths, with `pad: 0` and `truncate: true`: clicks[].dwell, clicks[].depth. If" in config


def test_texts_become_a_vocabulary(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", [("country", TensorProto.INT64, [1])])
    _, config = made(tmp_path / "words", "--model", file, "--sample", sample(tmp_path))
    [field] = config["inputs"][0]["fields"]
    assert field == {"field": "customer.country", "vocabulary": ["DE", "FR"]}
    assert cli.run(["predict", str(tmp_path / "words"), str(tmp_path / "words" / "events.jsonl")]) == 0


def test_odd_names_and_values_are_written_so_that_they_are_read_again(tmp_path: Path) -> None:
    events = [
        {"a.b": 1.5, 'say "x"': 2, "zip": "007", "tags": [], "on": "2026-13-01T00:00:00Z", "c": f"{number}", "d": "yes"}
        for number in range(3)
    ]
    events[0]["d"] = ""
    file = tmp_path / "odd.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    inputs = [("n", TensorProto.FLOAT, [2]), ("d", TensorProto.INT64, [1]), ("zip", TensorProto.STRING, [1])]
    pipeline, config = made(tmp_path / "2024", "--model", model(tmp_path / "m.onnx", inputs), "--sample", file)
    assert (pipeline["name"], pipeline["model"]["name"]) == ("2024", "2024")
    assert "event_time" not in pipeline["input"]
    x, d, zipped = (entry["fields"] for entry in config["inputs"])
    assert x == ['["a.b"]', {"field": "c", "type": "text"}]
    assert d == [{"field": "d", "vocabulary": ["", "yes"]}]
    assert zipped == ["zip"]


def test_emoji_in_texts_and_names_are_written_so_that_they_are_read_again(tmp_path: Path) -> None:
    texts = ["\U0001f642", "\u00e9", "\U0001d518nicode", "\u202eleft", "a\u2028b"]
    events = [{"id": f"e{at}", "mood \U0001f600": texts[at % 5], "\U0001f321": float(at)} for at in range(20)]
    given = model(tmp_path / "model.onnx", [("mood", TensorProto.INT64, [1]), ("heat", TensorProto.FLOAT, [1])])
    _, config = made(tmp_path / "moods", "--model", given, "--sample", write_events(tmp_path, events))
    (mood,), (heat,) = (entry["fields"] for entry in config["inputs"])
    assert mood == {"field": "mood \U0001f600", "vocabulary": sorted(texts)}
    assert heat == "\U0001f321"


def test_long_vocabularies_get_files_with_names_of_their_own(tmp_path: Path) -> None:
    numbers = [*range(20), *range(20)]  # each text stands twice, so these seem to be all that there are
    events = [{"a": {"b": f"x{number}"}, "a_b": f"y{number}", "c": f"z\n{number}"} for number in numbers]
    file = tmp_path / "long.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    inputs = [(name, TensorProto.INT64, [1]) for name in ("b", "a_b", "c")]
    _, config = made(tmp_path / "long", "--model", model(tmp_path / "m.onnx", inputs), "--sample", file)
    nested, flat, broken = (entry["fields"][0]["vocabulary"] for entry in config["inputs"])
    assert (nested, flat) == ("a_b.txt", "a_b_1.txt")
    assert len(broken) == 20
    version = tmp_path / "long" / "models" / "long" / "1"
    assert [(version / name).read_text().splitlines()[0] for name in (nested, flat)] == ["x0", "y0"]


def test_vocabulary_that_lies_beside_the_model_is_kept(tmp_path: Path) -> None:
    events = write_events(tmp_path, [{"hotel": f"h{number % 20}"} for number in range(40)])
    (beside := tmp_path / "trained").mkdir()
    config = "inputs:\n  - {tensor: hotel, dtype: int64, fields: [{field: hotel, vocabulary: hotel.txt, unknown: 0}]}\n"
    (beside / "config.yaml").write_text(f"{config}outputs: [{{tensor: y}}]\n")
    (beside / "hotel.txt").write_text("other\nh3\n")
    file = model(beside / "model.onnx", [("hotel", TensorProto.INT64, [1])])
    made(tmp_path / "hotels", "--model", file, "--sample", events)
    version = tmp_path / "hotels/models/hotels/1"
    assert sorted(path.name for path in version.iterdir()) == ["config.yaml", "hotel.txt", "model.onnx"]
    assert (version / "hotel.txt").read_text() == "other\nh3\n"


def test_sample_comes_from_a_topic(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka.bootstrap)
    topic = f"{tmp_path.name}-orders"
    if kafka.durable:
        create_topic(kafka.bootstrap, topic, 1, {})
    else:
        ensure_topic(kafka.bootstrap, topic)
    # As Confluent's JSON Schema serializer writes them.
    events = [b"\0\0\0\0\x07" + json.dumps(event).encode() for event in EVENTS]
    produce(
        kafka.bootstrap,
        topic,
        [(None, value) for value in (b"cut, off", b'{"cut": ', "café".encode("latin1"), *events)],
        partition=0,  # the embedded broker's topics have several, and the first record that is read is told
    )
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [2])])
    pipeline, _ = made(tmp_path / "topic", "--model", file, "--sample-topic", topic)
    assert pipeline["input"]["topics"] == [topic]
    said = capsys.readouterr().out
    assert "offset 0: expected a JSON object, found text that is not JSON: Expecting value at column 1.\n" in said
    assert (
        "3 records of the sample are no events, and were skipped. A worker makes dead letters of such records. The "
        in said
    )
    assert "input.topics" not in said
    assert "GUESS: a sample" not in (tmp_path / "topic" / "pipeline.yaml").read_text("utf-8")
    assert "guessed from 20 events" in said
    assert "millstream produce" not in said  # it would write the sample into the topic once more
    assert "millstream produce" not in (tmp_path / "topic" / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "1 record was read, without a value (a tombstone). Use `--sample FILE`.\n"),
        (50, "50 records were read, all without a value (tombstones). Use `--sample FILE`.\n"),
    ],
)
def test_sample_of_tombstones_is_told_as_that(
    kafka: Broker,
    make_topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    count: int,
    said: str,
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka.bootstrap)
    topic = make_topic()
    produce(kafka.bootstrap, topic, [(None, None)] * count)
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [2])])
    assert cli.run(["init", str(tmp_path / "new"), "--model", str(file), "--sample-topic", topic]) == 1
    assert capsys.readouterr().err == f"topic {topic}: {said}"


@pytest.mark.parametrize("events", [3, 2], ids=["half are events", "most are none"])
def test_records_of_a_topic_that_are_avro_are_counted_and_refused_if_most_are(
    kafka: Broker,
    make_topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    events: int,
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", kafka.bootstrap)
    topic = make_topic()
    avro = [b"\0\0\0\0\x07\x02a\x06", b"\0\0\0\0\x07\x02b\x08", b"cut"]
    produce(
        kafka.bootstrap, topic, [(None, value) for value in (*avro, *[b'{"age": 1, "km": 2}'] * events)], partition=0
    )
    file, folder = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [2])]), tmp_path / "new"
    code = cli.run(["init", str(folder), "--model", str(file), "--sample-topic", topic])
    told, found = (
        capsys.readouterr(),
        "3 records of the sample are no events (2 look like a registry's Avro: the first byte is 0)",
    )
    if events == 3:
        assert (code, told.err) == (0, "")
        assert f"{found}, and were skipped. A worker makes dead letters of such records." in told.out
    else:
        assert (code, told.out, folder.exists()) == (1, "", False)
        assert told.err.startswith(
            f"topic {topic}: expected events as JSON, but {found}. A pipeline for the other 2 records"
        )


def test_broker_of_a_sample_that_does_not_answer_is_told_with_the_variable_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def away(client: Mapping[str, str], *_: object, **__: object) -> None:
        raise BrokerUnreachableError(
            f"no broker answers at {client['bootstrap.servers']}.", "Correct the pipeline file."
        )

    monkeypatch.setattr("millstream.consumers.cli.sample.RecordReader", away)
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [2])])
    assert cli.run(["init", str(tmp_path / "new"), "--model", str(file), "--sample-topic", "orders"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "--sample-topic orders: no broker answers at 127.0.0.1:9092. Set the environment variable KAFKA_BOOTSTRAP"
    )
    assert "pipeline file" not in said


def test_empty_address_of_the_broker_counts_as_unset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_topic(client: Mapping[str, str], *_: object, **__: object) -> None:
        raise TopicError(client["bootstrap.servers"])

    monkeypatch.setattr("millstream.consumers.cli.sample.RecordReader", no_topic)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "")
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [2])])
    assert cli.run(["init", str(tmp_path / "new"), "--model", str(file), "--sample-topic", "orders"]) == 1
    assert "there is no such topic on 127.0.0.1:9092" in capsys.readouterr().err


def zipped(name: str, content: str = "") -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr(name, content)
    return archive.getvalue()


BATCH, LENGTH = ({"as_expr": {"expr_str": f"Symbol('{name}', positive=True, integer=True)"}} for name in ("s0", "s1"))
EXPORTED = {
    "graph_module": {
        "graph": {
            "tensor_values": {
                "numbers": {"dtype": 7, "sizes": [BATCH, {"as_int": 2}]},
                "embedding": {"dtype": 8, "sizes": [BATCH, LENGTH]},
                "mask": {"dtype": 12, "sizes": [BATCH, LENGTH]},
            }
        },
        "signature": {
            "input_specs": [
                {"parameter": {"arg": {"name": "p_weight"}, "parameter_name": "weight"}},
                *({"user_input": {"arg": {"as_tensor": {"name": name}}}} for name in ("numbers", "embedding", "mask")),
            ]
        },
        "module_call_graph": [
            {"signature": {"out_spec": json.dumps([1, {"type": "builtins.dict", "context": '["churn", "spend"]'}])}}
        ],
    },
    "range_constraints": {"s0": {"min_val": 1, "max_val": 4096}, "s1": {"min_val": 1, "max_val": 64}},
}
"""The parts of the description that torch.export writes of a program, of which `init` reads names, types and sizes."""


def guessed_config(folder: Path, name: str, description: str) -> dict[str, Any]:
    """The config.yaml for an exported program whose archive has this description."""
    file = folder / "model.pt2"
    file.write_bytes(zipped(name, description))
    assert cli.run(["init", str(folder / "new"), "--model", str(file), "--sample", str(sample(folder))]) == 0
    config: dict[str, Any] = yaml.safe_load((folder / "new/models/new/1/config.yaml").read_text())
    return config


@pytest.mark.parametrize("name", ["m/models/model.json", "serialized_exported_program.json"])
def test_exported_program_states_its_inputs_and_their_bounds_without_being_loaded(tmp_path: Path, name: str) -> None:
    config = guessed_config(tmp_path, name, json.dumps(EXPORTED))
    numbers, embedding, mask = config["inputs"]
    assert (numbers["tensor"], numbers["dtype"], len(numbers["fields"])) == ("numbers", "float32", 2)
    assert embedding == {"tensor": "embedding", "dtype": "float64", "max_length": 64, "field": "embedding[]"}
    assert mask == {"tensor": "mask", "dtype": "bool", "mask": True}
    assert config["outputs"] == [{"tensor": "churn"}, {"tensor": "spend"}]


@pytest.mark.skipif(torch is None, reason="torch is not installed: .venv/bin/pip install -e '.[torch]'")
def test_pipeline_for_an_exported_program_runs_once_its_author_is_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Sums(torch.nn.Module):  # type: ignore[misc]
        def forward(self, numbers: Any, embedding: Any) -> Any:
            return {"y": numbers.sum(1) + embedding.sum(1)}

    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=1, max=8)
    program = torch.export.export(
        Sums(),
        (torch.zeros(2, 2), torch.zeros(2, 4, dtype=torch.float64)),
        dynamic_shapes={"numbers": {0: batch}, "embedding": {0: batch, 1: length}},
    )
    torch.export.save(program, tmp_path / "model.pt2")
    folder = tmp_path / "new"
    arguments = ["--model", str(tmp_path / "model.pt2"), "--sample", str(sample(tmp_path))]
    assert cli.run(["init", str(folder), *arguments]) == 0
    assert "if you trust the author, write `trust: true` under `model:`" in capsys.readouterr().out
    file = folder / "pipeline.yaml"
    file.write_text(file.read_text().replace("\nmodel:\n", "\nmodel:\n  trust: true\n"))
    assert cli.run(["check", str(folder), "--offline"]) == 0
    assert "up to 8 items" in capsys.readouterr().out


def test_exported_program_with_an_input_of_scalars_is_refused_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = json.loads(json.dumps(EXPORTED))
    program["graph_module"]["graph"]["tensor_values"]["numbers"]["sizes"] = [BATCH]
    file = tmp_path / "model.pt2"
    file.write_bytes(zipped("m/models/model.json", json.dumps(program)))
    assert cli.run(["init", str(tmp_path / "new"), "--model", str(file), "--sample", str(sample(tmp_path))]) == 1
    said = capsys.readouterr().err
    assert (
        "input numbers has only the axis of the events. Export the model with an axis behind that of the events" in said
    )


def test_axis_without_a_bound_gets_a_length_from_the_sample(tmp_path: Path) -> None:
    free = EXPORTED | {"range_constraints": {"s1": {"min_val": 0, "max_val": None}}}
    named = json.dumps(free).replace('"mask"', '"weights"')
    _, embedding, weights = guessed_config(tmp_path, "m/models/model.json", named)["inputs"]
    assert (embedding["max_length"], weights["max_length"]) == (4, 4), "they share one"


@pytest.mark.parametrize("description", ["", "{}", json.dumps({"graph_module": {"signature": 7}})])
def test_exported_program_in_another_form_leaves_the_names_open(tmp_path: Path, description: str) -> None:
    config = guessed_config(tmp_path, "m/models/model.json", description)
    assert [entry["tensor"] for entry in config["inputs"] + config["outputs"]] == ["TODO", "TODO"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("fast.pt2", zipped("fast/data/aotinductor/model/a.wrapper.so"), "`runtime: {aoti_package: fast.pt2}`"),
        ("model.pkl", b"\x80\x04", "Convert it to ONNX where you trained it"),
        ("model.ubj", b"{L", "this looks like a model of XGBoost"),
        ("model.onnx", b"<html>", "can't be loaded: this is a web page"),
        ("model.onnx", b"\x1f\x8b\x08\x00", "can't be loaded: this is compressed with gzip. Unpack it with gunzip."),
        ("model.onnx", b"PK\3\4", "If the archive holds an ONNX model, unpack it."),
        ("model.onnx", splitting_texts(locale="xx_XX.UTF-8"), "by the locale xx_XX.UTF-8, which this machine lacks"),
        ("model.pt2", zipped("archive/data.pkl"), "this looks like a checkpoint: the weights of a torch model"),
        ("model.pt", zipped("archive/data.pkl"), "this looks like a checkpoint: the weights of a torch model"),
        ("model.pt2", zipped("model/constants.pkl"), "it is TorchScript. Name it model.pt"),
        ("model.mar", b"", "found a file that ends in .mar"),
        ("model.h5", b"", "this looks like a model of Keras. Convert it to ONNX with the package tf2onnx"),
        ("model.pth", b"PK", "weights of a torch model, which don't say how to run it"),
    ],
)
def test_file_that_no_executor_runs_says_what_to_do(
    tmp_path: Path, name: str, content: bytes, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    assert (
        cli.run(["init", str(tmp_path / "new"), "--model", str(tmp_path / name), "--sample", str(sample(tmp_path))])
        == 1
    )
    said = capsys.readouterr().err
    assert expected in said
    assert said.startswith(str(tmp_path / name))
    assert not (tmp_path / "new").exists()


def test_folder_of_a_model_that_no_executor_runs_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").touch()
    arguments = ["--model", str(tmp_path / "saved"), "--sample", str(sample(tmp_path))]
    assert cli.run(["init", str(tmp_path / "new"), *arguments]) == 1
    assert capsys.readouterr().err.startswith(f"{tmp_path / 'saved'}: this is a SavedModel of TensorFlow. Convert it")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"a": NaN}', "found NaN, Infinity or a number"),
        ('{"a": 1e999}', "too large for a double"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", "expected a JSON object, found [1]"),
        ('[{"a": 1}, {"a": 2}]', "found a list of objects. Write them as lines: jq -c '.[]' FILE"),
        ('[{"a": 1},\n{"a": 2}\n]', "found a list of objects. Write them as lines: jq -c '.[]' FILE"),
        ('{"a": 1}\r{"a": 2}\r', "found lines that end with a bare carriage return. Convert the file: tr"),
    ],
)
def test_sample_that_no_worker_could_read_is_refused(
    tmp_path: Path, line: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.jsonl").write_text(f"{line}\n")
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [1])])
    assert cli.run(["init", str(tmp_path / "new"), "--model", str(file), "--sample", str(tmp_path / "bad.jsonl")]) == 1
    said = capsys.readouterr().err
    assert "bad.jsonl:1: " in said
    assert expected in said
    assert not (tmp_path / "new").exists()


def test_values_that_no_column_can_hold_are_no_features(tmp_path: Path) -> None:
    events = [{"half": "\ud800", "long": 10**400, "${HOME}_id": f"{number}", "ok": number} for number in range(2)]
    (tmp_path / "odd.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [1])])
    folder = tmp_path / "événements"
    assert cli.run(["init", str(folder), "--model", str(file), "--sample", str(tmp_path / "odd.jsonl")]) == 0
    assert cli.run(["check", str(folder), "--offline"]) == 0
    [config] = folder.glob("models/*/1/config.yaml")
    assert yaml.safe_load(config.read_text())["inputs"][0]["fields"] == ["ok"]
    assert yaml.safe_load((folder / "pipeline.yaml").read_text())["input"]["event_id"] == "$${HOME}_id"


def test_model_without_a_sample_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["init", str(tmp_path / "new"), "--model", "model.onnx"]) == 1
    assert "`--model` needs `--sample FILE`" in capsys.readouterr().err


def write_events(folder: Path, events: Sequence[object]) -> Path:
    file = folder / "own.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return file


def test_code_is_not_loaded_and_its_placeholders_are_problems_until_they_are_filled_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.py"
    file.write_text(
        "class Model:\n  def __init__(self, *_): ...\n  def predict(self, inputs): return {'s': inputs['f'][:, 0]}\n"
    )
    folder = tmp_path / "code"
    assert cli.run(["init", str(folder), "--model", str(file), "--sample", str(sample(tmp_path))]) == 0
    said = capsys.readouterr().out
    assert "was not read, because loading such a file runs its code" in said
    assert "replace each TODO" in said
    config = folder / "models/code/1/config.yaml"
    assert cli.run(["check", str(folder), "--offline"]) == 1
    problems = capsys.readouterr().err
    lines = config.read_text().splitlines()
    at = [number for number, line in enumerate(lines, 1) if "TODO" in line]
    assert len(at) == 2
    assert all(f"{config}:{number}: " in problems for number in at)
    tensors = iter(("f", "s"))
    config.write_text("\n".join(line.replace("TODO", next(tensors)) if "TODO" in line else line for line in lines))
    assert cli.run(["check", str(folder), "--offline"]) == 0


@pytest.mark.parametrize("whole_folder", [True, False])
def test_package_beside_model_py_that_is_left_behind_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], whole_folder: bool
) -> None:
    source = tmp_path / "src"
    (source / "own").mkdir(parents=True)
    (source / "own" / "__init__.py").touch()
    for name in ("scaling.py", "unrelated.py"):
        (source / name).touch()
    (source / "model.py").write_text("import numpy, json\nfrom own.order import score\nfrom .scaling import x\n")
    model_path = source if whole_folder else source / "model.py"
    folder = tmp_path / "left"
    assert cli.run(["init", str(folder), "--model", str(model_path), "--sample", str(sample(tmp_path))]) == 0
    said = capsys.readouterr().out
    left = f"{source / 'own'}, {source / 'scaling.py'}"
    assert f"model.py imports these, which lie beside it and were not copied: {left}\nCopy them into {folder}" in said
    assert "with a dot, such as `from . import own`; or install them" in said


def test_file_that_model_py_names_and_that_is_left_behind_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bundle.joblib", "other.joblib"):
        (tmp_path / name).touch()
    (tmp_path / "model.py").write_text('import joblib\nbundle = joblib.load(folder / "bundle.joblib")\n')
    arguments = ["--model", str(tmp_path / "model.py"), "--sample", str(sample(tmp_path))]
    assert cli.run(["init", str(tmp_path / "new"), *arguments]) == 0
    said = capsys.readouterr().out
    left = tmp_path / "bundle.joblib"
    assert f"model.py names these files, which lie beside it and were not copied: {left}\nIf it loads them" in said
    assert "model.py imports these" not in said


def test_model_py_without_own_imports_tells_of_nothing_left_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "json.txt").touch()
    (tmp_path / "model.py").write_text("import json\n")
    arguments = ["--model", str(tmp_path / "model.py"), "--sample", str(sample(tmp_path))]
    assert cli.run(["init", str(tmp_path / "new"), *arguments]) == 0
    assert "were not copied" not in capsys.readouterr().out


def test_field_named_todo_is_a_problem_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [3])])
    folder = tmp_path / "few"
    own = write_events(tmp_path, [{"a": 1}, {"a": 2}])
    assert cli.run(["init", str(folder), "--model", str(file), "--sample", str(own)]) == 0
    assert cli.run(["check", str(folder), "--offline"]) == 1
    config = folder / "models/few/1/config.yaml"
    line = next(number for number, text in enumerate(config.read_text().splitlines(), 1) if "TODO" in text)
    said = capsys.readouterr().err
    assert (
        f"{config}:{line}: inputs[0].fields[1]: expected the path of an event's field, found the placeholder TODO"
        in said
    )


def test_most_values_decide_the_type_and_the_others_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [1])])
    own = write_events(tmp_path, [{"age": "old" if number == 3 else number} for number in range(10)])
    _, config = made(tmp_path / "odd", "--model", file, "--sample", own)
    assert config["inputs"][0]["fields"] == ["age"]
    assert "1 of 10 values are text, the others int: these events become dead letters" in capsys.readouterr().out


def test_most_texts_decide_whether_a_field_has_times_or_numbers_and_the_others_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = [("age", TensorProto.FLOAT, [1]), ("due_on", TensorProto.FLOAT, [1])]
    file = model(tmp_path / "m.onnx", inputs)
    dates = ["soon", *(f"2026-03-0{number}T00:00:00Z" for number in range(1, 10))]
    events = [
        {"age": "old" if number == 3 else str(number), "due_on": date, "created_at": date}
        for number, date in enumerate(dates)
    ]
    pipeline, config = made(tmp_path / "most", "--model", file, "--sample", write_events(tmp_path, events))
    assert (pipeline["input"]["event_time"], pipeline["input"]["event_time_format"]) == ("created_at", "iso8601")
    age, due = (entry["fields"] for entry in config["inputs"])
    assert age == [{"field": "age", "type": "text"}]
    assert due == [{"field": "due_on", "time": "iso8601", "as": "hour"}]
    said = capsys.readouterr().out
    assert "1 of 10 texts are no numbers, such as 'old': these events become dead letters (`unfit`)" in said
    assert (
        said.count(
            "1 of 10 texts are no times in ISO 8601 with separators, such as 'soon': these events become dead letters"
        )
        == 2
    )
    # Exactly these two events become dead letters.
    assert cli.run(["predict", str(tmp_path / "most"), str(tmp_path / "most" / "events.jsonl"), "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line.get("reason") for line in lines] == ["unfit", None, None, "unfit", *[None] * 6]


def test_inputs_that_are_called_as_parts_of_a_time_get_them_of_the_events_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("amount", "hour", "day_of_week", "other")
    file = model(tmp_path / "m.onnx", [(name, TensorProto.FLOAT, [1]) for name in names])
    events = [
        {
            "meta": {"schema_version": 3, "emitted_at": f"2026-03-{number:02d}T07:30:00+01:00"},
            "seen_at": f"2026-02-{number:02d}T01:00:00Z",
            "amount": number,
            "rest": number,
        }
        for number in range(1, 8)
    ]
    folder = tmp_path / "parts"
    pipeline, config = made(folder, "--model", file, "--sample", write_events(tmp_path, events))
    time = pipeline["input"]["event_time"]
    amount, hour, weekday, other = (entry["fields"] for entry in config["inputs"])
    assert hour == [{"field": time, "time": "iso8601", "as": "hour"}]
    assert weekday == [{"field": time, "time": "iso8601", "as": "weekday"}]
    assert (amount, other) == (["amount"], ["rest"])  # not the version, which never changes
    assert "input hour, field seen_at: the input is called as a part of a time" in capsys.readouterr().out
    assert cli.run(["predict", str(folder), str(folder / "events.jsonl"), "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert [first["features"][name][time] for name in ("hour", "day_of_week")] == [1, 6]  # a Sunday


def test_hour_is_that_of_a_time_and_not_of_an_id_that_looks_like_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = model(tmp_path / "m.onnx", [("hour", TensorProto.FLOAT, [1])])
    events = [
        {
            "order_id": 1_234_567_890 + number,
            "created_at": f"2026-03-{number:02d}T07:30:00Z" if number > 2 else "soon",
        }
        for number in range(1, 28)
    ]
    pipeline, config = made(tmp_path / "ids", "--model", file, "--sample", write_events(tmp_path, events))
    assert pipeline["input"]["event_id"] == "order_id"
    assert config["inputs"][0]["fields"] == [{"field": "created_at", "time": "iso8601", "as": "hour"}]
    said = capsys.readouterr().out
    assert "its hour is that of UTC; 2 of 27 texts are no times in ISO 8601 with separators, such as 'soon'" in said


def test_texts_of_which_half_are_numbers_are_categories(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", [("size", TensorProto.INT64, [1])])
    own = write_events(tmp_path, [{"size": size} for size in ("36", "38", "M", "L")])
    _, config = made(tmp_path / "half", "--model", file, "--sample", own)
    assert config["inputs"][0]["fields"] == [{"field": "size", "vocabulary": ["36", "38", "L", "M"]}]


def test_texts_for_a_tensor_of_texts_are_all_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = model(tmp_path / "m.onnx", [("day", TensorProto.STRING, [1])])
    own = write_events(tmp_path, [{"day": "2026-03-01"}, {"day": "2026-03-02"}, {"day": "soon"}])
    made(tmp_path / "texts", "--model", file, "--sample", own)
    assert "dead letters" not in capsys.readouterr().out


@pytest.mark.parametrize("value", [b"cut, off", b'{"cut": ', "café".encode("latin1")])
def test_advice_on_a_record_does_not_take_it_for_a_line_of_a_file(value: bytes) -> None:
    said = json_row(value.decode(errors="surrogateescape"), in_file=False)
    assert isinstance(said, str)
    assert said.startswith("expected ")
    assert not any(word in said for word in ("Correct the line", "file"))


def test_input_topic_is_a_guess_where_the_sample_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = model(tmp_path / "m.onnx", [("age", TensorProto.FLOAT, [1])])
    made(tmp_path / "parcels", "--model", file, "--sample", write_events(tmp_path, [{"age": 1}, {"age": 2}]))
    why = "a sample in a file doesn't say which topic the events are in"
    assert f"- input.topics: parcels-events: {why}\n" in capsys.readouterr().out
    assert f'  topics: ["parcels-events"]   # GUESS: {why}\n' in (tmp_path / "parcels/pipeline.yaml").read_text()


def test_junk_is_skipped_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [1])])
    own = write_events(tmp_path, [{"age": 1}, [1], {"age": 2}, "junk"])
    made(tmp_path / "junk", "--model", file, "--sample", own)
    said = capsys.readouterr().out
    assert "guessed from 2 events" in said
    assert (
        f"2 records of the sample are no events, and were skipped. The first: {own}:2: expected a JSON object" in said
    )


def test_unused_fields_are_listed_with_hints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = model(tmp_path / "m.onnx", [("age", TensorProto.FLOAT, [1])])
    own = write_events(
        tmp_path,
        [
            {
                "age": 1,
                "seen": 1_772_000_000_000 + n,
                "items": [{"price": 1, "dims": [n, 2]}],
                "rpm": f"{n}.5",
                **({"celsius": 20} if n else {}),
                "grid": [[1, n], [3, 4]],
            }
            for n in range(3)
        ],
    )
    made(tmp_path / "left", "--model", file, "--sample", own)
    said = capsys.readouterr().out
    assert "- seen: its values look like times; as a feature: {field: seen, time: milliseconds, as: hour}" in said
    first = '{field: "items[0].price"}'
    assert f"- items[].price: a value of each item in a list; the first one's as a feature: {first}" in said
    assert """first one's as a feature: {field: "items[0].dims[0]"}\n""" in said
    assert (
        """- grid[][]: a value of each item in a list; the first one's as a feature: {field: "grid[0][0]"}\n""" in said
    )
    assert """- rpm: text with numbers; as a feature: {field: "rpm", type: text}\n""" in said
    fits = 'a number, which fits as it is: {field: "celsius"}'
    assert f"- celsius: {fits}; 1 of 3 events lack it, so a feature needs `missing:`\n" in said


def test_every_unused_field_has_an_entry_or_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        {"age": n, "locker": {"id": n}, "open": n > 1, "code": [1, "a", True][n], "large": 10**400, "z": n}
        for n in range(3)
    ]
    unsure(tmp_path, [("X", TensorProto.FLOAT, [1])], [*events, events[0]])
    lines = capsys.readouterr().out.splitlines()
    listed = lines[lines.index("These fields of the events fill no input:") + 1 :]
    assert {*listed[: listed.index("")]} >= {
        "- locker.id: a number that is called like an ID, which is hardly a feature. If the model knows it: "
        '{field: "locker.id"}',
        '- open: true or false, which a tensor of bools takes as it is; as a number: {field: "open", type: boolean}',
        "- large: no tensor takes its values: numbers beyond a double, or texts that are not Unicode",
        '- z: a number, which fits as it is: {field: "z"}',
    }
    assert all(":" in line for line in listed[: listed.index("")])


def test_first_item_of_a_list_is_named_for_an_input_with_a_word_of_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = [(name, TensorProto.FLOAT, [1]) for name in ("first_temp", "lastTemp")]
    events = [
        {
            "stay": n,
            "size": n % 2,
            "scans": [{"temp_c": n, "site": n}] if n else [],
            "at": f"2026-03-0{n + 1}T00:00:00Z",
        }
        for n in range(3)
    ]
    unsure(tmp_path, inputs, events)
    said = capsys.readouterr().out
    first, last = (line for line in said.splitlines() if ", field TODO" in line)
    assert first.startswith("- input first_temp")
    assert 'These fit: {field: "scans[0].temp_c", missing: nan}, stay, size. With options, these fit, too: ' in first
    assert first.count("temp_c") == 1
    assert last.endswith(
        "input lastTemp, field TODO: name the field that fills this input: those that are named at input first_temp fit here, too"
    )


def test_texts_that_are_no_feature_are_listed_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = model(tmp_path / "m.onnx", [("age", TensorProto.FLOAT, [1])])
    events = [
        {"age": n % 9, "hotel": f"hotel {n * 7 % 15}", "source": "web", "note": "words " * 10 + str(n)}
        for n in range(20)
    ]
    made(tmp_path / "left", "--model", file, "--sample", write_events(tmp_path, events))
    listed = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith(("- hotel", "- source", "- note"))
    ]
    assert listed == [
        "- hotel: 15 different texts in 20 values, too many to guess a vocabulary from. If the model knows them as categories, "
        'list all of them in a file beside it: {field: "hotel", vocabulary: hotel.txt}',
        "- source: the sample has only one text there. If there are others, take more events with `--limit`",
        "- note: long texts; a model of texts gets them as tokens: `millstream docs models#texts-as-tokens`",
    ]


def test_list_or_object_that_some_events_have_as_null_is_no_unused_field_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = model(tmp_path / "m.onnx", [("age", TensorProto.FLOAT, [1])])
    events = [
        {"age": 1, "basket": {"items": [{"price": 1}]}},
        {"age": 2, "basket": {"items": None}},
        {"age": 3, "basket": None, "note": None},
    ]
    made(tmp_path / "nulls", "--model", file, "--sample", write_events(tmp_path, events))
    lines = capsys.readouterr().out.splitlines()
    listed = lines[lines.index("These fields of the events fill no input:") + 1 :]
    assert {line.split(":")[0] for line in listed[: listed.index("")]} == {"- basket.items[].price", "- note"}
    assert "- note: no event has a value there" in listed


def test_null_between_lists_is_no_field_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = model(tmp_path / "m.onnx", [("age", TensorProto.FLOAT, [1])])
    events = [{"age": number, "marks": [[1, 2], None, [3]]} for number in range(3)]
    made(tmp_path / "nulls", "--model", file, "--sample", write_events(tmp_path, events))
    lines = capsys.readouterr().out.splitlines()
    listed = lines[lines.index("These fields of the events fill no input:") + 1 :]
    assert {line.split(":")[0] for line in listed[: listed.index("")]} == {"- marks[][]"}


def test_counts_are_those_of_the_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = model(tmp_path / "m.onnx", [("list", TensorProto.FLOAT, ["n"])])
    own = write_events(tmp_path, [{"id": f"e{number}", "list": [1.5]} for number in range(4)])
    for limit, told, why in (
        (1, "the first 1 event (`--limit` takes more)", "it is in the only event"),
        (3, "the first 3 events (`--limit` takes more)", "all 3 events have it, and all differ"),
        (5, "4 events", "all 4 events have it, and all differ"),
    ):
        folder = tmp_path / f"limit{limit}"
        made(folder, "--model", file, "--sample", own, "--limit", limit)
        said = capsys.readouterr().out
        assert f"guessed from {told}.\n" in said
        assert f"- input.event_id: id: {why}\n" in said
        assert "the longest list of the sample has 1 item\n" in said
        assert f"from {told}. Lines with GUESS" in (folder / "README.md").read_text()


def test_list_of_numbers_as_texts_is_cast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "class Model:\n  def __init__(self, *_): ...\n  def predict(self, inputs): return {'s': inputs['f'].sum(axis=1)}\n"
    (tmp_path / "model.py").write_text(code)
    own = write_events(tmp_path, [{"items": [{"price": "1.50"}, {"price": f"{number}"}]} for number in range(4)])
    folder = tmp_path / "prices"
    assert cli.run(["init", str(folder), "--model", str(tmp_path / "model.py"), "--sample", str(own)]) == 0
    config = folder / "models/prices/1/config.yaml"
    tensors = iter(("f", "s"))
    lines = config.read_text().splitlines()
    config.write_text("\n".join(line.replace("TODO", next(tensors)) if "TODO" in line else line for line in lines))
    assert yaml.safe_load(config.read_text())["inputs"][0]["type"] == "text"
    capsys.readouterr()
    assert cli.run(["predict", str(folder), str(own), "--json"]) == 0
    outputs = [json.loads(line)["outputs"]["s"] for line in capsys.readouterr().out.splitlines()]
    assert outputs == [1.5, 2.5, 3.5, 4.5]


def test_fields_that_options_make_fit_are_named_once_where_the_others_ran_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [4])])
    own = write_events(
        tmp_path,
        [{"at": f"2026-03-0{number}T00:00:00Z", "age": number, "items": [{"price": "2.5"}]} for number in range(1, 4)],
    )
    assert cli.run(["init", str(tmp_path / "few"), "--model", str(file), "--sample", str(own)]) == 0
    said = capsys.readouterr().out
    hint = '{field: at, time: iso8601, as: hour}, {field: "items[0].price", type: text}'
    assert said.count("the sample has too few fields that fit as they are: 3 are left to fill in") == 1
    assert f"With options, these fit, too: {hint}" in said
    assert "- at: its values look like times" in said
    assert (tmp_path / "few/models/few/1/config.yaml").read_text().count("TODO") == 3


@pytest.mark.parametrize(
    ("times", "form"),
    [(["2026-03-01T09:30:00Z"] * 3 + [1772357400], "text"), ([1772357400] * 3 + ["2026-03-01T09:30:00Z"], "int")],
)
def test_event_times_of_two_forms_are_told_with_what_helps(tmp_path: Path, times: Sequence[object], form: str) -> None:
    file = model(tmp_path / "m.onnx", [("price", TensorProto.FLOAT, [1])])
    events = [{"event_id": f"e{number}", "created_at": time, "price": 1.5} for number, time in enumerate(times)]
    folder = tmp_path / "orders"
    own = write_events(tmp_path, events)
    assert cli.run(["init", str(folder), "--model", str(file), "--sample", str(own)]) == 0
    [line] = [line for line in (folder / "pipeline.yaml").read_text().splitlines() if "event_time: created_at" in line]
    assert f"1 of 4 values are {'number' if form == 'text' else 'text'}, the others {form}" in line
    assert "a time has one form in all events, and no option takes both: let the producer send one form" in line
    assert "type: any" not in line
    assert "vocabulary" not in line


def test_hour_of_times_of_two_forms_is_told_with_what_helps(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", [("opened", TensorProto.FLOAT, [1])])
    times = ["2026-03-01T09:30:00Z", "2026-03-02T09:30:00Z", 1772357400]
    own = write_events(tmp_path, [{"created_at": times[0], "opened": time} for time in times])
    assert cli.run(["init", str(tmp_path / "orders"), "--model", str(file), "--sample", str(own)]) == 0
    config = (tmp_path / "orders/models/orders/1/config.yaml").read_text()
    assert "a time has one form in all events, and no option takes both" in config
    assert "type: any" not in config


def test_event_ids_that_no_option_takes_are_told(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", [("price", TensorProto.FLOAT, [1])])
    folder = tmp_path / "orders"
    own = write_events(tmp_path, [{"event_id": one, "price": 1.5} for one in ("a", "b", "c", 7, 1.5)])
    assert cli.run(["init", str(folder), "--model", str(file), "--sample", str(own)]) == 0
    [line] = [line for line in (folder / "pipeline.yaml").read_text().splitlines() if "event_id: event_id" in line]
    assert "1 of 5 values are neither texts nor whole numbers" in line
    assert "type: any" not in line


def test_fields_that_may_identify_an_event_are_named_though_their_names_do_not_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No times, no numbers with a fraction, no long texts; texts come first, and what YAML could misread is quoted."""
    file = model(tmp_path / "m.onnx", [("price", TensorProto.FLOAT, [1])])
    events = [
        {
            "order_id": "the same",
            "cents": number,
            "parcel": f"P{number}",
            "${HOME}\u2028x": f"{number}-a",
            "n": f"n{number}",
            "paid_at": 1772357400000 + number,
            "left": f"2026-03-01T09:30:{number:02}Z",
            "price": number + 0.5,
            "note": f"{number} " + "very long " * 10,
        }
        for number in range(20)
    ]
    folder = tmp_path / "parcels"
    pipeline, _ = made(folder, "--model", file, "--sample", write_events(tmp_path, events))
    assert "event_id" not in pipeline["input"]
    why = (
        "no field with a name like id or order_id has a different text or whole number in each of the 20 events. Fields "
        'with other names that do: parcel, "${HOME}\\u2028x", "n" and 1 more. If one of them identifies an event, write it as '
        "event_id"
    )
    assert f"- input.event_id: none taken: {why}\n" in capsys.readouterr().out
    assert f"  # event_id: FIELD   # {why}. Without it, the ID is <topic>" in (folder / "pipeline.yaml").read_text()


@pytest.mark.parametrize(
    ("count", "why"),
    [
        (1, "the only event has no text or whole number with a name like id or order_id"),
        (2, "no field with a name like id or order_id has a different text or whole number in each of the 2 events"),
    ],
)
def test_no_field_that_could_identify_an_event_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int, why: str
) -> None:
    file = model(tmp_path / "m.onnx", [("price", TensorProto.FLOAT, [1])])
    own = write_events(tmp_path, [{"shop": "north", "price": 1.5} for _ in range(count)])
    made(tmp_path / "orders", "--model", file, "--sample", own)
    assert f"- input.event_id: none taken: {why}\n" in capsys.readouterr().out


def test_ids_of_a_large_sample_are_taken_though_not_all_are_compared(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", [("price", TensorProto.FLOAT, [1])])
    own = write_events(tmp_path, [{"id": f"e{number}", "price": 1.5} for number in range(1500)])
    folder = tmp_path / "orders"
    pipeline, _ = made(folder, "--model", file, "--sample", own, "--limit", 1500)
    assert pipeline["input"]["event_id"] == "id"
    assert (
        "all 1,500 events have it, and the 1,000 values that were compared differ"
        in (folder / "pipeline.yaml").read_text()
    )


def test_field_that_most_events_lack_is_no_guess(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", [("price_0", TensorProto.FLOAT, [1])])
    events = [{"name": "x", **({"years": 3} if number < 2 else {})} for number in range(14)]
    folder = tmp_path / "seldom"
    own = write_events(tmp_path, events)
    assert cli.run(["init", str(folder), "--model", str(file), "--sample", str(own)]) == 0
    config = (folder / "models/seldom/1/config.yaml").read_text()
    assert "- TODO   # GUESS: no field of the sample fits as it is: name the one that fills this input" in config
    assert "years" not in config


def test_input_without_a_field_that_fits_must_be_filled_in_before_a_worker_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = model(tmp_path / "m.onnx", [("w0", TensorProto.FLOAT, [1])])
    own = write_events(tmp_path, [{"parcels": [{"kg": 1.5 + number, "dims": [4, number]}]} for number in range(3)])
    folder = tmp_path / "ship"
    assert cli.run(["init", str(folder), "--model", str(file), "--sample", str(own)]) == 0
    hint = """these fit, too: {field: "parcels[0].kg"}, {field: "parcels[0].dims[0]"}"""
    assert hint in capsys.readouterr().out
    assert cli.run(["check", str(folder), "--offline"]) == 1
    said = capsys.readouterr().err
    assert (
        "config.yaml:6: inputs[0].fields[0]: expected the path of an event's field, found the placeholder TODO" in said
    )
    config = folder / "models/ship/1/config.yaml"
    config.write_text(config.read_text().replace("TODO", """'parcels[0].dims[1]'"""))
    assert cli.run(["predict", str(folder), str(own), "--json"]) == 0
    outputs = [json.loads(line)["outputs"]["y"] for line in capsys.readouterr().out.splitlines()]
    assert outputs == [0, 1, 2]


def test_path_that_no_event_has_is_warned_of_with_the_nearest_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "typo"
    made(folder, "--model", model(tmp_path / "m.onnx", [("age", TensorProto.FLOAT, [1])]), "--sample", sample(tmp_path))
    config = folder / "models/typo/1/config.yaml"
    config.write_text(config.read_text().replace("customer.age", "customer.agee"))
    assert cli.run(["predict", str(folder), str(folder / "events.jsonl")]) == 1
    said = capsys.readouterr()
    assert (
        "warning: field customer.agee was missing or null in 20 of 20 events. Did you mean `customer.age`?" in said.err
    )
    assert f"{folder / 'events.jsonl'}:2  event o-1\n" in said.out


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("parcels[1].kg", " Their lists are shorter, or have no value there."),
        ("parcels[-2].dims[0]", " Their lists are shorter, or have no value there."),
        ("parcels[0].kgg", " Did you mean `parcels[0].kg`?"),
        ("parcels[0].dmis[1]", " Did you mean `parcels[0].dims[1]`?"),
        ("parcels.kg", " Did you mean `parcels[0].kg`?"),
        ("parcels[0].weight", ""),  # a sibling that has nothing else in common is no typo
        ("note", ""),  # it is there, but null
        ("tags[0]", " Their lists are empty."),
    ],
)
def test_path_that_is_right_but_finds_nothing_is_not_corrected(
    path: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "ship"
    events = [
        {"id": f"e{n}", "n": n, "note": None, "tags": [], "tag_ids": [n], "parcels": [{"kg": n, "dims": [n, n + 2]}]}
        for n in range(3)
    ]
    own = write_events(tmp_path, events)
    made(folder, "--model", model(tmp_path / "m.onnx", [("n", TensorProto.FLOAT, [1])]), "--sample", own)
    config = folder / "models/ship/1/config.yaml"
    config.write_text(config.read_text().replace('- "n"', f'- "{path}"'))
    cli.run(["predict", str(folder), str(own)])
    warning = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: field"))
    assert warning == f"warning: field {path} was missing or null in 3 of 3 events.{advice}"


def test_only_field_with_times_as_text_is_the_events_time_whatever_its_name(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [1])])
    events = [{"id": f"e{number}", "amount": number, "at": f"2026-11-0{number + 1}T10:00:00Z"} for number in range(5)]
    pipeline, _ = made(tmp_path / "at", "--model", file, "--sample", write_events(tmp_path, events))
    assert (pipeline["input"]["event_time"], pipeline["input"]["event_time_format"]) == ("at", "iso8601")


def test_other_fields_with_times_are_named_beside_the_one_that_is_taken(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [1])])
    at = "2026-11-01T10:00:00Z"
    events = [{"id": f"e{number}", "n": number, "geschehen": at, "user": {"created_at": at}} for number in range(5)]
    folder = tmp_path / "rivals"
    made(folder, "--model", file, "--sample", write_events(tmp_path, events))
    [line] = [
        line for line in (folder / "pipeline.yaml").read_text().splitlines() if "event_time: user.created_at" in line
    ]
    assert "other fields have times, too: geschehen. Take the one that says when the event happened" in line


def test_of_several_fields_with_times_as_text_none_is_guessed(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [1])])
    at = "2026-11-01T10:00:00Z"
    events = [{"id": f"e{number}", "amount": number, "begun": at, "ended": at} for number in range(5)]
    pipeline, _ = made(tmp_path / "two", "--model", file, "--sample", write_events(tmp_path, events))
    assert "event_time" not in pipeline["input"]


def test_next_step_is_to_fill_in_what_could_not_be_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = model(tmp_path / "m.onnx", [("n", TensorProto.FLOAT, [1]), ("weight", TensorProto.FLOAT, [1])])
    own = write_events(tmp_path, [{"id": "a", "n": 1}, {"id": "b", "n": 2}])
    assert cli.run(["init", str(tmp_path / "open"), "--model", str(file), "--sample", str(own)]) == 0
    assert "\nNext: replace each TODO in models/open/1/config.yaml, then\n\ncd " in capsys.readouterr().out
    events = [{"id": "a", "n": 1, "weight": 1.5}, {"id": "b", "n": 2, "weight": 2.5}]
    made(tmp_path / "whole", "--model", file, "--sample", write_events(tmp_path, events))
    assert "\nNext:\n\ncd " in capsys.readouterr().out


def test_category_with_the_placeholders_name_is_nothing_to_replace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [{"state": ("TODO", "DONE")[number % 2]} for number in range(6)]
    file = model(tmp_path / "m.onnx", [("state", TensorProto.FLOAT, [1])])
    made(tmp_path / "states", "--model", file, "--sample", write_events(tmp_path, events))
    assert "\nNext:\n\ncd " in capsys.readouterr().out


def unsure(folder: Path, inputs: Sequence[tuple[str, int, Sequence[int | str]]], events: Sequence[object]) -> str:
    """The config.yaml of a pipeline in which something is left to fill in."""
    file = model(folder / "m.onnx", inputs)
    assert (
        cli.run(["init", str(folder / "new"), "--model", str(file), "--sample", str(write_events(folder, events))]) == 0
    )
    assert cli.run(["check", str(folder / "new"), "--offline"]) == 1
    return (folder / "new/models/new/1/config.yaml").read_text()


ZIP_CODES = ("10115", "80331", "01067", "50667")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            gzip.compress(b'{"a": 1}\n'),
            "expected events as UTF-8 text, found a file that is compressed with gzip. Unpack",
        ),
        (
            '{"a": 1}\n'.encode("utf-16"),
            "expected events as UTF-8 text, found UTF-16. Convert it: iconv -f UTF-16 -t UTF-8",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\n",
            "found a pointer of Git LFS, not the file itself. Get the file",
        ),
        (
            b"id,amount\n1,2.5\n",
            ":1: expected a JSON object, found what looks like CSV. If it is, name the file so that",
        ),
        (b'\xef\xbb\xbf\xef\xbb\xbf{"a": 1}\n', ":1: expected a JSON object, found a UTF-8 byte-order mark before it"),
    ],
    ids=["gzip", "UTF-16", "pointer", "CSV", "byte-order mark"],
)
def test_file_of_another_form_is_told_as_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(content)
    given = model(tmp_path / "m.onnx", [("a", TensorProto.FLOAT, [1])])
    assert cli.run(["init", str(tmp_path / "new"), "--model", str(given), "--sample", str(file)]) == 1
    assert said in capsys.readouterr().err


def test_texts_that_look_like_versions_are_doubted_as_numbers(tmp_path: Path) -> None:
    events = [{"firmware": text, "price": f"{number}.50"} for number, text in enumerate(["1.2", "1.10", "2.0"])]
    file = model(tmp_path / "m.onnx", [("firmware", TensorProto.FLOAT, [1]), ("price", TensorProto.FLOAT, [1])])
    made(tmp_path / "new", "--model", file, "--sample", write_events(tmp_path, events))
    config = (tmp_path / "new/models/new/1/config.yaml").read_text()
    assert "GUESS: its texts are read as numbers, such as '1.10' as 1.1; for versions, write {field: " in config
    assert "- {field: price, type: text}\n" in config


@pytest.mark.parametrize("first", [0, 3])  # with a code that begins with 0 and without one
def test_zip_codes_are_no_numbers_unless_the_user_says_so(tmp_path: Path, first: int) -> None:
    events = [
        {"zip": code, "price": f"{number}.50"} for number, code in enumerate([*ZIP_CODES[first:], "20095", "60311"])
    ]
    config = unsure(tmp_path, [("zip", TensorProto.FLOAT, [1]), ("price", TensorProto.FLOAT, [1])], events)
    assert "- TODO   # GUESS: zip has digits that look like a code, such as" in config
    assert 'write {field: "zip", vocabulary: zip.txt} with the entries of the training, in its order; or ' in config
    assert 'or {field: "zip", type: text} if the model was trained on the number' in config
    assert "- {field: price, type: text}\n" in config


def test_zip_codes_fill_no_input_of_another_name(tmp_path: Path) -> None:
    events = [{"zip": code, "weight": number} for number, code in enumerate(ZIP_CODES)]
    config = unsure(tmp_path, [(name, TensorProto.FLOAT, [1]) for name in ("weight", "length")], events)
    assert "no field of the sample fits as it is: name the one that fills this input" in config
    assert 'these fit, too: {field: "zip", vocabulary: zip.txt}' in config


def test_inputs_that_several_fields_could_fill_are_left_to_the_user(tmp_path: Path) -> None:
    events = [{"a": number, "b": f"{number}.5", "city_name": f"c{number}"} for number in range(4)]
    config = unsure(tmp_path, [("w", TensorProto.FLOAT, [1])], events)
    assert (
        "- TODO   # GUESS: no field of the sample has the input's name: name the one that fills this input. " in config
    )
    assert "These fit: a, {field: b, type: text}. With options" in config


def test_item_of_a_list_is_a_hint_for_an_input_of_one_element_and_that_of_its_name_comes_first(tmp_path: Path) -> None:
    events = [{"grid": [[1]], "dims_cm": [number, 20, 30], "scans": [{"x": number}]} for number in range(4)]
    names = ("dims_cm_0", "scans_x")
    config = unsure(tmp_path, [(name, TensorProto.FLOAT, [1]) for name in names], events)
    assert config.count('These fit: "dims_cm[0]". With options, these fit, too: ') == 1
    assert config.count('These fit: "scans[0].x". With options, these fit, too: ') == 1


def test_text_is_a_hint_for_a_number_with_its_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [{"carrier": ("ups", "dhl", "")[number % 3], "weight": number} for number in range(6)]
    config = unsure(tmp_path, [("X", TensorProto.FLOAT, [2])], events)
    feature = '{field: "carrier", vocabulary: ["", "dhl", "ups"]}'
    assert f"these fit, too: {feature}. A vocabulary must be the one of the training, in its order\n" in config
    assert f"- carrier: text; as a feature: {feature}\n" in capsys.readouterr().out


@pytest.mark.parametrize(("dtype", "missing"), [(TensorProto.FLOAT, "nan"), (TensorProto.INT64, "INDEX")])
def test_hint_of_a_vocabulary_says_what_stands_for_missing_values(tmp_path: Path, dtype: int, missing: str) -> None:
    events = [{"weight": number, **({"carrier": ("ups", "dhl")[number % 2]} if number else {})} for number in range(6)]
    config = unsure(tmp_path, [("X", dtype, [2])], events)
    assert f'these fit, too: {{field: "carrier", vocabulary: ["dhl", "ups"], missing: {missing}}}. ' in config


def test_hints_say_how_many_more_fields_fit(tmp_path: Path) -> None:
    events = [
        {f"n{at}": number for at in range(7)} | {f"t{at}": ("ups", "dhl")[number % 2] for at in range(6)}
        for number in range(4)
    ]
    config = unsure(tmp_path, [("weight", TensorProto.FLOAT, [1])], events)
    assert "These fit: n0, n1, n2, n3, n4 and 2 more. With options, these fit, too: " in config
    assert '{field: "t4", vocabulary: ["dhl", "ups"]} and 1 more. A vocabulary must be' in config


def test_vocabulary_that_the_sample_does_not_show_is_left_to_the_user(tmp_path: Path) -> None:
    events = [{"street": f"street {number}"} for number in range(20)]
    config = unsure(tmp_path, [("street", TensorProto.INT64, [1])], events)
    said = 'street has 20 different texts in 20 events, so the sample doesn\'t show the vocabulary: write {field: "street", '
    assert f"- TODO   # GUESS: {said}vocabulary: street.txt}}" in config


def test_value_in_place_of_a_missing_one_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [{"service": "std" if number else None, "count": number or None} for number in range(4)]
    inputs = [("service", TensorProto.STRING, [1]), ("count", TensorProto.INT64, [1])]
    _, config = made(
        tmp_path / "gaps", "--model", model(tmp_path / "m.onnx", inputs), "--sample", write_events(tmp_path, events)
    )
    assert [entry["fields"][0]["missing"] for entry in config["inputs"]] == ["", 0]
    said = capsys.readouterr().out
    for given in ("an empty text", "0"):
        assert (
            f"1 of 4 events lack it; `missing` gives the model {given} for these: write what the training had there"
            in said
        )


def test_field_that_is_null_in_all_events_is_left_to_the_user(tmp_path: Path) -> None:
    config = unsure(tmp_path, [("note", TensorProto.STRING, [1])], [{"note": None, "n": number} for number in range(3)])
    assert "note has the input's name, but no event has a value there: write {field: " in config


def test_numbers_for_a_tensor_of_texts_become_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = write_events(tmp_path, [{"store": number, "open": bool(number)} for number in range(3)])
    inputs = [(name, TensorProto.STRING, [1]) for name in ("store", "open")]
    made(tmp_path / "texts", "--model", model(tmp_path / "m.onnx", inputs), "--sample", own)
    capsys.readouterr()
    assert cli.run(["predict", str(tmp_path / "texts"), str(own), "--json"]) == 0  # this model sums no texts
    features = json.loads(capsys.readouterr().out.splitlines()[1])["features"]
    assert features == {"store": {"store": "1"}, "open": {"open": "true"}}


def test_list_is_taken_if_its_name_is_like_the_inputs_else_left_to_the_user(tmp_path: Path) -> None:
    events = [{"sizes": [number], "weights": [1.5]} for number in range(4)]
    config = unsure(tmp_path, [("weight", TensorProto.FLOAT, ["n"]), ("w", TensorProto.FLOAT, [1])], events)
    assert 'field: "weights[]"' in config
    other = tmp_path / "other"
    other.mkdir()
    config = unsure(other, [("w", TensorProto.FLOAT, ["n"])], events)
    assert "several lists fit, and none has the input's name: write one of sizes[], weights[]" in config
    assert "    field: TODO\n" in config


def change_events() -> list[dict[str, object]]:
    """As Debezium writes them: `before` is null in half of them, `after` in one of ten."""
    rows = [{"amount": number, "created_at": f"2026-02-01T10:00:{number:02d}Z"} for number in range(20)]
    return [
        {
            "op": "c" if number % 2 else "u",
            "before": None if number % 2 else row,
            "after": row if number % 10 else None,
            "source": {"ts_ms": 1769940000000 + number},
            "ts_ms": 1769940001000 + number,
        }
        for number, row in enumerate(rows)
    ]


def test_field_that_more_events_have_is_taken(tmp_path: Path) -> None:
    file = model(tmp_path / "m.onnx", [("amount", TensorProto.FLOAT, [1])])
    pipeline, config = made(tmp_path / "changes", "--model", file, "--sample", write_events(tmp_path, change_events()))
    assert config["inputs"][0]["fields"][0]["field"] == "after.amount"
    assert pipeline["input"]["event_time"] == "ts_ms"
    assert "event_time_format" not in pipeline["input"], "milliseconds are the default"


@pytest.mark.parametrize("enveloped", [False, True])
def test_deletions_of_rows_are_no_missing_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, enveloped: bool
) -> None:
    rows = [{"id": number, "amount": number / 2, "rebate": number / 4 if number % 2 else None} for number in range(20)]
    changes: list[dict[str, object]] = [{"op": "c", "before": None, "after": row} for row in rows]
    changes += [{"op": "d", "before": row, "after": None} for row in rows[:5]]
    events: list[dict[str, object]] = [{"payload": change} for change in changes] if enveloped else changes
    file = model(tmp_path / "m.onnx", [("amount", TensorProto.FLOAT, [1]), ("rebate", TensorProto.FLOAT, [1])])
    _, config = made(tmp_path / "changes", "--model", file, "--sample", write_events(tmp_path, events))
    row = "payload.after" if enveloped else "after"
    amount, rebate = (entry["fields"][0] for entry in config["inputs"])
    assert amount == f"{row}.amount"
    assert (rebate["field"], str(rebate["missing"])) == (f"{row}.rebate", "nan")
    assert "5 of these events are deletions (`op` is `d`)" in capsys.readouterr().out


def test_fractions_fill_no_tensor_of_ints(tmp_path: Path) -> None:
    events = [{"humidity": f"{number}.5", "load": number + 0.5} for number in range(4)]
    config = unsure(tmp_path, [("seq", TensorProto.INT64, [1])], events)
    assert "no field of the sample fits as it is" in config


def test_booleans_are_left_to_the_tensor_that_takes_nothing_else(tmp_path: Path) -> None:
    events = [{"a": number, "online": number % 2 == 0, "b": number / 2, "on": number > 1} for number in range(4)]
    inputs = [("num", TensorProto.FLOAT, [2]), ("flags", TensorProto.BOOL, [2])]
    _, config = made(
        tmp_path / "flags", "--model", model(tmp_path / "m.onnx", inputs), "--sample", write_events(tmp_path, events)
    )
    found = {entry["tensor"]: [field["field"] if isinstance(field, dict) else field for field in entry["fields"]]
             for entry in config["inputs"]}  # fmt: skip
    assert found == {"num": ["a", "b"], "flags": ["online", "on"]}


def test_keys_of_a_map_that_few_events_have_come_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = [{"attrs": {f"exp{number}": number}, "x": number, "version": 1, "y": number / 2} for number in range(30)]
    file = model(tmp_path / "m.onnx", [("X", TensorProto.FLOAT, [2])])
    _, config = made(tmp_path / "maps", "--model", file, "--sample", write_events(tmp_path, events))
    assert config["inputs"][0]["fields"] == ["x", "y"]
    text = (tmp_path / "maps/models/maps/1/config.yaml").read_text()
    assert "these fields fit, too: version, " in text
    assert " and 21 more" in text
    lines = capsys.readouterr().out.splitlines()
    listed = lines[lines.index("These fields of the events fill no input:") + 1 :]
    assert listed[0].startswith("- version")


def test_values_that_a_vocabulary_does_not_take_are_told_with_what_takes_them(tmp_path: Path) -> None:
    values = ["yes", "no", "yes", "no", "yes", True, 1, 0.5]
    events = [{"new": value} for value in values]
    folder = tmp_path / "mixed"
    file = model(tmp_path / "m.onnx", [("new", TensorProto.INT64, [1])])
    made(folder, "--model", file, "--sample", write_events(tmp_path, events))
    config = (folder / "models/mixed/1/config.yaml").read_text()
    assert '1 of 8 values are whole numbers: the vocabulary needs their texts, such as "7"' in config
    assert (
        "2 of 8 values are neither texts nor whole numbers: these events become dead letters (`undecodable`), unless "
        in config
    )


def test_times_under_other_names_and_numbers_like_ids_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [
        {
            "account": 2**53 + number,
            "began": f"2026-02-0{number}T10:00:00Z",
            "left": 1769940000 + number,
            "ended": "2026-03-01",
        }
        for number in range(1, 5)
    ]
    file = model(tmp_path / "m.onnx", [("account", TensorProto.FLOAT, [1])])
    made(tmp_path / "times", "--model", file, "--sample", write_events(tmp_path, events))
    said = capsys.readouterr().out
    assert "Values of other fields do: began, left, ended. If one of them says when an event happened, write it" in said
    assert "account: float32 doesn't hold all of its whole numbers exactly, so it may be an ID" in said


def test_time_in_camel_case_is_the_events_time(tmp_path: Path) -> None:
    events = [
        {"total": number, "orderedAt": f"2026-02-0{number}T10:00:00Z", "due": "2026-03-01T10:00:00Z"}
        for number in (1, 2, 3)
    ]
    file = model(tmp_path / "m.onnx", [("total", TensorProto.FLOAT, [1])])
    pipeline, _ = made(tmp_path / "camel", "--model", file, "--sample", write_events(tmp_path, events))
    assert pipeline["input"]["event_time"] == "orderedAt"


def test_items_of_other_types_than_most_are_told(tmp_path: Path) -> None:
    events = [{"id": f"e{number}", "price": ["1.5", "2.5", number + 0.5]} for number in range(6)]
    folder = tmp_path / "mixed"
    file = model(tmp_path / "m.onnx", [("price", TensorProto.FLOAT, [3])])
    assert cli.run(["init", str(folder), "--model", str(file), "--sample", str(write_events(tmp_path, events))]) == 0
    config = (folder / "models/mixed/1/config.yaml").read_text()
    assert "6 of 18 values are number, the others text: `type: any` takes all of them" in config
    assert cli.run(["predict", str(folder), str(folder / "events.jsonl")]) == 0


@pytest.mark.parametrize(
    ("content", "call"),
    [
        ("id;amount\n1;2,5\n", "read_csv(FILE, sep=';', decimal=',').to_json("),
        ("\ufeffid;amount\n1;2,5\n", "read_csv(FILE, sep=';', decimal=',').to_json("),
        ("id,amount\n1,2.5\n", "read_csv(FILE).to_json("),
        ('id,"a;b"\n1,2.5\n', "read_csv(FILE).to_json("),
    ],
)
def test_csv_in_place_of_json_is_told_with_the_options_that_read_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, call: str
) -> None:
    file = model(tmp_path / "m.onnx", [("amount", TensorProto.FLOAT, [1])])
    (tmp_path / "events.csv").write_text(content)
    assert cli.run(["init", str(tmp_path / "new"), "--model", str(file), "--sample", str(tmp_path / "events.csv")]) == 1
    assert call in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dtype", "values", "types"),
    [
        ("FLOAT", [1.5, 2, "3.5", 4, "5"], "2 of 5 values are text, the others number"),
        ("FLOAT", ["1.5", "2.5", 3, 4.5, "5"], "2 of 5 values are number, the others text"),
        ("FLOAT", [True, False, True, 0, "1"], "2 of 5 values are number or text, the others bool"),
        ("FLOAT", [1, 2, "3", "4"], "its values are of several types, and none is that of most"),
        ("INT64", [1, 2, 3, "4", False], "2 of 5 values are bool or text, the others int"),
        ("BOOL", [True, False, True, 0, "true"], "2 of 5 values are number or text, the others bool"),
        ("STRING", ["1", "2", "3", 4, 5.5], "2 of 5 values are number, the others text"),
    ],
)
def test_values_of_several_types_that_type_any_takes_get_it_at_once(
    tmp_path: Path, dtype: str, values: list[object], types: str
) -> None:
    folder = tmp_path / "paid"
    file = model(tmp_path / "m.onnx", [("amount", getattr(TensorProto, dtype), [1])])
    own = write_events(tmp_path, [{"amount": value} for value in values])
    _, config = made(folder, "--model", file, "--sample", own)
    assert config["inputs"][0]["fields"] == [{"field": "amount", "type": "any"}]
    assert f"{types}: `type: any` takes all of them" in (folder / "models/paid/1/config.yaml").read_text()
    assert cli.run(["predict", str(folder), str(folder / "events.jsonl")]) == 0


def test_values_that_type_any_does_not_take_are_told_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "paid"
    file = model(tmp_path / "m.onnx", [("amount", TensorProto.FLOAT, [1])])
    own = write_events(tmp_path, [{"amount": value} for value in (1.5, 2, 3, 4, "5", "12,50")])
    made(folder, "--model", file, "--sample", own)
    config = (folder / "models/paid/1/config.yaml").read_text()
    assert "{field: amount, type: any}" in config
    assert (
        "`type: any` takes all of them but 1, such as '12,50'; events with these become dead letters (`unfit`)"
        in config
    )
    capsys.readouterr()
    assert cli.run(["predict", str(folder), str(folder / "events.jsonl"), "--json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("reason") for line in lines] == [*[None] * 5, "unfit"]


def test_unused_fields_of_several_types_are_told_with_the_type_that_takes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    risks = [1, 2, "3", 4, "5"]
    notes = [1, 2, "low", 4, "high"]
    codes = ["1.5", "2.5", 3, "4", "5"]
    flags = [True, False, True, "1", 0]
    fields = zip(risks, notes, codes, flags, strict=True)
    events = [{"risk": risk, "note": note, "code": code, "flag": flag} for risk, note, code, flag in fields]
    unsure(tmp_path, [("X", TensorProto.FLOAT, [1])], events)
    said = capsys.readouterr().out
    assert '- risk: 2 of 5 values are text, the others int; as a feature: {field: "risk", type: any}\n' in said
    assert '- note: 2 of 5 values are text, the others int; for the others as a feature: {field: "note"}\n' in said
    assert '- code: text with numbers; as a feature: {field: "code", type: any}\n' in said
    assert (
        '- flag: 2 of 5 values are number or text, the others bool; as a feature: {field: "flag", type: any}\n' in said
    )


def test_vocabulary_for_values_of_several_types_has_their_texts_in_json(tmp_path: Path) -> None:
    events = [{"paid": value} for value in (True, False, 2, 3, "true", "yes")]
    config = unsure(tmp_path, [("paid", TensorProto.INT64, [1])], events)
    assert '{field: "paid", type: any, vocabulary: ["2", "3", "false", "true", "yes"]}' in config


def test_pipeline_in_the_folder_of_a_model_that_has_a_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model(tmp_path / "model.onnx", [("a", TensorProto.FLOAT, [1])])
    config = "inputs: [{tensor: a, fields: [a], dtype: float32}]\noutputs: [{tensor: a_out}]\n"
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "events.jsonl").write_text('{"a": 1.5}\n')
    assert cli.run(["init", "new", "--model", "model.onnx", "--sample", "events.jsonl"]) == 0
    (version,) = (tmp_path / "new" / "models").glob("*/1")
    assert (version / "config.yaml").read_text() == config
    assert not (version / "new").exists()


def test_envelopes_give_their_content_first(tmp_path: Path) -> None:
    described = {"type": "struct", "fields": [{"optional": True, "field": "temp"}]}
    row = {"temp": 21.5, "hum": 40.5}
    files: dict[str, list[dict[str, Any]]] = {
        "connect": [{"schema": described, "payload": row}, {"schema": described, "payload": row}],
        "debezium": [{"payload": {"before": row, "after": row}}, {"payload": {"before": None, "after": row}}],
    }
    for name, events in files.items():
        sample = tmp_path / f"{name}.jsonl"
        sample.write_text("".join(json.dumps(event) + "\n" for event in events))
        given = model(tmp_path / f"{name}.onnx", [("numbers", TensorProto.FLOAT, [2])])
        assert cli.run(["init", str(tmp_path / name), "--model", str(given), "--sample", str(sample)]) == 0
        (config,) = (tmp_path / name / "models").glob("*/1/config.yaml")
        fields = config.read_text().partition("fields:")[2]
        inside = "payload." if name == "connect" else "payload.after."
        assert f"{inside}temp" in fields
        assert f"{inside}hum" in fields
        assert "schema." not in fields
        assert "before." not in fields


def mixed(folder: Path) -> Path:
    """Orders, views and refunds: only orders have the model's fields."""
    events: list[dict[str, Any]] = []
    for number in range(10):
        events.append({"type": "order placed", "id": f"o{number}", "amount": 1.5 + number, "at": number})
        events.append({"type": "view", "url": "/", "at": "yesterday"})
        events.append({"type": "refund", "id": f"o{number}", "total": "1.5"})
    file = folder / "mixed.jsonl"
    file.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return file


def test_init_tells_kinds_of_events_and_guesses_from_those_that_pass_the_filter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = model(tmp_path / "m.onnx", [("amount", TensorProto.FLOAT, [1])])
    sample = ["--model", str(made), "--sample", str(mixed(tmp_path))]
    assert cli.run(["init", str(tmp_path / "all"), *sample]) == 0
    told = capsys.readouterr().out
    hint = "type is order placed in 10, view in 10, refund in 10 of 30 events"
    assert f"The events seem to be of several kinds: {hint}" in told
    condition = "type == order placed"
    assert f"--filter '{condition}'" in told
    assert cli.run(["init", str(tmp_path / "orders"), *sample, "--filter", condition]) == 0
    told = capsys.readouterr().out
    assert "10 of these events pass the filter." in told
    assert "of several kinds" not in told
    pipeline = load_pipeline(tmp_path / "orders" / "pipeline.yaml", {})
    assert [each.text for each in pipeline.input.filter] == [condition]
    assert pipeline.input.event_id == "id"
    assert cli.run(["predict", str(tmp_path / "orders"), str(tmp_path / "orders" / "events.jsonl"), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each.get("reason") for each in found] == [None, "filtered", "filtered"] * 10


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("type = view", "expected a condition such as"),
        (
            "type == click",
            "--filter: expected events that pass `type == click`, found none: the events have in `type`: 'order",
        ),
        ("a..b == view", "expected a name, found '.b'"),
        ("type[] == view", "--filter: expected a field with a text, a number, or true or false, found `type[]`"),
    ],
)
def test_wrong_filters_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], condition: str, said: str) -> None:
    made = model(tmp_path / "m.onnx", [("amount", TensorProto.FLOAT, [1])])
    command = ["init", str(tmp_path / "new"), "--model", str(made), "--sample", str(mixed(tmp_path))]
    assert exit_code([*command, "--filter", condition]) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def exit_code(command: Sequence[str]) -> int | str | None:
    try:
        return cli.run(command)
    except SystemExit as ended:
        return ended.code


def test_init_tells_of_a_field_under_two_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = model(tmp_path / "m.onnx", [("amount", TensorProto.FLOAT, [1])])
    events = [{"amount" if number % 3 else "price": 1.5 * number, "n": number} for number in range(9)]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    sample = ["--model", str(made), "--sample", str(tmp_path / "events.jsonl")]
    assert cli.run(["init", str(tmp_path / "new"), *sample]) == 0
    told = capsys.readouterr().out
    assert "field amount: 6 of 9 events have amount, and the other 3 have price in its place; right only if" in told
    assert "- price" not in told
    config = yaml.safe_load((tmp_path / "new" / "models" / "new" / "1" / "config.yaml").read_text())
    assert config["inputs"][0]["fields"] == [{"field": "amount", "fallback": "price"}]
    assert cli.run(["predict", str(tmp_path / "new"), str(tmp_path / "events.jsonl"), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["outputs"]["y"] for one in found] == [1.5 * number for number in range(9)]


def test_limit_of_the_sample_counts_only_events_that_pass_the_filter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = model(tmp_path / "m.onnx", [("amount", TensorProto.FLOAT, [1])])
    views = [{"type": "view", "n": number} for number in range(50)]
    orders = [{"type": "order", "order_id": f"o{number}", "amount": 1.5} for number in range(5)]
    sample = tmp_path / "events.jsonl"
    sample.write_text("".join(f"{json.dumps(event)}\n" for event in [*views, *orders]))
    command = ["init", str(tmp_path / "new"), "--model", str(made), "--sample", str(sample), "--limit", "3"]
    assert cli.run([*command, "--filter", "type == order"]) == 0
    told = capsys.readouterr().out
    assert "guessed from the first 53 events (`--limit` takes more)" in told
    assert "3 of these events pass the filter." in told
    assert "order_id: all 3 events have it" in told
    kept = (tmp_path / "new" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["type"] for line in kept] == ["view"] * 3 + ["order"] * 3


def test_each_of_two_renamed_fields_gets_its_own_new_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = model(tmp_path / "m.onnx", [("tenure_days", TensorProto.FLOAT, [1]), ("open_rate", TensorProto.FLOAT, [1])])
    old = {"user": {"tenure_days": 5.5}, "stats": {"open_rate": 0.5}}
    new = {"stats": {"open_ratio": 0.25}, "user": {"account_age_days": 7.5}}
    events = tmp_path / "events.jsonl"
    events.write_text("".join(f"{json.dumps({'n': number, **(old if number % 2 else new)})}\n" for number in range(10)))
    assert cli.run(["init", str(tmp_path / "new"), "--model", str(made), "--sample", str(events)]) == 0
    told = capsys.readouterr().out
    config = yaml.safe_load((tmp_path / "new" / "models" / "new" / "1" / "config.yaml").read_text())
    assert [entry["fields"] for entry in config["inputs"]] == [
        [{"field": "user.tenure_days", "fallback": "user.account_age_days"}],
        [{"field": "stats.open_rate", "fallback": "stats.open_ratio"}],
    ]
    assert "beside it" not in told
