from pathlib import Path

import pytest

from millstream.consumers.rollout.declared import bandit_settings, maturity_ms, metric_rules, steps_of
from millstream.consumers.rollout.judging import MetricRule
from millstream.consumers.rollout.steps import AB_TEST, BLUE_GREEN, CANARY, MANUAL
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.rollout_section import Rollout
from tests.pipeline.pipeline_files import SMALL, load

BASE = SMALL.replace("  name: m\n", "  name: m\n  version: 1\n")
LABELS = "labels: {topic: outcomes, schema: outcome, event_id: id, value: late, wait: 2h}\n"


def declared(folder: Path, section: str = "", rest: str = LABELS) -> tuple[Pipeline, Rollout]:
    pipeline = load(folder, f"{BASE}{rest}rollout: {{{section}}}\n")
    assert pipeline.rollout is not None
    return pipeline, pipeline.rollout


def test_strategies_have_their_usual_steps(tmp_path: Path) -> None:
    _, rollout = declared(tmp_path)
    assert steps_of(rollout).shares == CANARY.shares
    assert steps_of(rollout, "blue-green").shares == BLUE_GREEN.shares
    assert steps_of(rollout, "blue-green").watch_ms == BLUE_GREEN.watch_ms
    assert (steps_of(rollout, "ab").shares, steps_of(rollout, "ab").finish) == (AB_TEST.shares, AB_TEST.finish)
    assert (steps_of(rollout, "manual").shares, steps_of(rollout, "manual").mode) == (MANUAL.shares, MANUAL.mode)


def test_options_reach_the_steps(tmp_path: Path) -> None:
    _, rollout = declared(
        tmp_path,
        "steps: [2, 10], approve: [10, 100], bake: 30s, least_labels: 7, longest: 2h, watch: 0s, on_breach: pause, mode: advise",
    )
    found = steps_of(rollout)
    assert (found.shares, found.approvals) == ((200, 1000), frozenset({1, 2}))
    assert (found.bake_ms, found.least_labels, found.longest_ms, found.watch_ms) == (30_000, 7, 7_200_000, 0)
    assert (found.on_breach, found.mode) == ("pause", "advise")


def test_metrics_have_defaults_by_task_and_labels(tmp_path: Path) -> None:
    def names(section: str, rest: str) -> list[str]:
        return [rule.name for rule in metric_rules(declared(tmp_path, section, rest)[0])]

    assert names("", LABELS) == ["accuracy", "errors", "dead_letters"]
    assert names("least_labels: 0", "") == ["errors", "dead_letters"]
    assert names("metrics: {brier: }", LABELS) == ["brier", "errors", "dead_letters"]
    assert names("strategy: manual", "") == ["errors", "dead_letters"]


def test_rules_have_the_metrics_options(tmp_path: Path) -> None:
    reward = "reward: {field: cost, better: lower, margin: 2, minimum_effect: 1, segment_margin: 3}"
    pipeline, _ = declared(tmp_path, f"metrics: {{accuracy: {{margin: 0.02}}, {reward}, errors: {{margin: 0.1}}}}")
    accuracy, cost, errors, _ = metric_rules(pipeline)
    assert accuracy == MetricRule("accuracy", "higher", 0.02, bounded=True)
    assert cost == MetricRule("reward", "lower", 2, 1, segment_margin=3)
    assert errors == MetricRule("errors", "lower", 0.1, exact=True, service=True)


@pytest.mark.parametrize(("section", "hours"), [("", 2), ("maturity: 30m", 0.5), ("maturity: 0s", 0)])
def test_labels_mature_when_none_may_come_any_more(tmp_path: Path, section: str, hours: float) -> None:
    assert maturity_ms(declared(tmp_path, section)[0]) == hours * 3_600_000


def test_bandit_has_the_baseline_as_an_arm(tmp_path: Path) -> None:
    reward = "metrics: {reward: {field: r, margin: 1, deviation: 20}}"
    _, rollout = declared(tmp_path, f"strategy: bandit, arms: [2, 3], least_share: 5, discount: 0.9, {reward}")
    found = bandit_settings(rollout)
    assert (found.arms, found.floor, found.discount, found.prior_deviation) == (3, 500, 0.9, 20)
    assert bandit_settings(rollout, arms=2).arms == 2
