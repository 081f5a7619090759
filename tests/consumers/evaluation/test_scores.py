"""The score in a prediction's outputs, and what it is worth beside a label."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.consumers.evaluation.scores import Scores
from millstream.consumers.evaluation.settings import Scoring, step_settings
from millstream.consumers.evaluation.sides import quality_values
from millstream.inference.class_answers import Classes
from tests.consumers.evaluation.scene import FILE, record_of
from tests.pipeline.pipeline_files import load

if TYPE_CHECKING:
    from pathlib import Path

PETS = Classes(["bird", "cat", "dog"])


@pytest.mark.parametrize(
    ("scoring", "outputs", "score", "is_nan"),
    [
        (Scoring("classification", "p", None, 0.5, None), {"p": 0.25}, 0.25, False),
        (Scoring("classification", "p", None, 0.5, None), {"p": "NaN"}, math.nan, True),  # as JSON predictions have it
        (Scoring("classification", "p", None, 0.5, None), {"p": math.inf}, math.nan, True),
        (Scoring("classification", "p", None, 0.5, None), {"q": 0.5}, math.nan, False),
        (Scoring("classification", "p", 1, 0.5, None), {"p": [0.1, 0.9]}, 0.9, False),
        (Scoring("classification", "p", 2, 0.5, None), {"p": [0.1, 0.9]}, math.nan, False),
        (Scoring("regression", None, None, 0.5, None), {"a": "x", "b": 7.5, "c": 1}, 7.5, False),  # chosen
        (Scoring("multiclass", "pet", None, 0.5, PETS), {"pet": "cat"}, 1.0, False),
        (Scoring("multiclass", "pet", None, 0.5, PETS), {"pet": "fish"}, math.nan, True),
        (Scoring("multiclass", None, None, 0.5, PETS), {"scores": [0.1, 0.2, 0.7]}, 2.0, False),
    ],
)
def test_score_is_found(scoring: Scoring, outputs: dict[str, Any], score: float, is_nan: bool) -> None:
    found, not_finite = Scores(scoring).of(outputs)
    np.testing.assert_equal((found, not_finite), (score, is_nan))


@pytest.mark.parametrize(
    ("scoring", "metric", "values"),
    [
        (Scoring("classification", "p", None, 0.6, None), "accuracy", [1.0, 1.0]),
        (Scoring("classification", "p", None, 0.6, None), "brier", [0.16, 0.04]),
        (Scoring("classification", "p", None, 0.6, None), "log_loss", [-math.log(0.6), -math.log(0.8)]),
        (Scoring("regression", "p", None, 0.5, None), "absolute_error", [0.4, 0.2]),
        (Scoring("regression", "p", None, 0.5, None), "squared_error", [0.16, 0.04]),
        (Scoring("multiclass", "p", None, 0.5, PETS), "accuracy", [0.0, 0.0]),
    ],
)
def test_metrics_of_quality_follow_their_definitions(scoring: Scoring, metric: str, values: list[float]) -> None:
    found = quality_values(scoring, metric, np.array([0.6, 0.2]), np.array([1.0, 0.0]))
    assert found.tolist() == pytest.approx(values)


def test_classes_of_the_pipeline_file_are_the_scores_places(tmp_path: Path) -> None:
    text = FILE.replace("FORMAT", "json").replace("SHARE", "30")
    text = text.replace("{output: score, window: 5m}", "{task: multiclass, classes: [bird, cat, dog]}")
    text = text.replace("    brier: {margin: 0.02}\n", "")
    settings = step_settings(load(tmp_path, text), record_of())
    assert settings.scoring.classes is not None
    assert settings.scoring.classes.names == ("bird", "cat", "dog")
    assert [rule.name for rule in settings.quality] == ["accuracy", "reward"]
