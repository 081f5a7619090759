"""Grafana's dashboards as files, and the queries of their panels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.deploy.declared import DEPLOY

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))

MODELS, ROLLOUTS = "Millstream: models", "Millstream: rollouts"
OF_ALL = ("Millstream: overview", "Millstream: lag per partition")
"""Dashboards that have data for a pipeline without shadows and without a rollout."""


class Query(NamedTuple):
    """One query of a panel."""

    dashboard: str
    panel: str
    expr: str

    def filled(self, **variables: str) -> str:
        """The expression as Grafana sends it."""
        expr = self.expr
        for name, value in variables.items():
            expr = expr.replace(f"${name}", value)
        assert "$" not in expr, expr
        return expr


def dashboards() -> list[dict[str, Any]]:
    """All of them."""
    return [json.loads(file.read_text("utf-8")) for file in FILES]


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Its panels without the rows' headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(*titles: str) -> Iterator[Query]:
    """Every query of every panel; with titles, of these dashboards only."""
    for dashboard in dashboards():
        if titles and dashboard["title"] not in titles:
            continue
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield Query(dashboard["title"], panel["title"], target["expr"])
