"""Generates the reference page and the editors' schema of the pipeline file from the pydantic models.

`python -m millstream.pipeline.reference` writes docs/pipeline.md and docs/pipeline.schema.json anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.pipeline.json_schema import JsonSchema, schema_tree
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.problems import yaml_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DOCS = Path(__file__).parents[2] / "docs"
_TABLE_HEAD = "| option | type | default | description |\n|---|---|---|---|\n"
_VARIABLE: JsonSchema = {"type": "string", "pattern": r"\$\{"}

_INTRODUCTION = """\
<!-- Made by `python -m millstream.pipeline.reference`: change the descriptions in pipeline/sections.py, not this page. -->
# The pipeline file

One YAML file describes one pipeline. This is a whole one:

```yaml
{example}```

`millstream check FILE` reports every mistake in a file with its line number. Editors check and complete with
[pipeline.schema.json](pipeline.schema.json). Many editors need this first line in the file:
`# yaml-language-server: $schema=pipeline.schema.json`. `millstream options SECTION` prints the options of one section.

- **Variables.** `${{NAME}}` in a value is replaced by the environment variable NAME, `${{NAME:-default}}` by the default where
  NAME is unset or empty. `$${{` is a plain `${{`. What a variable holds is never read as YAML structure. Inside `{{ }}` and
  `[ ]` a variable needs quotes: `["${{TOPIC}}"]`.
- **Secrets.** Values under `kafka.client`, `schemas.registry.password`, `feature_store.password`, and those under
  `rollout.webhook` may be `{{file: PATH}}` (a trailing line break is dropped) or `{{env: NAME}}`. They are read when the file is,
  and no log or error shows them.
