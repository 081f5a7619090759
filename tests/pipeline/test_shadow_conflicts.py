from pathlib import Path

import pytest

from millstream.topics.admin import roles
from tests.pipeline.pipeline_files import SMALL, lines_of, load

SHADOWS = SMALL.replace("  name: m\n", "  name: m\n  version: 1\n")
LABELS = "labels: {topic: outcomes, schema: outcome, event_id: id, value: late}\n"


def test_shadow_has_topics_named_after_the_pipeline(tmp_path: Path) -> None:
    pipeline = load(tmp_path, SHADOWS + "shadows: [{version: 2}]\n" + LABELS)
    assert roles(pipeline)[3:] == [
        ("comparisons", "small-comparisons"),
        ("evaluations", "small-evaluations"),
        ("labels", "outcomes"),
    ]
    assert pipeline.shadow_model(pipeline.shadows[0]) == ("m", 2)


def test_pipeline_without_shadows_needs_no_topics_for_them(tmp_path: Path) -> None:
    assert len(roles(load(tmp_path, SMALL))) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("shadows: [{version: 1}]", "shadows[0].version: version 1 is the primary's"),
        ("shadows: [{version: 1}]", "Name another, or take this shadow out."),
        ("shadows: [{version: 2}, {version: 3}]", "shadows[1]: another shadow is called shadow too"),
        ("shadows: [{version: 2, name: primary}]", "shadows[0].name: primary is a role of its own"),
        (
            "shadows: [{version: 2, sample_rate: 1.5}]",
            "shadows[0].sample_rate: expected at most 1, found the number 1.5",
        ),
        ("shadows: [{version: 2, sample_rate: 0}]", "shadows[0].sample_rate: expected more than 0, found the number 0"),
        ("shadows: [{sample_rate: 0.5}]", "shadows[0].version: this option is missing"),
        (
            "shadows: [{version: 2}]\ncomparison: {topic: predictions}",
            "comparison.topic: predictions is also output.topic",
        ),
        ("shadows: [{version: 2}]\ncomparison: {evaluations: small-comparisons}", "is also comparison.topic"),
        ("labels: {topic: events, schema: s, event_id: id, value: v}", "labels.topic: events is also input.topics"),
        ("labels: {topic: outcomes}", "labels.event_id: this option is missing"),
        (
            "labels: {topic: outcomes, event_id: id, value: v}",
            "labels.schema: expected the name of a schema, found nothing: Avro can't be read without one",
        ),
    ],
)
def test_each_problem_is_named_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    assert any(problem in line for line in lines_of(tmp_path, f"{SHADOWS}{text}\n"))


def test_comparison_may_stand_alone_for_replays_and_reports(tmp_path: Path) -> None:
    assert load(tmp_path, f"{SHADOWS}comparison: {{task: regression}}\n").comparison.task == "regression"


def test_same_version_of_another_model_is_no_conflict(tmp_path: Path) -> None:
    pipeline = load(tmp_path, SHADOWS + "shadows: [{version: 1, model: other}]\n")
    assert pipeline.shadow_model(pipeline.shadows[0]) == ("other", 1)
