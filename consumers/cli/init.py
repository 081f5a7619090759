"""`millstream init`: creates a folder with a working pipeline: an example, or one for a model and events of yours."""

import argparse
import glob
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from millstream.consumers.cli.arguments import positive
from millstream.consumers.cli.event_file import json_lines, json_row, opened, place
from millstream.consumers.cli.new_folder import new_folder
from millstream.consumers.demo.example import example_folder
from millstream.consumers.errors import WorkerError
from millstream.consumers.scaffold.guess import event_id_of, event_time_of, guesses, inputs_of
from millstream.consumers.scaffold.model_file import ModelFile, look_at
from millstream.consumers.scaffold.survey import survey
from millstream.consumers.scaffold.texts import config_text, pipeline_text, vocabulary_files
from millstream.inference.repository import CONFIG_FILE
from millstream.schemas.wire import without_head
from millstream.topics.errors import TopicError
from millstream.topics.records import ReadRecord, RecordReader

COPIED = ("pipeline.yaml", "schemas", "models", "events.jsonl")
SAMPLE_SIZE = 200  # events that are looked at, by default
MAX_NAME = 100  # characters of the pipeline's name: topics have its name with more behind it
SAMPLE_SECONDS = 15.0  # most time to wait for the events of a topic

README = """# A Millstream pipeline

`pipeline.yaml` describes the pipeline; `millstream options` lists all its options. `schemas/` holds the events' Avro schema,
`models/` the model, and `events.jsonl` 20 events to try it with. The example predicts which flights from New York arrive late.

The commands need a Kafka broker at `127.0.0.1:9092`. To use another one, set the environment variable `KAFKA_BOOTSTRAP`.
`millstream broker` starts one. Run in this folder:

```
{commands}
```
"""
GENERATED_README = """# {name}: a Millstream pipeline

`pipeline.yaml` describes the pipeline; `models/{name}/1/config.yaml` says which event fields fill the model's inputs. Both were
guessed from the model's file and from {count} events. Lines with GUESS say what was guessed: look at each of them.
`events.jsonl` holds the sample.

The commands need a Kafka broker at `127.0.0.1:9092`. To use another one, set the environment variable `KAFKA_BOOTSTRAP`.
`millstream broker` starts one. Run in this folder:

```
{commands}
```
"""
COMMANDS = (
    ("millstream check . --offline", "check that the file, the schemas and the model fit together"),
    ("millstream topics create .", "create the topics"),
    ("millstream work .", "run a worker; Ctrl-C drains and ends it"),
    ("millstream produce . events.jsonl", "write events, in another terminal"),
    ("millstream tail . --from-beginning", "see the predictions"),
    ("millstream lag . --watch", "see how far the workers are behind"),
)
PREDICT = ("millstream predict . events.jsonl --limit 3", "see features and outputs, without Kafka")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder to create; must be empty if it exists")
    parser.add_argument(
        "--model",
        metavar="FILE|DIR",
        type=Path,
        help="your model (model.onnx, model.pt2, model.pt, model.py), to create a pipeline for it; needs a sample, too",
    )
    sample = parser.add_mutually_exclusive_group()
    sample.add_argument(
        "--sample", metavar="FILE", help="some of your events, one JSON object per line; - is standard input"
    )
    sample.add_argument("--sample-topic", metavar="TOPIC", help="the topic of your events, which are JSON")
    parser.add_argument(
        "--limit", type=positive, default=SAMPLE_SIZE, metavar="N", help="events to look at (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Create the folder, and print the next commands."""
    if args.model is None and args.sample is None and args.sample_topic is None:
        return _example(args.folder)
    if args.model is None or (args.sample is None and args.sample_topic is None):
        raise WorkerError(
            "`--model` needs `--sample FILE` or `--sample-topic TOPIC`, and these need `--model`. Give both."
        )
    events = _of_topic(args.sample_topic, args.limit) if args.sample_topic else _of_file(args.sample, args.limit)
    return _for_model(args.folder, look_at(args.model), events, args.sample_topic)


def _example(folder: Path) -> int:
    commands = _listed(COMMANDS)
    with new_folder(folder):
        for name in COPIED:
            source = example_folder() / name
            if source.is_dir():
                shutil.copytree(source, folder / name)
            else:
                shutil.copyfile(source, folder / name)
        (folder / "README.md").write_text(README.format(commands=commands), encoding="utf-8")
    print(f"{folder} holds a working pipeline. Next, with a Kafka broker at 127.0.0.1:9092 or KAFKA_BOOTSTRAP")
    print("(`millstream broker` starts one):\n")
    print(f"cd {folder}\n{commands}")
    return 0


def _for_model(folder: Path, model: ModelFile, events: Sequence[Mapping[str, Any]], topic: str | None) -> int:
    allowed = [each if each.isascii() and (each.isalnum() or each in "._-") else "-" for each in folder.resolve().name]
    name = "".join(allowed)[:MAX_NAME]
    found = survey(events)
    event_id, event_time = event_id_of(found, len(events)), event_time_of(found)
    taken = [one.options["field"] for one in (event_id, event_time) if one is not None]
    inputs = inputs_of(model, found, len(events), taken)
    files = vocabulary_files(inputs)
    commands = _listed((PREDICT, *COMMANDS))
    with new_folder(folder):
        version = folder / "models" / name / "1"
        _copy_model(model, version)
        for options in (one.options for entry in inputs for one in entry.fields if one.options["field"] in files):
            entries = "".join(f"{text}\n" for text in options["vocabulary"])
            (version / files[options["field"]]).write_text(entries, encoding="utf-8")
        if not (kept := (version / CONFIG_FILE).exists()):
            (version / CONFIG_FILE).write_text(config_text(inputs, model.outputs, files), encoding="utf-8")
        (folder / "pipeline.yaml").write_text(
            pipeline_text(name, topic or f"{name}-events", event_id, event_time), encoding="utf-8"
        )
        (folder / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
        readme = GENERATED_README.format(name=name, count=len(events), commands=commands)
        (folder / "README.md").write_text(readme, encoding="utf-8")
    print(f"{folder} holds a pipeline for {model.path}, guessed from {len(events)} events.\n")
    print(f"Look at these guesses, in pipeline.yaml and in models/{name}/1/{CONFIG_FILE}:")
    for option, one in (("input.event_id", event_id), ("input.event_time", event_time)):
        told = "none found" if one is None else f"{one.options['field']}: {one.why}"
        print(f"- {option}: {told}")
    if kept:
        print(f"- the {CONFIG_FILE} that lay beside the model is taken as it is")
    for guess in () if kept else guesses(inputs):
        print(f"- {guess}")
    print(f"\nNext:\n\ncd {folder}\n{commands}")
    return 0


def _listed(commands: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"{command:<46}# {purpose}" for command, purpose in commands)


def _copy_model(model: ModelFile, version: Path) -> None:
    """Copy the model's folder, or its file with the files that belong to it (weights of an ONNX model lie beside it)."""
    if model.path.name == model.name and (model.path.parent / CONFIG_FILE).exists():
        shutil.copytree(model.path.parent, version)
        return
    version.mkdir(parents=True)
    shutil.copyfile(model.path, version / model.name)
    for beside in model.path.parent.glob(f"{glob.escape(model.path.name)}?*"):
        shutil.copyfile(beside, version / beside.name)


def _of_file(name: str, limit: int) -> list[Mapping[str, Any]]:
    with opened(name) as file:
        lines = islice(json_lines(file), limit)
        events = [_finite(line.row, f"{place(name)}:{line.number}") for line in lines]
    if not events:
        raise WorkerError(f"{place(name)}: expected events, one JSON object per line, found none.")
    return events


def _of_topic(topic: str, limit: int) -> list[Mapping[str, Any]]:
    client = {"bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP", "127.0.0.1:9092")}
    events: list[Mapping[str, Any]] = []
    until = time.monotonic() + SAMPLE_SECONDS
    try:
        with RecordReader(client, (topic,), from_beginning=True) as reader:
            while len(events) < limit and time.monotonic() < until:
                records = reader.read(limit - len(events), 0.5)
                events += [_event(record) for record in records if record.value is not None]
                if events and not records:
                    break
    except TopicError:
        raise WorkerError(
            f"--sample-topic {topic}: there is no such topic on {client['bootstrap.servers']}, or it can't be read. Name another "
            "one, or use `--sample FILE`."
        ) from None
    if not events:
        raise WorkerError(f"topic {topic}: no events came in {SAMPLE_SECONDS:g} s. Use `--sample FILE`.")
    return events


def _event(record: ReadRecord) -> Mapping[str, Any]:
    value = without_head(record.value or b"")
    where = f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
    if (record.value or b"")[:1] == b"\0" and value.lstrip()[:1] != b"{":
        raise WorkerError(
            f"{where}: expected JSON, found what looks like Avro. Start from the example (`millstream init DIR`), and name the "
            "events' schema in its pipeline file (`millstream docs registry`)."
        )
    return _finite(json_row(value.decode(errors="surrogateescape")), where)


def _finite(row: Mapping[str, Any] | str, where: str) -> Mapping[str, Any]:
    """The event. Raises WorkerError if it is none, or if no worker could read it."""
    if isinstance(row, str):
        raise WorkerError(f"{where}: {row}")
    try:
        json.dumps(row, allow_nan=False)
    except ValueError:
        raise WorkerError(
            f"{where}: expected JSON, found NaN, Infinity or a number that is too large for a double. Write null instead."
        ) from None
    return row
