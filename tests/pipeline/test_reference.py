from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from millstream.pipeline.reference import EXAMPLE, json_schema, options, options_markdown
from tests.pipeline.pipeline_files import SMALL, WHOLE, changed, lines_of, load

DOCS = Path(__file__).parents[2] / "docs"


def test_reference_page_is_what_the_code_says() -> None:
    assert (DOCS / "pipeline.md").read_text(encoding="utf-8") == options_markdown(), (
        "run python -m millstream.pipeline.reference"
    )


def test_json_schema_file_is_what_the_code_says() -> None:
    assert json.loads((DOCS / "pipeline.schema.json").read_text(encoding="utf-8")) == json_schema(), (
        "run python -m millstream.pipeline.reference"
    )


def test_example_of_the_reference_page_loads(tmp_path: Path) -> None:
    assert load(tmp_path, EXAMPLE).name == "flights-delay"


def test_every_option_is_described_and_no_two_share_a_path() -> None:
    all_options = options()
    assert all(option.description and option.type for option in all_options)
    assert len({option.path for option in all_options}) == len(all_options)
    assert {option.path for option in all_options if option.required} == {
        "name", "kafka.bootstrap", "schemas.registry.url", "input.topics", "input.format", "input.schema",
        "output.topic", "model.name", "shadows[].version", "labels.topic", "labels.schema", "labels.event_id", "labels.value",
    }  # fmt: skip


def allows(schema: dict[str, Any], value: object) -> bool:
    """The few words of JSON schema that ours uses."""
    told = {"$schema", "title", "description", "default", "examples", "$comment"}
    assert schema.keys() - told <= {
        "type", "enum", "const", "pattern", "minimum", "maximum", "exclusiveMinimum", "minLength", "minItems",
        "minProperties", "maxProperties", "anyOf", "oneOf", "items", "properties", "additionalProperties", "propertyNames",
        "required",
    }  # fmt: skip
    types = {"string": str, "integer": int, "number": int | float, "boolean": bool, "object": dict, "array": list}
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return all([
        not kinds or any(isinstance(value, types[k]) and (k == "boolean") == isinstance(value, bool) for k in kinds),
        value in schema.get("enum", [value]),
        value == schema.get("const", value),
        "anyOf" not in schema or any(allows(option, value) for option in schema["anyOf"]),
        "oneOf" not in schema or sum(allows(option, value) for option in schema["oneOf"]) == 1,
        not isinstance(value, str) or re.search(schema.get("pattern", ""), value) is not None,
        not isinstance(value, str) or len(value) >= schema.get("minLength", 0),
        not isinstance(value, list) or len(value) >= schema.get("minItems", 0),
        not isinstance(value, list) or all(allows(schema.get("items", {}), item) for item in value),
        not isinstance(value, int | float) or value >= schema.get("minimum", value),
        not isinstance(value, int | float) or value <= schema.get("maximum", value),
        not isinstance(value, int | float) or value > schema.get("exclusiveMinimum", value - 1),
        not isinstance(value, dict) or allows_keys(schema, value),
    ])  # fmt: skip


def allows_keys(schema: dict[str, Any], value: dict[str, object]) -> bool:
    rest = schema.get("additionalProperties", {})
    parts = [(schema.get("properties", {}).get(key, rest), item) for key, item in value.items()]
    return all([
        schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", len(value)),
        all(key in value for key in schema.get("required", ())),
        all(part is not False and allows(part, item) for part, item in parts),
    ])  # fmt: skip


@pytest.mark.parametrize("text", [SMALL, WHOLE, EXAMPLE, SMALL + "batch:\n  max_events: ${N}\n  max_wait: ${W:-5ms}\n"])
def test_json_schema_allows_good_files(text: str) -> None:
    assert allows(json_schema(), yaml.safe_load(text))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: small\n", ""),
        ("format: json", "format: xml"),
        ("  topic: events\n", ""),
        ("topic: events", "topics: []"),
        ("topic: events", "topic: a/b"),
        ("topic: predictions", "topic: predictions\n  colour: red"),
        ("name: m\n", "name: m\nbatch: {max_wait: 5}\n"),
        ("name: m\n", "name: m\nbatch: {max_bytes: soon}\n"),
        ("name: m\n", "name: m\n  version: 0\n"),
        ("name: m\n", "name: m\n  threads: true\n"),
    ],
)
def test_json_schema_refuses_what_loading_refuses(tmp_path: Path, old: str, new: str) -> None:
    assert lines_of(tmp_path, changed(old, new))
    assert not allows(json_schema(), yaml.safe_load(changed(old, new)))


def test_whole_file_names_every_option() -> None:
    def paths(node: dict[str, Any], prefix: str) -> set[str]:
        free = {"kafka.client", "model.inputs", "input.weights", "schemas.registry.password"}
        found = set()
        for key, value in node.items():
            path = f"{prefix}{key}"
            if isinstance(value, list) and value and isinstance(value[0], dict):  # a list of sections
                found |= paths(value[0], f"{path}[].")
                continue
            found |= paths(value, f"{path}.") if isinstance(value, dict) and path not in free else {path}
        return found

    assert paths(yaml.safe_load(WHOLE), "") | {"schemas.directory"} == {option.path for option in options()}
