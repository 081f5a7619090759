"""What a PromQL expression asks for: metrics, and labels of them. Enough for our expressions, no parser of all of it."""

from __future__ import annotations

import re
from typing import NamedTuple

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_VARIABLE = re.compile(r"\$\{?\w+\}?")
_RANGE = re.compile(r"\[[^\]]*\]")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)?\s*\{([^}]*)\}")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_NAME = re.compile(r"(?<![\w.])[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])")
_WORDS = {
    "and",
    "or",
    "unless",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "bool",
    "offset",
    "Inf",
}


class Asked(NamedTuple):
    """What an expression names."""

    metrics: frozenset[str]
    matched: frozenset[tuple[str, str]]  # (metric, label) of each matcher
    grouped: frozenset[str]  # labels in `by`, `on` and so on


def asked(expression: str) -> Asked:
    """Take an expression apart; Grafana's variables stand for text."""
    bare = _VARIABLE.sub("", _TEXT.sub('""', expression))
    bare = _RANGE.sub("", bare)
    grouped = {label.strip() for labels in _GROUPING.findall(bare) for label in labels.split(",") if label.strip()}
    bare = _GROUPING.sub(" ", bare)
    matched = {(name, label) for name, inside in _SELECTOR.findall(bare) for label in _MATCHER.findall(inside)}
    bare = re.sub(r"\{[^}]*\}", "", bare)
    metrics = {name for name in _NAME.findall(bare) if name not in _WORDS}
    return Asked(frozenset(metrics), frozenset(matched), frozenset(grouped))
