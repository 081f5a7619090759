from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing.jsonschema import DRAFT202012

from millstream.pipeline.reference import EXAMPLE, json_schema, options, options_markdown
from tests.pipeline.pipeline_files import SMALL, WHOLE, changed, lines_of, load

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        "name", "kafka.bootstrap", "schemas.registry.url", "input.topics", "input.format",
        "output.topic", "model.name", "feature_store.lookups[].name",
        "feature_store.lookups[].key", "shadows[].version", "labels.topic", "labels.event_id", "labels.value",
        "models.route.rules[].when", "models.route.rules[].model", "models.tenants.field", "models.cascade[].model",
        "models.cascade[].escalate.output", "models.ensemble.steps", "models.ensemble.outputs",
        "rollout.metrics.reward.field", "rollout.metrics.input_drift.fields", "rollout.webhook.url",
    }  # fmt: skip


ANNOTATIONS = {
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "then",
    "else",
}
VALIDATOR = Draft202012Validator(json_schema())


def test_json_schema_uses_only_words_of_its_standard() -> None:
    """A validator ignores a word that it does not know: `minimun` would allow everything."""
    Draft202012Validator.check_schema(json_schema())
    for schema in _with_subschemas(json_schema()):
        assert schema.keys() <= Draft202012Validator.VALIDATORS.keys() | ANNOTATIONS


def _with_subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for each in DRAFT202012.subresources_of(schema):
            yield from _with_subschemas(each)


@pytest.mark.parametrize("text", [SMALL, WHOLE, EXAMPLE, SMALL + "batch:\n  max_events: ${N}\n  max_wait: ${W:-5ms}\n"])
def test_json_schema_allows_good_files(text: str) -> None:
    VALIDATOR.validate(yaml.safe_load(text))


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
    assert not VALIDATOR.is_valid(yaml.safe_load(changed(old, new)))


def test_whole_file_names_every_option() -> None:
    def paths(node: dict[str, Any], prefix: str) -> set[str]:
        free = {"kafka.client", "model.inputs", "input.weights", "schemas.registry.password", "feature_store.password"}
        free |= {"rollout.webhook.headers"}
        found = set()
        for key, value in node.items():
            path = f"{prefix}{key}"
            if isinstance(value, list) and value and isinstance(value[0], dict):  # a list of sections
                found |= paths(value[0], f"{path}[].")
                continue
            found |= paths(value, f"{path}.") if isinstance(value, dict) and path not in free else {path}
        return found

    # They can't stand beside options of the whole file.
    others = {"schemas.directory", "input.json_schema", "comparison.classes", "model.client"}
    others |= {"feature_store.repository", "feature_store.lookups[].view"}
    others |= {"rollout.share", "rollout.arms"}  # of other strategies
    of_classes = ("rollout.metrics.accuracy.", "rollout.metrics.brier.")
    others |= {option.path for option in options() if option.path.startswith(of_classes)}
    several = {option.path for option in options() if option.path.startswith("models.")}  # in place of `model`
    assert paths(yaml.safe_load(WHOLE), "") | others | several == {option.path for option in options()}
