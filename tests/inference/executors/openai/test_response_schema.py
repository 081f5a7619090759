"""Answers in JSON, checked against a JSON Schema."""

import copy
import json
from typing import Any

import numpy as np
import pytest

from millstream.inference.errors import ModelConfigError, ModelRejected
from millstream.inference.executors.openai.response_schema import ResponseSchema, unfenced
from tests.inference.executors.openai.models import ANSWER, ANSWER_SCHEMA

pytest.importorskip("jsonschema_rs", reason="needs the extra `json-schema`")


def made(*paths: str, schema: Any = ANSWER_SCHEMA, reserved: tuple[str, ...] = ()) -> ResponseSchema:
    places = {path: f"config.yaml:{9 + at}: outputs[{at}].tensor" for at, path in enumerate(paths)}
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return ResponseSchema("in config.yaml", text, places, "config.yaml:5: request.json_schema", reserved=reserved)


def test_values_become_outputs_of_their_types() -> None:
    schema = made("category", "urgent", "score", "count", "place.city", "place", "tags")
    outputs = schema.outputs([schema.answer(ANSWER)])
    assert {name: (array.dtype, array.tolist()) for name, array in outputs.items()} == {
        "category": (np.dtype(object), ["bug"]),
        "urgent": (np.dtype(bool), [True]),
        "score": (np.dtype(np.float64), [1.0]),
        "count": (np.dtype(np.int64), [3]),
        "place.city": (np.dtype(object), ["Oslo"]),
        "place": (np.dtype(object), ['{"city":"Oslo"}']),
        "tags": (np.dtype(object), ['["a","b"]']),
    }


@pytest.mark.parametrize(
    "text", [ANSWER, f"\n {ANSWER} \n", f"```json\n{ANSWER}\n```", f"```\n{ANSWER}\n```\n", f"```JSON\n{ANSWER}```"]
)
def test_white_space_and_a_code_block_around_the_json_are_left_out(text: str) -> None:
    assert made("category").answer(text)["category"] == "bug"


def test_a_text_without_code_block_stays() -> None:
    assert unfenced('{"a": "```"}') == '{"a": "```"}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("I think it is a bug", "expected JSON in the completion, found 'I think it is a bug'"),
        ('"bug"', 'the completion: expected `type` "object", found text'),
        (ANSWER.replace('"bug"', '"rant"'), r'category: expected `enum` \["billing", "bug"\], found .rant.'),
        (ANSWER.replace('"count": 3, ', ""), "count: expected a value, found none"),
        (ANSWER.replace("{", '{"more": 1, ', 1), "more: expected no such field, found one"),
        ("", "expected JSON in the completion, found ''"),
    ],
)
def test_an_answer_that_does_not_fit_says_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(ModelRejected, match=why):
        made("category").answer(text)


def test_numbers_that_fit_into_no_output_reject_the_answer() -> None:
    schema = made("count")
    with pytest.raises(ModelRejected, match="`count`: expected a whole number of 64 bits"):
        schema.outputs([schema.answer(ANSWER.replace("3", str(2**70)))])


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("kategory", r"outputs\[0\].tensor: expected the path of a value .*found kategory.*category, urgent"),
        ("note", "requires `note`, because a prediction has no null; found it optional"),
        ("tags[0]", "expected the path of a value"),
        ("place.city.name", "expected the path of a value"),
        ("a..b", "expected"),
    ],
)
def test_an_output_that_the_schema_does_not_ensure_is_reported(path: str, why: str) -> None:
    with pytest.raises(ModelConfigError, match=why):
        made(path)


@pytest.mark.parametrize(
    "of", [{"type": ["string", "null"]}, {}, {"anyOf": [{"type": "string"}]}, {"enum": ["a", 1]}, True]
)
def test_an_output_needs_one_type(of: Any) -> None:
    schema = copy.deepcopy(ANSWER_SCHEMA)
    schema["properties"]["category"] = of  # type: ignore[index]
    with pytest.raises(ModelConfigError, match="states one type for `category`"):
        made("category", schema=schema)


def test_types_behind_references_are_found() -> None:
    schema = {
        "type": "object",
        "properties": {"category": {"$ref": "#/$defs/word"}},
        "required": ["category"],
        "$defs": {"word": {"const": "a"}},
    }
    found = made("category", schema=schema)
    assert found.outputs([found.answer('{"category": "a"}')])["category"].tolist() == ["a"]


def test_a_property_with_the_name_of_another_output_is_reported() -> None:
    with pytest.raises(ModelConfigError, match=r"expected other properties than text, category, .*found category"):
        made("urgent", reserved=("text", "category"))


def test_a_wrong_schema_is_reported_with_its_place() -> None:
    with pytest.raises(
        ModelConfigError, match=r"^config.yaml:5: request.json_schema: in config.yaml: expected a valid JSON Schema"
    ):
        made("category", schema={"type": "objekt"})
