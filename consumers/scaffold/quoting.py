"""Writes values for the double-quoted style of YAML, whose escapes differ from JSON's."""

import json


def quoted(value: object) -> str:
    """A value as JSON that YAML reads as the same. YAML knows no pairs of surrogates, which JSON writes for an emoji."""
    return "".join(map(_escaped, json.dumps(value, ensure_ascii=False)))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else f"\\U{ord(character):08x}"
