"""The section `rollout`, its checks, and what it declares."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.pipeline.rollout_conflicts import strategy_conflicts
from millstream.pipeline.rollout_section import Strategy
from millstream.pipeline.shares import SLOTS, parse_share, share_text
from tests.pipeline.pipeline_files import SMALL, lines_of, load

BASE = SMALL.replace("  name: m\n", "  name: m\n  version: 1\n")
LABELS = "labels: {topic: outcomes, schema: outcome, event_id: id, value: late}\n"
UNLABELLED = "least_labels: 0"


@given(st.integers(0, SLOTS))
def test_share_survives_its_text(slots: int) -> None:
    assert parse_share(share_text(slots)) == slots


@pytest.mark.parametrize(
    ("written", "slots"), [(5, 500), (1, 100), ("0.5%", 50), (12.5, 1250), ("100 %", SLOTS), (0, 0)]
)
def test_share_is_a_percentage(written: object, slots: int) -> None:
    assert parse_share(written) == slots


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (0.05, r"found 0\.05 without a unit: write 0\.05% or 5%"),
        (101, "from 0% to 100%, found the number 101"),
        ("100.01%", "from 0% to 100%, found"),
        (-1, "from 0% to 100%, found the number -1"),
        (True, "from 0% to 100%, found"),
        ("many", "from 0% to 100%, found"),
        ("0.001%", "whole hundredths of a percent"),
        (float("nan"), "from 0% to 100%, found"),
    ],
)
def test_other_shares_are_refused(written: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_share(written)


def test_usual_canary_is_short(tmp_path: Path) -> None:
    rollout = load(tmp_path, BASE + LABELS + "rollout:\n").rollout
    assert rollout is not None
    assert (rollout.topic, rollout.evaluations) == ("small-rollout", "small-rollout-evaluations")
    assert rollout.step_shares() == (100, 500, 2500, 5000)
    assert [*rollout.quality("classification", labels=True)] == ["accuracy"]


def test_fields_that_predictions_lack_are_named_together(tmp_path: Path) -> None:
    section = "rollout: {segments: [country], metrics: {input_drift: {fields: [amount]}}}\n"
    found = [
        line for line in lines_of(tmp_path, BASE + LABELS + section) if "expected fields of `output.include`" in line
    ]
    assert len(found) == 2
    assert all("Write `include: [country, amount]` under `output:`." in line for line in found)


def test_without_the_section_there_is_no_rollout(tmp_path: Path) -> None:
    assert load(tmp_path, BASE).rollout is None


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("steps: [50, 25]", "rollout.steps: expected rising shares above 0% and below 100%, found 50%, 25%"),
        ("steps: [5, 100]", "rollout.steps: expected rising shares above 0% and below 100%, found 5%, 100%"),
        ("steps: [0, 5]", "rollout.steps: expected rising shares above 0%"),
        ("steps: [5, 120]", "rollout.steps[1]: expected a share from 0% to 100%, found the number 120"),
        ("steps: [0.05]", "rollout.steps[0]: expected a share such as 5%, found 0.05 without a unit"),
        ("strategy: ab, steps: [5]", "rollout.steps: expected `strategy: canary` beside it, found `strategy: ab`"),
        ("share: 5", "rollout.share: expected `strategy: ab` beside it, found `strategy: canary`"),
        ("strategy: ab, share: 100", "rollout.share: expected more than 0% and less than 100%, found 100%"),
        ("strategy: ab, approve: [100]", "rollout.approve: expected `strategy: canary` beside it"),
        ("approve: [1]", "rollout.approve: expected shares of 5%, 25%, 50%, 100%, found 1%"),
        ("strategy: bandit, arms: [1, 2]", "rollout.arms: version 1 is the baseline (model.version)"),
        ("strategy: bandit, arms: [2, 2]", "rollout.arms: expected each version once, found [2, 2]"),
        ("strategy: bandit", "rollout.arms: expected the versions beside the baseline, found nothing"),
        ("strategy: bandit, arms: [2]", "rollout.metrics: expected `reward`, because a bandit's shares follow it"),
        ("strategy: bandit, arms: [2, 3], least_share: 34", "rollout.least_share: expected whole percent"),
        ("strategy: bandit, arms: [2], least_share: 1.5%", "rollout.least_share: expected whole percent"),
        ("strategy: blue-green", "rollout.strategy: expected `shadows:` with the candidate's version"),
        (
            "strategy: blue-green, metrics: {reward: {field: r, margin: 1}}",
            "rollout.metrics.reward: expected another metric of quality beside it, because a shadow has no reward of its own",
        ),
        (
            "start_after_shadow: 2h, metrics: {reward: {field: r, margin: 1}}",
            "rollout.metrics.reward: expected another metric of quality beside it",
        ),
        ("strategy: bluegreen", "rollout.strategy: expected canary, blue-green, ab, bandit or manual, found"),
        ("", "rollout.strategy: expected `labels:`, because `strategy: canary` compares the versions by them"),
        (
            f"{UNLABELLED}, metrics: {{accuracy: }}",
            "rollout.metrics.accuracy: expected `labels:` beside it, found none",
        ),
        (
            "metrics: {absolute_error: {margin: 1}}",
            "expected `comparison.task: regression` beside it, found classification",
        ),
        (
            "metrics: {accuracy: {margin: 5}}",
            "accuracy.margin: expected less than 1, found the number 5. It is a share: write",
        ),
        (
            "metrics: {accuracy: {minimum_effect: 3}}",
            "accuracy.minimum_effect: expected less than 1, found the number 3.",
        ),
        ("metrics: {brier: {segment_margin: 1}}", "brier.segment_margin: expected less than 1, found the number 1."),
        ("metrics: {latency: {quantile: 1}}", "latency.quantile: expected less than 1, found the number 1"),
        ("metrics: {accuracy: {margin: 0}}", "rollout.metrics.accuracy: expected `margin` or `minimum_effect` above 0"),
        ("metrics: {latency: {at_most: 0.9}}", "rollout.metrics.latency.at_most: expected more than 1"),
        ("metrics: {acuracy: {}}", "rollout.metrics.acuracy: unknown key. Did you mean accuracy?"),
        (f"{UNLABELLED}, maturity: 1h", "rollout.maturity: expected `labels:` beside it"),
        ("segments: [country]", "rollout.segments: expected fields of `output.include`, found country"),
        ("start_after_shadow: 2h", "rollout.start_after_shadow: expected `shadows:` with the candidate's version"),
        ("level: 0", "rollout.level: expected more than 0"),
        ("topic: predictions", "rollout.topic: predictions is also output.topic"),
        ("evaluations: small-rollout", "rollout.evaluations: small-rollout is also rollout.topic"),
        ("webhook: {url: 'ftp://secret'}", "rollout.webhook.url: expected a URL that begins with http:// or https://"),
    ],
)
def test_each_problem_is_named_with_its_place(tmp_path: Path, section: str, problem: str) -> None:
    found = lines_of(tmp_path, f"{BASE}rollout: {{{section}}}\n")
    assert any(problem in line for line in found), found
    assert not any("ftp://secret" in line for line in found)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("model: {name: m, version: latest}", "model.version: expected a number beside `rollout`, found latest"),
        ("model: {name: m, version: champion}", "model.version: expected a number beside `rollout`, found champion"),
        ("model: {name: m, repository: 'models:/m@champion'}", "model.repository: expected a number beside `rollout`"),
        (
            "models: {cascade: [{model: a, escalate: {output: p, below: 1}}, {model: b}]}",
            "rollout: expected no rollout beside",
        ),
    ],
)
def test_baseline_is_one_version_of_one_model(tmp_path: Path, model: str, problem: str) -> None:
    text = SMALL.replace("model:\n  name: m\n", f"{model}\nrollout: {{strategy: manual}}\n")
    assert any(problem in line for line in lines_of(tmp_path, text))


def test_regression_needs_a_margin(tmp_path: Path) -> None:
    text = BASE + LABELS + "comparison: {task: regression}\nrollout:\n"
    assert any("rollout.metrics: expected a metric of quality" in line for line in lines_of(tmp_path, text))


@pytest.mark.parametrize(
    ("strategy", "places"),
    [
        ("manual", []),
        ("canary", []),
        ("blue-green", [("rollout", "metrics", "reward"), ("rollout", "strategy")]),
        ("bandit", [("rollout", "arms")]),
    ],
)
def test_another_strategy_than_the_files_is_checked_too(
    tmp_path: Path, strategy: Strategy, places: list[tuple[str, ...]]
) -> None:
    pipeline = load(tmp_path, BASE + LABELS + "rollout: {metrics: {reward: {field: r, margin: 1}}}\n")
    assert pipeline.rollout is not None
    assert [place for place, _ in strategy_conflicts(pipeline, pipeline.rollout, strategy)] == places
