"""Makes one tree of a pydantic model's JSON schema, for error messages, the reference page and editors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel

JsonSchema = dict[str, Any]


def schema_tree(model: type[BaseModel]) -> JsonSchema:
    """Return the JSON schema of a file, with each section in its place.

    No `$ref`, no titles made from names, and `X or null` as X: leaving the key out says the same.
    """
    schema = model.model_json_schema(by_alias=True, mode="validation")
    tree = _tree(schema, schema.get("$defs", {}))
    assert isinstance(tree, dict)
    tree.pop("$defs", None)
    return tree


def schema_at(tree: JsonSchema, loc: tuple[str | int, ...]) -> JsonSchema:
    """Return the part of the tree that describes the option at `loc`; {} if there is none."""
    node = tree
    for step in loc:
        node = _section(node)
        if isinstance(step, int):
            node = node.get("items", {})
        else:
            others = node.get("additionalProperties", {})
            node = node.get("properties", {}).get(step, others if isinstance(others, dict) else {})
    return _section(node)


def _section(node: JsonSchema) -> JsonSchema:
    """The mapping, of several forms that an option may have; otherwise the option."""
    return next((form for form in node.get("anyOf", ()) if "properties" in form), node)


def _tree(node: object, definitions: JsonSchema) -> object:
    if isinstance(node, list):
        return [_tree(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].removeprefix("#/$defs/")]
        return _tree({**target, **{key: value for key, value in node.items() if key != "$ref"}}, definitions)
    others = [item for item in node.get("anyOf", ()) if item != {"type": "null"}]
    if "anyOf" in node and len(others) == 1:
        return _tree({**{key: value for key, value in node.items() if key != "anyOf"}, **others[0]}, definitions)
    tree: JsonSchema = {}
    for key, value in node.items():
        if key == "properties":  # a property may be called "title"
            tree[key] = {name: _tree(item, definitions) for name, item in value.items()}
        elif key not in {"title", "$defs"}:
            tree[key] = _tree(value, definitions)
    if tree.get("default", ...) in (None, {}):
        del tree["default"]
    return tree
