"""Escapes untrusted text for a terminal, so that its escape sequences and bidirectional controls have no effect."""

from __future__ import annotations

import json
from typing import Any


def printable(text: str) -> str:
    """Replace each non-printable character (control, bidirectional, ...) by its Python escape, such as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def printable_json(value: Any, *, indent: int | None = None, ascii_only: bool = False) -> str:
    """The value as JSON, with more escapes: JSON itself doesn't escape DEL, C1 controls and bidirectional marks."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))
