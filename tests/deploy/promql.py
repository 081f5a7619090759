"""What a PromQL expression asks for: metrics, and labels of them."""

from __future__ import annotations

from typing import NamedTuple

import promql_parser as promql


class Asked(NamedTuple):
    """What an expression names."""

    metrics: frozenset[str]
    matched: frozenset[tuple[str, str]]  # (metric, label) of each matcher
    grouped: frozenset[str]  # labels in `by`, `on` and so on


def asked(expression: str) -> Asked:
    """Take an expression apart; ValueError where Prometheus would refuse it. Grafana's variables stand in texts only."""
    metrics: set[str] = set()
    matched: set[tuple[str, str]] = set()
    grouped: set[str] = set()

    def look(node: promql.Expr) -> None:
        match node:
            case promql.VectorSelector():
                assert node.name is not None, f"no metric is named in {expression}"
                metrics.add(node.name)
                matched.update((node.name, matcher.name) for matcher in node.matchers.matchers)
            case promql.AggregateExpr(modifier=modifier) if modifier is not None:
                grouped.update(modifier.labels)
            case promql.BinaryExpr(modifier=modifier) if modifier is not None:
                grouped.update(modifier.matching.labels if modifier.matching else ())
                grouped.update(modifier.group_labels or ())

    promql.walk(promql.parse(expression), look)
    return Asked(frozenset(metrics), frozenset(matched), frozenset(grouped))