- **Somebody else's pipeline file.** `millstream check` connects to the brokers, the registry and the feature store that it
  names, reads the files that it names, and loads its [model](models.md#models-from-others), which runs code if it is a
  `model.py`, and may if `model.trust` is true. With `feature_store.type: feast`, Feast reads `feature_store.yaml`, which can name
  Python classes to load. Nothing else in the file runs code. `kafka.client` refuses properties that make librdkafka load a
  library or run a command (`plugin.library.paths`, `ssl.engine.location`, `ssl.engine.id`, `sasl.kerberos.kinit.cmd`).
  `ssl.providers`, `sasl.kerberos.principal`, `sasl.kerberos.keytab` and `sasl.kerberos.service.name` take names only, without
  characters that are special to a shell or a library loader.
- **Durations** are `250us`, `5ms`, `0.5s`, `2m`, `1h`; **sizes** are `512B`, `64KiB`, `1MiB`, `2GiB` (by 1024) or `64KB`, `1MB`,
  `2GB` (by 1000). The unit is never left out.
- **File paths** are relative to the folder of the pipeline file. *Path of the field* means a [path](models.md#paths) in the
  event.
- An option without a default and not marked *required* may be left out; its description says what holds then.
  An option that is *required* is so only where its section, or its entry of a list, is used.
"""

EXAMPLE = """\
name: flights-delay
kafka:
  bootstrap: ${KAFKA_BOOTSTRAP:-127.0.0.1:9092}
  client:
    client.rack: ${RACK:-a}
input:
  topic: flights-departures
  format: avro
  schema: flight-departure
  event_id: id
  event_time: departed_at
output:
  topic: flights-predictions
model:
  name: flights-delay
batch:
  max_events: 256
  max_wait: 5ms
"""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the pipeline file."""

    path: str  # "batch.max_wait"
    type: str  # "duration"
    default: str | None  # as it is written in the file; None: there is none
    description: str
    required: bool


def options() -> list[Option]:
    """Return every option, in the order of the reference page. Sections themselves are not listed."""
    schema = schema_tree(Pipeline)
    # The usual section comes first. Pydantic must read `models` before it.
    several = schema["properties"].pop("models")
    places = list(schema["properties"].items())
    after = 1 + list(schema["properties"]).index("model")
    schema["properties"] = dict([*places[:after], ("models", several), *places[after:]])
    return list(_options(schema, ""))


def json_schema() -> JsonSchema:
    """Return the JSON schema (2020-12) of a pipeline file before its variables are replaced."""
    schema = schema_tree(Pipeline)
    _allow_topic(schema["properties"]["input"])
    schema["oneOf"] = [{"required": ["model"]}, {"required": ["models"]}]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Millstream pipeline"}
    return {
        **head,
        **_with_variables(schema),
        "description": "One pipeline; `millstream docs pipeline` lists every option.",
    }


def options_markdown() -> str:
    """Return the reference page, docs/pipeline.md."""
    parts = [_INTRODUCTION.format(example=EXAMPLE)]
    sections = schema_tree(Pipeline)["properties"]
    section = None
    for option in options():
        head, dot, _ = option.path.partition(".")
        if (head if dot else "") != section:
            section = head if dot else ""
            heading = "## The pipeline"
            if section:
                heading = f"## `{section}`\n\n{sections[section.removesuffix('[]')]['description']}"
            parts.append(f"\n{heading}\n\n{_TABLE_HEAD}")
        parts.append(_row(option))
    return "".join(parts)


def table_of(found: Sequence[Option]) -> str:
    """Return these options as they are on the reference page."""
    return _TABLE_HEAD + "".join(map(_row, found))


def _row(option: Option) -> str:
    default = "*required*" if option.required else f"`{option.default}`" if option.default is not None else ""
    kind = option.type.replace("|", "\\|")
    return f"| `{option.path}` | {kind} | {default} | {option.description} |\n"


def _options(section: JsonSchema, prefix: str) -> Iterator[Option]:
    required = section.get("required", ())
    # The section's own options before those of the sections in it.
    for key, option in sorted(section["properties"].items(), key=lambda item: _has_options(item[1])):
        if "properties" in option:
            yield from _options(option, f"{prefix}{key}.")
            continue
        if "properties" in option.get("items", ()):  # a list of sections
            yield from _options(option["items"], f"{prefix}{key}[].")
            continue
        default = yaml_text(option["default"]) if "default" in option else None
        yield Option(
            f"{prefix}{key}", _type(option), default, option["description"], key in required and default is None
        )


def _has_options(option: JsonSchema) -> bool:
    return "properties" in option or "properties" in option.get("items", ())


def _type(option: JsonSchema) -> str:
    if "enum" in option or "const" in option:
        return " | ".join(option.get("enum", [option.get("const")]))
    names = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "object": "mapping",
        "array": "list",
    }
    kind: str = option.get("$comment") or names[option["type"]]
    if kind == "list":
        if option["items"].keys() & {"enum", "const"}:
            return f"list of {_type(option['items'])}"
        return f"list of {_type(option['items'])}s".replace("topic's names", "topics' names")
    return kind


def _allow_topic(section: JsonSchema) -> None:
    """Add the short form `topic`, which pydantic accepts as another name of `topics`."""
    topics = section["properties"]["topics"]
    section["properties"]["topic"] = {**topics["items"], "description": "Topic to read; short for `topics` with one."}
    section["required"] = [key for key in section["required"] if key != "topics"]
    section["oneOf"] = [{"required": ["topic"]}, {"required": ["topics"]}]


def _with_variables(node: JsonSchema) -> JsonSchema:
    """Return the schema that also allows `${NAME}` in place of every single value."""
    changed = dict(node)
    if "properties" in node:
        changed["properties"] = {key: _with_variables(value) for key, value in node["properties"].items()}
        # An option with a default is not required, even if pydantic's schema says so.
        required = [key for key in node.get("required", ()) if "default" not in node["properties"][key]]
        changed.pop("required", None)
        return {**changed, "required": required} if required else changed
    if isinstance(node.get("items"), dict):
        changed["items"] = _with_variables(node["items"])
    if (
        node.get("type") in {"object", "array"}
        or "anyOf" in node
        or not node.keys() & {"enum", "const", "pattern", "type"}
    ):
        return changed
    if node.get("type") == "string" and not node.keys() & {"enum", "const", "pattern"}:
        return changed
    told: JsonSchema = {key: changed.pop(key) for key in ("description", "default", "examples") if key in changed}
    return {**told, "anyOf": [changed, _VARIABLE]}


def main() -> None:
    """Write the generated pages."""
    (_DOCS / "pipeline.md").write_text(options_markdown(), encoding="utf-8")
    (_DOCS / "pipeline.schema.json").write_text(json.dumps(json_schema(), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
