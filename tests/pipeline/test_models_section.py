"""The section `models`: what is good loads as it is meant, and each mistake has one message with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml
from jsonschema import Draft202012Validator

from millstream.pipeline.conditions import parse_condition
from millstream.pipeline.output_sources import OutputSource, StepOutput
from millstream.pipeline.reference import json_schema
from tests.pipeline.pipeline_files import SMALL, lines_of, load

if TYPE_CHECKING:
    from pathlib import Path

HEAD = SMALL[: SMALL.index("model:\n")]
ROUTE = (
    HEAD
    + "models:\n  route:\n    field: country\n    values: {DE: eu, 7: {name: us, version: 3}}\n    default: world\n"
)
RULES = (
    HEAD
    + "models:\n  route:\n    rules:\n    - {when: amount >= 10, model: a}\n    - when: ['x in [1]', y == no]\n      model: b\n"
)
TENANTS = HEAD + "models:\n  device: cpu\n  tenants: {field: c, name: 'churn-{tenant}', memory: 2MiB}\n"
CASCADE = HEAD + (
    "models:\n  cascade:\n  - {model: small, escalate: {output: p, between: [0.2, 0.8]}}\n"
    "  - {model: mid, escalate: {output: p, below: 0.5}}\n  - model: large\n"
)
ENSEMBLE = HEAD + (
    "models:\n  ensemble:\n    name: all\n    version: 4\n    steps:\n      a: m\n"
    "      b: {name: n, feed: {x: {stack: [a.y, a.z.q]}}}\n"
    "    outputs:\n      y: {mean: {a.y: 2, b.y: 1}}\n      v: {vote: [a.y, b.y]}\n      z: b.y\n"
)


def test_route_by_value(tmp_path: Path) -> None:
    pipeline = load(tmp_path, ROUTE)
    assert pipeline.models is not None
    assert pipeline.models.route is not None
    found = {value: (model.name, model.version) for value, model in pipeline.models.route.values.items()}
    assert found == {"DE": ("eu", None), "7": ("us", 3)}
    assert {place: model.name for place, model in pipeline.models.members.items()} == {
        ("route", "values", "DE"): "eu",
        ("route", "values", "7"): "us",
        ("route", "default"): "world",
    }


def test_single_model_stands_for_all_with_their_settings(tmp_path: Path) -> None:
    pipeline = load(tmp_path, TENANTS)
    assert (pipeline.model.name, pipeline.model.version, pipeline.model.device) == ("small", None, "cpu")
    assert pipeline.model.repository == tmp_path / "models"
    assert pipeline.at("model", "device") == f"{tmp_path / 'pipeline.yaml'}:11: models.device"
    assert (load(tmp_path, ENSEMBLE).model.name, load(tmp_path, ENSEMBLE).model.version) == ("all", 4)


def test_sources_of_an_ensemble(tmp_path: Path) -> None:
    models = load(tmp_path, ENSEMBLE).models
    assert models is not None
    assert models.ensemble is not None
    assert dict(models.ensemble.sources()) == {
        "steps.b.feed.x": OutputSource("stack", (StepOutput("a", "y"), StepOutput("a", "z.q"))),
        "outputs.y": OutputSource("mean", (StepOutput("a", "y"), StepOutput("b", "y")), (2.0, 1.0)),
        "outputs.v": OutputSource("vote", (StepOutput("a", "y"), StepOutput("b", "y"))),
        "outputs.z": OutputSource(None, (StepOutput("b", "y"),)),
    }


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("amount >= 1e3", ("amount", ">=", (1000.0,))),
        ("a.b[0]  not   in [DE, 'a, b', \"7\"]", ("a.b[0]", "not in", ("DE", "a, b", "7"))),
        ("ok == true", ("ok", "==", (True,))),
        ("name != Anna Maria", ("name", "!=", ("Anna Maria",))),
        ("n in [1, -2.5]", ("n", "in", (1.0, -2.5))),
        ("n == '7'", ("n", "==", ("7",))),
        ('["t y"].x == a b', ('["t y"].x', "==", ("a b",))),
        ('["a\\"] == b"].x == c', ('["a\\"] == b"].x', "==", ("c",))),
        ("n <= 9007199254740991", ("n", "<=", (9007199254740991.0,))),
        ("s == 'R & D or so'", ("s", "==", ("R & D or so",))),
    ],
)
def test_conditions(text: str, parsed: tuple[object, ...]) -> None:
    assert parse_condition(text) == (*parsed, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("amount", "expected a condition such as"),
        ("amount > DE", "expected a number after `>`, found 'DE'."),
        ("x in DE", "expected a list such as [DE, AT] after `in`, found 'DE'."),
        ("x == [DE]", "expected one value after `==`, found '[DE]'."),
        ("x in [1, DE]", "expected values of one type, found '[1, DE]'."),
        ("x in []", "expected at least one value in the list, found none."),
        ("x in [a b' c]", "expected values separated by commas"),
        ("x == 'a", "expected a text, a number, true or false"),
        ("x==7", "found 'x==7'. Write blanks around the operator: x == 7"),
        (
            "x in [01234, 10115]",
            "without leading zeros and without a plus sign, found '01234'. Write \"01234\" for a text.",
        ),
        ("x == +7", "without a plus sign"),
        ("x = 7", "found 'x = 7'. Write two equal signs: x == 7"),
        ("x is not null", "found 'x is not null'. For events that have the field, write x != ''"),
        ("x == 9007199254740992", "expected a number below 2^53"),
        ("x in [1, -18446744073709551616]", 'Write "-18446744073709551616" to compare it as a text.'),
        ("x == True", "expected true or false, found 'True'. Write true, or \"True\" for a text."),
        ("x == 7 and y == 8", "expected one value, found '7 and y == 8'. Conditions that must all hold are a list"),
        ("x == a && y", "expected one value"),
        ("x == ''", "expected a text that isn't empty"),
        ("x < 1e999", "expected a number that a double holds, found '1e999'."),
        ("x == 7 # seven", "expected one value"),
    ],
)
def test_wrong_conditions(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        parse_condition(text)
    assert said in str(caught.value)


MODELS = HEAD + "models:\n  "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            SMALL + "models: {route: {field: a, values: {b: c}}}\n",
            "model: expected one of `model` and `models`, found both.",
        ),
        (
            RULES.replace("model: a}", "model: a, inputs: {x: y}}"),
            "rules[0].inputs: unknown key here. Write it into the key beside it, `model: {name: NAME, inputs: ...}`.",
        ),
        (HEAD, "1: model: this section is missing. Write `model:` and under it name."),
        (MODELS + "device: cpu\n", "10: models: expected one of route, tenants, cascade, ensemble, found none"),
        (
            ROUTE + "  tenants: {field: a}\n",
            "10: models: expected one of route, tenants, cascade, ensemble, found route and tenants",
        ),
        (MODELS + "rout: {}\n", "11: models.rout: unknown key. Did you mean route?"),
        (MODELS + "route: {field: a}\n", "11: models.route: expected either `field` and `values`, or `rules`."),
        (
            ROUTE.replace("version: 3", "vresion: 3"),
            "13: models.route.values.7.vresion: unknown key. Did you mean version?",
        ),
        (RULES.replace("amount >= 10", "amount"), "13: models.route.rules[0].when: expected a condition such as"),
        (
            TENANTS.replace("churn-{tenant}", "churn"),
            "12: models.tenants.name: expected the name of a model with {tenant} in it",
        ),
        (TENANTS.replace("2MiB", "2"), "12: models.tenants.memory: expected a size, found 2 without a unit"),
        (
            TENANTS.replace("device: cpu", "gpu_memory: 1GiB"),
            "11: models.gpu_memory: expected no limit for each copy beside `tenants`",
        ),
        (
            TENANTS.replace("device: cpu", "repository: 's3://bucket/models'"),
            "11: models.repository: expected a folder beside `tenants`, found s3://bucket/models.",
        ),
        (
            CASCADE.replace("models:\n", "models:\n  repository: models:/fraud@champion\n"),
            "11: models.repository: expected models:/ without the name of a model",
        ),
        (MODELS + "cascade: [{model: a}]\n", "10: models: expected at least two steps under `cascade`"),
        (
            CASCADE.replace(", escalate: {output: p, below: 0.5}", ""),
            "10: models: expected `escalate` in step 2 of `cascade`",
        ),
        (CASCADE.replace("[0.2, 0.8]", "[0.8, 0.2]"), "escalate: expected `between` with the smaller number first"),
        (
            CASCADE.replace("below: 0.5", "below: 0.5, between: [0, 1]"),
            "escalate: expected one of `below` and `between`.",
        ),
        (
            ENSEMBLE.replace("z: b.y", "z: c.y"),
            "11: models.ensemble: `outputs.z` takes c.y, but there is no step c (there: a, b).",
        ),
        (
            ENSEMBLE.replace("z: b.y", "z: b"),
            "20: models.ensemble.outputs.z: expected STEP.OUTPUT, an output of a step, found 'b'.",
        ),
        (
            ENSEMBLE.replace("vote:", "median:"),
            "19: models.ensemble.outputs.v: expected STEP.OUTPUT, or a mapping with one of mean, vote",
        ),
        (
            ENSEMBLE.replace("a.y: 2", "a.y: 0"),
            "18: models.ensemble.outputs.y: expected a weight above 0, found the number 0.",
        ),
        (
            ENSEMBLE.replace("[a.y, b.y]", "[a.y, a.y]"),
            "19: models.ensemble.outputs.v: expected each output once under `vote`",
        ),
        (ENSEMBLE.replace("a: m", "a: {name: m, feed: {x: b.y}}"), "feed each other in a circle. Break it."),
        (ENSEMBLE.replace("a: m", "a.b: m"), "11: models.ensemble: expected names of steps of the characters"),
        (ROUTE + "shadows: [{version: 2}]\n", "15: shadows: expected no shadows beside `models`"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, said: str) -> None:
    (found,) = lines_of(tmp_path, text)
    assert said in found


@pytest.mark.parametrize("text", [ROUTE, RULES, TENANTS, CASCADE, ENSEMBLE])
def test_json_schema_allows_good_sections(text: str) -> None:
    Draft202012Validator(json_schema()).validate(yaml.safe_load(text))


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (ROUTE, "name: us", "nmae: us"),
        (TENANTS, "field: c, ", ""),
        (CASCADE, "[0.2, 0.8]", "[0.2]"),
        (ENSEMBLE, "vote: [a.y, b.y]", "vote: []"),
        (ENSEMBLE, "vote:", "median:"),
        (ROUTE, "models:\n", "model: {name: m}\nmodels:\n"),
    ],
)
def test_json_schema_refuses_wrong_sections(tmp_path: Path, text: str, old: str, new: str) -> None:
    assert lines_of(tmp_path, text.replace(old, new))
    assert not Draft202012Validator(json_schema()).is_valid(yaml.safe_load(text.replace(old, new)))
