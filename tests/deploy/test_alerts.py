"""The rules as files: they ask for what there is, promtool takes them, and each alert has its page in the runbook."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from tests.deploy.declared import DEPLOY, rules, served
from tests.deploy.promql import asked

HERE = DEPLOY.parent / "tests" / "deploy"
RUNBOOK = (DEPLOY.parent / "docs" / "runbook.md").read_text("utf-8")
ALERTS = rules("alerts.yml")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install --no-install-recommends prometheus"
)


@pytest.mark.parametrize(
    "rule", [*ALERTS, *rules("recording.yml")], ids=lambda rule: rule.get("alert") or rule["record"]
)
def test_every_rule_asks_for_what_the_code_serves(rule: dict[str, Any]) -> None:
    found = asked(rule["expr"])
    assert found.metrics
    assert found.metrics <= served().keys()
    for metric, label in found.matched:
        assert label in served()[metric], f"{metric} has no label {label}"
    known = frozenset().union(*(served()[metric] for metric in found.metrics))
    assert found.grouped <= known
    told = set(re.findall(r"\$labels\.(\w+)", str(rule.get("annotations", ""))))
    assert told <= (found.grouped or known), "the text names labels that the alert has not"


def test_every_alert_has_a_section_in_the_runbook_and_every_section_an_alert() -> None:
    sections = re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == [rule["alert"] for rule in ALERTS]


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_every_alert_says_how_bad_it_is_and_where_to_read_on(rule: dict[str, Any]) -> None:
    assert rule["annotations"]["runbook"] == f"millstream docs runbook#{rule['alert'].lower()}"
    assert rule["annotations"]["summary"].endswith(".")
    section = RUNBOOK.split(f"## {rule['alert']}\n")[1].split("\n## ")[0]
    assert f"**Severity:** {rule['labels']['severity']}" in section
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert "**Do:**" in section


def test_every_alert_is_tried_in_its_fault() -> None:
    cases = yaml.safe_load((HERE / "alerts_test.yml").read_text("utf-8"))["tests"]
    tried = {test["alertname"] for case in cases for test in case.get("alert_rule_test", []) if test["exp_alerts"]}
    assert tried == {rule["alert"] for rule in ALERTS}


@needs_promtool
@pytest.mark.parametrize(
    "command",
    [
        ["check", "config", "deploy/prometheus/prometheus.yml"],
        pytest.param(["test", "rules", "tests/deploy/alerts_test.yml"], marks=pytest.mark.full),
    ],
    ids=["config and rules are valid", "each alert fires in its fault and not at rest"],
)
def test_promtool(command: list[str]) -> None:
    done = subprocess.run(
        ["promtool", *command], cwd=DEPLOY.parent, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
