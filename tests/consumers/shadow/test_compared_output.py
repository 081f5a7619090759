"""Outputs that are made of one tensor can be compared by their names."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream.consumers.errors import PlanError
from millstream.consumers.shadow.compared_classes import compared_classes_of
from millstream.consumers.shadow.compared_output import check_compared_answers, check_compared_output
from millstream.pipeline.errors import PipelineError
from millstream.pipeline.pipeline import Pipeline
from tests.inference.python_models import predicting
from tests.pipeline.pipeline_files import SMALL, load

CONFIG = """
inputs: [{tensor: x, fields: [a], dtype: float32}]
outputs: [{tensor: p, classes: [no, yes]}, {tensor: p, name: best, top: 1}]
""".replace("[no, yes]", "['no', 'yes']")


@pytest.mark.parametrize("output", ["p.yes", "best_scores"])
def test_score_of_a_class_can_be_compared(tmp_path: Path, output: str) -> None:
    model = predicting(tmp_path, "return {'p': inputs['x']}", config=CONFIG)
    check_compared_output(
        load(tmp_path, f"{SMALL}shadows: [{{version: 2}}]\ncomparison: {{output: {output}}}\n"), [model, model]
    )


def test_tensor_of_scores_is_no_output_of_its_own(tmp_path: Path) -> None:
    model = predicting(tmp_path, "return {'p': inputs['x']}", config=CONFIG)
    pipeline = load(tmp_path, f"{SMALL}shadows: [{{version: 2}}]\ncomparison: {{output: p, item: 0}}\n")
    answer = {"p.no": np.zeros(1), "p.yes": np.zeros(1)}
    with pytest.raises(
        PlanError, match=r"comparison.output: expected an output of .*, found `p`.* It has `p.no`, `p.yes`"
    ):
        check_compared_answers(pipeline, [model, model], [answer, answer])


PETS = ["bird", "cat", "dog"]
THREE = "inputs: [{tensor: x, fields: [a], dtype: float32}]\noutputs: [{tensor: label, classes: [bird, cat, dog]}]\n"


def comparing(folder: Path, **section: object) -> Pipeline:
    return load(folder, f"{SMALL}shadows: [{{version: 2}}]\ncomparison: {json.dumps(section)}\n")


def checked(folder: Path, answer: dict[str, Any], **section: object) -> str:
    """What is said of this answer of both models."""
    (folder / "models").mkdir()
    model = predicting(folder / "models", "return {}", config=THREE)
    arrays = {name: np.array(values) for name, values in answer.items()}
    return check_compared_answers(comparing(folder, **section), [model, model], [arrays, arrays])


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (
            PETS,
            r"expected `task: multiclass`, because .* has the classes bird, cat, dog; .*: `comparison: {output: p.cat}`",
        ),
        (
            ["ham", "spam"],
            r"of the class that a label of 1 stands for, found none; .* ham, spam\. .* {output: p.spam}`.*{task: multiclass}`",
        ),
    ],
)
def test_probability_of_a_class_that_nobody_named_is_refused(tmp_path: Path, classes: list[str], said: str) -> None:
    config = f"inputs: [{{tensor: x, fields: [a], dtype: float32}}]\noutputs: [{{tensor: p, classes: {json.dumps(classes)}}}]\n"
    model = predicting(tmp_path, "return {}", config=config)
    answer = {f"p.{name}": np.zeros(1, np.float32) for name in classes}
    with pytest.raises(PlanError, match=said):
        check_compared_answers(comparing(tmp_path), [model, model], [answer, answer])
    named = comparing(tmp_path, output=f"p.{classes[1]}")
    assert check_compared_answers(named, [model, model], [answer, answer]).startswith(f"output `p.{classes[1]}`.")


@pytest.mark.parametrize(
    ("answer", "section"),
    [
        ({"label": ["cat"]}, {}),
        ({"label": ["cat"], "km": [1.5]}, {"output": "label"}),
        ({"label.bird": [0.2], "label.cat": [0.1], "label.dog": [0.7]}, {}),
    ],
)
def test_class_as_the_number_of_a_regression_is_refused(
    tmp_path: Path, answer: dict[str, Any], section: dict[str, Any]
) -> None:
    with pytest.raises(PlanError, match=r"expected `task: multiclass`, .* bird, cat, dog; found `regression`, which"):
        checked(tmp_path, answer, task="regression", **section)


@pytest.mark.parametrize("section", [{}, {"output": "label.cat"}])
def test_number_of_a_regression_may_stand_beside_classes(tmp_path: Path, section: dict[str, Any]) -> None:
    answer = {"km": [1.5], "label.bird": [0.2], "label.cat": [0.1], "label.dog": [0.7]}
    named = section.get("output", "km")
    assert checked(tmp_path, answer, task="regression", **section).startswith(f"output `{named}`.")


def test_class_beside_its_probabilities_is_told_with_how_to_compare_these(tmp_path: Path) -> None:
    said = checked(tmp_path, {"label": [1], "probabilities": [[0.25, 0.75]]})
    assert said.startswith("output `label`. It is a whole number, so the AUC knows no probabilities.")
    assert "write `comparison: {output: probabilities, item: 1}`" in said


def test_score_is_told_without_advice_on_other_outputs(tmp_path: Path) -> None:
    assert "It is a whole number" not in checked(tmp_path, {"p": [0.5], "probabilities": [[0.25, 0.75]]})


def test_name_of_a_class_that_no_prediction_has_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    """config.yaml alone can't tell whether the tensor has scores of the classes, or the index of one."""
    with pytest.raises(PlanError, match=r"found `label.cat`, which .* Did you mean `label`\? It has `label`"):
        checked(tmp_path, {"label": ["cat"]}, output="label.cat")


