"""Outputs that are made of one tensor can be compared by their names."""

from pathlib import Path

import numpy as np
import pytest

from millstream.consumers.errors import PlanError
from millstream.consumers.shadow.compared_output import check_compared_answers, check_compared_output
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
