"""The text of a first pipeline.yaml and config.yaml. Each guess is a comment that begins with GUESS."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millstream.consumers.scaffold.guesses import FieldGuess, InputGuess
from millstream.consumers.scaffold.quoting import quoted
from millstream.inference.mapping import PLACEHOLDER

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")  # what YAML reads as text without quotes, but for the words below
NO_TOPIC = "a sample in a file doesn't say which topic the events are in"
MAX_NAME = 50  # bytes of a vocabulary file's name, besides its number and its ending
MAX_INLINE = 12  # entries of a vocabulary that stand in config.yaml; a longer one gets a file


def guessed_topic(name: str) -> str:
    """The input topic of a pipeline whose sample is a file."""
    return f"{name}-events"


def pipeline_text(
    name: str,
    topic: str | None,
    event_id: FieldGuess | None,
    event_time: FieldGuess | None,
    why_no_id: str,
    conditions: Sequence[str] = (),
) -> str:
    """The pipeline file for JSON events.

    Args:
        name: the pipeline's.
        topic: that the sample is from; None: it is from a file.
        event_id: the field that names an event; None: there is none.
        event_time: the field with its time; None: there is none.
        why_no_id: why there is no `event_id`, if there is none.
        conditions: of the filter.
    """
    guess = "" if topic else f"   # GUESS: {NO_TOPIC}"
    lines = [
        f"name: {_yaml(name)}",
        "",
        "kafka:",
        "  bootstrap: ${KAFKA_BOOTSTRAP:-127.0.0.1:9092}",
        "",
        "input:",
        f"  topics: [{_yaml(topic or guessed_topic(name))}]{guess}",
        "  format: json",
        *([f"  filter: {_yaml(list(conditions))}"] if conditions else []),
        *_own_fields(event_id, event_time, why_no_id),
        "  # key: FIELD   # `millstream produce` keys records by this field (millstream docs pipeline)",
        "",
        "output:",
        f"  topic: {_yaml(f'{name}-predictions')}",
        "  format: json",
        "",
        "model:",
        f"  name: {_yaml(name)}   # models/{name}/<version>/",
        "  version: 1",
        "",
        "batch:",
        "  max_events: 256",
        "  max_wait: 5ms",
        "",
        *_later(name),
    ]
    return "\n".join(lines) + "\n"


def _later(name: str) -> Sequence[str]:
    """Sections that a first pipeline does without."""
    return (
        "# True outcomes, which show how good a model is (millstream docs comparison):",
        f"# labels: {{topic: {_yaml(f'{name}-labels')}, format: json, event_id: FIELD, value: FIELD}}",
        "# A new version takes over step by step (millstream docs rollouts):",
        "# rollout: {strategy: manual}",
    )


def _own_fields(event_id: FieldGuess | None, event_time: FieldGuess | None, why_no_id: str) -> Iterator[str]:
    if event_id is None:
        yield f"  # event_id: FIELD   # {why_no_id}. Without it, the ID is <topic>-<partition>-<offset>"
    else:
        yield f"  event_id: {_unexpanded(event_id)}   # GUESS: {event_id.why}"
    if event_time is None:
        yield "  # event_time: FIELD   # no field is clearly the event's time; the record's timestamp counts"
    else:
        yield f"  event_time: {_unexpanded(event_time)}   # GUESS: {event_time.why}"
        if event_time.options["format"] != "milliseconds":
            yield f"  event_time_format: {event_time.options['format']}"


def _unexpanded(one: FieldGuess) -> str:
    """The field for the pipeline file, where `${` begins a variable."""
    return _yaml(one.options["field"]).replace("${", "$${")


def config_text(inputs: Sequence[InputGuess], outputs: Sequence[str], files: Mapping[str, str]) -> str:
    """The model's config.yaml. `files`: from `vocabulary_files`."""
    lines = ["# How event fields fill the model's inputs (millstream docs models).", "inputs:"]
    for entry in inputs:
        if entry.why:
            lines.append(f"  # GUESS: {entry.why}")
        lines += [f"  - tensor: {_yaml(entry.tensor)}", f"    dtype: {entry.dtype}"]
        lines += [f"    {name}: {_yaml(value)}" for name, value in entry.options.items()]
        if entry.is_list:
            options = [option for one in entry.fields for option in _with_file(one, files).items()]  # a mask has none
            lines += [f"    {name}: {_yaml(value)}" for name, value in options]
            continue
        lines.append("    fields:")
        lines += [f"      - {_field(one, files)}" for one in entry.fields]
    lines.append("outputs:")
    if not outputs:
        lines += [
            "  # GUESS: the file doesn't say which outputs the model has. Write the keys of the dict that it returns; for a "
            "torch model that returns tensors, a name of yours for each, in their order",
            f"  - tensor: {PLACEHOLDER}",
        ]
    return "\n".join([*lines, *(f"  - tensor: {_yaml(name)}" for name in outputs)]) + "\n"


def vocabulary_files(inputs: Sequence[InputGuess]) -> dict[str, str]:
    """The vocabularies that get a file of their own, because they are too long for config.yaml: path of the field -> file."""
    files: dict[str, str] = {}
    for one in (one for entry in inputs for one in entry.fields):
        vocabulary = one.options.get("vocabulary", ())
        # A file has one entry per line.
        if len(vocabulary) > MAX_INLINE and not any(not text or "\n" in text or "\r" in text for text in vocabulary):
            path = one.options["field"]
            plain = "".join(character if character.isalnum() else "_" for character in path)[:MAX_NAME]
            taken = f"{plain}.txt" in files.values()
            files[path] = f"{plain}_{len(files)}.txt" if taken else f"{plain}.txt"
    return files


def _field(one: FieldGuess, files: Mapping[str, str]) -> str:
    return entry_text(_with_file(one, files)) + (f"   # GUESS: {one.why}" if one.why else "")


def _with_file(one: FieldGuess, files: Mapping[str, str]) -> dict[str, Any]:
    """The options of a field, with the file of its vocabulary if it has one."""
    path = one.options["field"]
    return one.options | ({"vocabulary": files[path]} if path in files else {})


def entry_text(options: Mapping[str, Any]) -> str:
    """A field with its options, as it stands in the list `fields` of config.yaml."""
    if set(options) == {"field"}:
        return _yaml(options["field"])
    return f"{{{', '.join(f'{name}: {_yaml(value)}' for name, value in options.items())}}}"


def _yaml(value: Any) -> str:
    """A value in YAML's flow style. What could be read as something else is quoted."""
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return (
            quoted(value) if value.lower() in {"true", "false", "null", "yes", "no", "on", "off", "y", "n"} else value
        )
    return quoted(value)