def test_output_without_a_class_is_refused_with_those_that_have_one(tmp_path: Path) -> None:
    with pytest.raises(
        PlanError, match=r"found `scors`, .* Did you mean `scores`\? Outputs with a class: `label`, `scores`"
    ):
        checked(
            tmp_path,
            {"label": ["cat"], "scores": [[0.2, 0.1, 0.7]], "n": [0.5]},
            task="multiclass",
            classes=PETS,
            output="scors",
        )


def test_output_that_only_one_model_has_is_not_suggested(tmp_path: Path) -> None:
    model = predicting(tmp_path, "return {}", config=THREE)
    ours, shadows = {"score": np.zeros(1), "risk": np.zeros(1)}, {"risk": np.zeros(1)}
    with pytest.raises(PlanError, match=r"found `scor`.* It has `risk`, `score`; outputs of all: `risk`") as raised:
        check_compared_answers(comparing(tmp_path, output="scor"), [model, model], [ours, shadows])
    assert "Did you mean" not in str(raised.value)


def test_what_is_compared_and_how_to_change_it_is_said(tmp_path: Path) -> None:
    said = checked(tmp_path, {"best": [["cat"]], "best_scores": [[0.7]], "p": [0.3]})
    assert said == "output `p`. To compare another one, write `comparison: {output: NAME}` into the pipeline file."


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"output": "p"}, "output `p`."),
        ({"output": "scores", "item": 2}, "output `scores`, item 2."),
        (
            {"output": "scores", "task": "multiclass", "classes": PETS},
            "output `scores`: the class, and the probability of",
        ),
        ({"output": "scores", "task": "regression"}, "output `scores`, which is no number: "),
    ],
)
def test_output_that_the_file_names_is_not_advised(tmp_path: Path, section: dict[str, Any], said: str) -> None:
    told = checked(tmp_path, {"p": [0.3], "scores": [[0.2, 0.1, 0.7]]}, **section)
    assert told.startswith(said)
    assert "{output: NAME}" not in told


def test_text_advises_to_compare_classes(tmp_path: Path) -> None:
    said = checked(tmp_path, {"best": [["cat"]], "best_scores": [[0.7]]})
    assert "output `best`, which is no number" in said
    assert "write `comparison: {task: multiclass}`" in said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"label": ["cat"], "s": [[0.2, 0.1, 0.7]]}, "output `s`: the class, and the probability of each class. "),
        (
            {"s.bird": [0.2], "s.cat": [0.1], "s.dog": [0.7]},
            "output `s`: the class, and the probability of each class. ",
        ),
        (
            {"label": ["cat"]},
            "output `label`: the class. It holds no probability of each class, so there is accuracy, but no",
        ),
    ],
)
def test_class_with_probabilities_is_compared_if_there_is_one(
    tmp_path: Path, answer: dict[str, Any], said: str
) -> None:
    assert checked(tmp_path, answer, task="multiclass", classes=PETS).startswith(said)


def test_classes_that_nobody_names_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(
        PlanError, match=r"comparison.*: expected the names of the classes .* `classes: \[bird, cat, dog\]`"
    ):
        compared_classes_of(comparing(tmp_path, task="multiclass"))


def test_classes_in_another_order_than_the_model_s_are_refused(tmp_path: Path) -> None:
    """A label that is an index would count for another class."""
    (tmp_path / "models").mkdir()
    model = predicting(tmp_path / "models", "return {}", config=THREE)
    check_compared_output(comparing(tmp_path, task="multiclass", classes=PETS), [model, model])
    with pytest.raises(
        PlanError, match=r"comparison\.classes: .*, found cat, bird, dog; .* has bird, cat, dog\. Leave"
    ):
        check_compared_output(comparing(tmp_path, task="multiclass", classes=["cat", "bird", "dog"]), [model, model])


@pytest.mark.parametrize("output", [None, "label"])
def test_model_with_a_class_that_the_primary_lacks_is_refused_until_the_file_names_all(
    tmp_path: Path, output: str | None
) -> None:
    primary = predicting(tmp_path / "models", "return {}", config=THREE)
    models = [primary, predicting(tmp_path / "other", "return {}", config=THREE.replace("dog", "dog, wolf"))]
    pipeline = comparing(tmp_path, task="multiclass", output=output)
    with pytest.raises(PlanError, match=r"also has wolf\. .*: `comparison: \{classes: \[bird, cat, dog, wolf\]\}`"):
        check_compared_output(pipeline, models)
    written = comparing(tmp_path, task="multiclass", output=output, classes=[*PETS, "wolf"])
    check_compared_output(written, models)
    answers = [{"label": np.array(["cat"])}, {"label": np.array(["wolf"])}]
    assert check_compared_answers(written, models, answers).startswith("output `label`: the class. ")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"classes": PETS}, "write `task: multiclass` under `comparison:`"),
        ({"classes": ["a", "a"], "task": "multiclass"}, "the class 'a' is named twice"),
        ({"classes": PETS, "task": "multiclass", "item": 1}, "Leave `item` out"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, section: dict[str, Any], said: str) -> None:
    with pytest.raises(PipelineError) as refused:
        comparing(tmp_path, **section)
    assert said.lower() in str(refused.value).lower()
