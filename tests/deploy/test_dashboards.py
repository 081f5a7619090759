"""The dashboards as files: they load in Grafana, and ask for what there is."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pytest
import yaml

from tests.deploy.dashboards import FILES, Query, dashboards, panels, queries
from tests.deploy.declared import DEPLOY, served
from tests.deploy.promql import asked

FIGURES = ("agreement", "psi", "error_rate", "primary_auc", "shadow_auc")
DOCS = DEPLOY.parent / "docs"


def test_metrics_and_labels_of_an_expression_are_found() -> None:
    found = asked('sum by (le, a) (rate(x_bucket{p="$v", q=~"y|z"}[5m])) / on (b) (a:x:rate1m > 0) and y == +Inf')
    assert found.metrics == {"x_bucket", "a:x:rate1m", "y"}
    assert found.matched == {("x_bucket", "p"), ("x_bucket", "q")}
    assert found.grouped == {"le", "a", "b"}
    joined = asked("sum without (a) (x) * ignoring (b) group_left (c) y")
    assert joined.metrics == {"x", "y"}
    assert joined.grouped == {"a", "b", "c"}


@pytest.mark.parametrize("expression", ["sum by (a", "rate(x)", "rat(x[5m])", "x{a=}", "sum(x[5m])"])
def test_expression_that_prometheus_refuses_is_refused(expression: str) -> None:
    with pytest.raises(ValueError):
        asked(expression)


def test_every_series_says_of_which_pipeline_it_is() -> None:
    assert {name for name, labels in served().items() if "pipeline" not in labels} == {"up"}


@pytest.mark.parametrize("query", list(queries()), ids=lambda query: f"{query.panel}")
def test_every_query_asks_for_what_the_code_serves(query: Query) -> None:
    found = asked(query.expr)
    assert found.metrics
    assert found.metrics <= served().keys()
    for metric, label in found.matched:
        assert label in served()[metric], f"{metric} has no label {label}"
    assert found.grouped <= frozenset().union(*(served()[metric] for metric in found.metrics))


@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda dashboard: dashboard["uid"])
def test_panels_lie_beside_each_other_and_say_what_they_show(dashboard: dict[str, Any]) -> None:
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in panels(dashboard):
        assert panel["description"].endswith((".", "?")), panel["title"]
        assert panel["targets"], panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
    for one, other in combinations((panel["gridPos"] for panel in dashboard["panels"]), 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
        assert one["x"] + one["w"] <= 24


@pytest.mark.parametrize("dashboard", dashboards(), ids=lambda dashboard: dashboard["uid"])
def test_every_variable_that_is_used_is_there(dashboard: dict[str, Any]) -> None:
    text = str(dashboard)
    used = set(re.findall(r"\$\{?(\w+)\}?", text))
    assert used == {variable["name"] for variable in dashboard["templating"]["list"]}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert found is not None
            (metric,) = asked(found[1]).metrics
            assert found[2] in served()[metric]


def test_files_are_found_by_their_uid_which_is_unique() -> None:
    assert FILES
    assert [dashboard["uid"] for dashboard in dashboards()] == [file.stem for file in FILES]


def test_provisioning_names_the_data_source_and_the_folder_of_compose() -> None:
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text("utf-8"))["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "millstream.yml").read_text("utf-8"))["providers"]
    compose = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text("utf-8"))
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in compose["services"]
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    assert mounts["./deploy/grafana/dashboards"] == provider["options"]["path"]
    assert mounts["./deploy/grafana/provisioning"] == "/etc/grafana/provisioning"


def test_pages_name_panels_that_there_are() -> None:
    """In the runbook and the dashboards' page a panel's title stands in italics."""
    titles = [panel["title"] for dashboard in dashboards() for panel in panels(dashboard)]
    legends = [target["legendFormat"] for d in dashboards() for panel in panels(d) for target in panel["targets"]]
    rows = [panel["title"] for dashboard in dashboards() for panel in dashboard["panels"] if panel["type"] == "row"]
    known = [*titles, *legends, *rows, *(dashboard["title"].removeprefix("Millstream: ") for dashboard in dashboards())]
    for page in ("runbook.md", "dashboards.md"):
        for name in re.findall(r"(?<![*\w])\*([^*\n]+)\*(?!\*)", (DOCS / page).read_text("utf-8")):
            assert any(title.lower().startswith(name.lower()) for title in known), f"{page}: *{name}*"
