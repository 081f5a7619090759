"""Lets fastavro read maps of which some keys are wanted: as arrays of entries, which have the same encoding.

A dict would hide that a key occurs twice, and fastavro can't read a map as a record.
"""

from collections.abc import Sequence
from typing import Any

from millstream.schemas.avro.types import kind_of, map_values, nullable
from millstream.schemas.errors import Unreadable
from millstream.schemas.store import AvroType


def with_entries(tree: AvroType) -> AvroType:
    """A wanted type, with arrays of entries in place of the records that stand for maps."""
    if isinstance(tree, list):
        return [with_entries(branch) for branch in tree]
    if (values := map_values(tree)) is not None:
        return _entries(with_entries(values))
    match kind_of(tree):
        case "array":
            return {**tree, "items": with_entries(tree["items"])}
        case "record":
            return {**tree, "fields": [{**entry, "type": with_entries(entry["type"])} for entry in tree["fields"]]}
    return tree


def written_with_entries(tree: AvroType, wanted: AvroType) -> AvroType:
    """The writer's type, with arrays of entries in place of the maps of which keys are wanted."""
    if isinstance(tree, list):
        return [written_with_entries(branch, wanted) for branch in tree]
    core, _ = nullable(wanted)
    values, kind = map_values(core), kind_of(tree)
    if values is not None:
        return _entries(written_with_entries(tree["values"], values)) if kind == "map" else tree
    if kind == kind_of(core) == "array":
        return {**tree, "items": written_with_entries(tree["items"], core["items"])}
    if kind == kind_of(core) == "record":
        return {**tree, "fields": [_written_field(entry, core["fields"]) for entry in tree["fields"]]}
    return tree


def _written_field(entry: dict[str, Any], wanted: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A field of the writer's record. `wanted`: the fields that are read of it."""
    found = next((one for one in wanted if entry["name"] in (one["name"], *one.get("aliases", ()))), None)
    return entry if found is None else {**entry, "type": written_with_entries(entry["type"], found["type"])}


def _entries(values: AvroType) -> AvroType:
    fields = [{"name": "key", "type": "string"}, {"name": "value", "type": values}]
    return {"type": "array", "items": {"type": "record", "name": "MapEntry", "fields": fields}}


def has_maps(tree: AvroType) -> bool:
    """Whether there are maps in a wanted type."""
    core, _ = nullable(tree)
    match kind_of(core):
        case "array":
            return has_maps(core["items"])
        case "record":
            return map_values(core) is not None or any(has_maps(entry["type"]) for entry in core["fields"])
    return False


def with_maps(value: Any, tree: AvroType, place: str) -> Any:
    """A value of a wanted type, with dicts of the wanted keys in place of the entries of maps.

    Raises Unreadable if a map has a wanted key twice. `place` is that of the value, for the message.
    """
    core, _ = nullable(tree)
    if value is None:
        return None
    if map_values(core) is not None:
        return _wanted_keys(value, core, place)
    match kind_of(core):
        case "array":
            return [with_maps(item, core["items"], place) for item in value]
        case "record":
            fields = [(entry["name"], entry["type"]) for entry in core["fields"]]
            return {name: with_maps(value[name], of, f"{place}.{name}") for name, of in fields}
    return value


def _wanted_keys(entries: Any, core: dict[str, Any], place: str) -> dict[str, Any]:
    """The wanted keys of a map. `entries`: its entries; or a default, which is a dict already."""
    if isinstance(entries, dict):
        return entries
    types = {entry["name"]: entry["type"] for entry in core["fields"]}
    found: dict[str, Any] = {}
    for entry in entries:
        key = entry["key"]
        if key in types:
            if key in found:
                raise Unreadable("undecodable", f"field '{place}[\"{key}\"]': the map has this key twice")
            found[key] = with_maps(entry["value"], types[key], f'{place}["{key}"]')
    return dict.fromkeys(types) | found
