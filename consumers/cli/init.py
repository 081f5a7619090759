"""`millstream init`: creates a folder with a working pipeline: an example, or one for a model and events of yours."""

import argparse
import glob
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from millstream.consumers.cli.new_folder import new_folder
from millstream.consumers.cli.sample import Sample, of_file, of_skipped, of_topic
from millstream.consumers.cli.sample_filter import SampleFilter
from millstream.consumers.demo.example import example_folder
from millstream.consumers.errors import WorkerError
from millstream.consumers.scaffold.deletions import without_deletions
from millstream.consumers.scaffold.guess import inputs_of
from millstream.consumers.scaffold.guesses import FieldGuess, InputGuess, are_open, guesses
from millstream.consumers.scaffold.imported_files import imported_beside, named_beside
from millstream.consumers.scaffold.inspection import look_at
from millstream.consumers.scaffold.kinds import hints, with_fallbacks
from millstream.consumers.scaffold.model_file import ModelFile
from millstream.consumers.scaffold.own_fields import event_id_of, event_time_of, why_no_event_id, why_no_event_time
from millstream.consumers.scaffold.survey import Found, survey
from millstream.consumers.scaffold.texts import NO_TOPIC, config_text, guessed_topic, pipeline_text, vocabulary_files
from millstream.consumers.scaffold.unused import unused
from millstream.inference.executors.installed import BY_FILE
from millstream.inference.mapping import PLACEHOLDER
from millstream.inference.repository import CONFIG_FILE
from millstream.pipeline.printable import printable
from millstream.schemas.file_kind import FileKind, file_kind, is_model
from millstream.schemas.wording import counted

COPIED = ("pipeline.yaml", "schemas", "models", "events.jsonl")
MAX_NAME = 100  # characters of the pipeline's name: topics have its name with more behind it

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
guessed from the model's file and from {count}. Lines with GUESS say what was guessed: look at each of them.
`events.jsonl` holds these events.

The commands need a Kafka broker at `127.0.0.1:9092`. To use another one, set the environment variable `KAFKA_BOOTSTRAP`.
`millstream broker` starts one. Run in this folder:

```
{commands}
```
"""
PRODUCE = ("millstream produce . events.jsonl", "write events, in another terminal")
COMMANDS = (
    ("millstream check . --offline", "check that the file, the schemas and the model fit together"),
    ("millstream topics create .", "create the topics"),
    ("millstream work .", "run a worker; Ctrl-C drains and ends it"),
    PRODUCE,
    ("millstream tail . --from-beginning", "see the predictions"),
    ("millstream lag . --watch", "see how far the workers are behind"),
)
PREDICT = ("millstream predict . events.jsonl --limit 3", "see features and outputs, without Kafka")


def run(args: argparse.Namespace) -> int:
    """Create the folder, and print the next commands."""
    if args.model is None and args.sample is None and args.sample_topic is None:
        return _example(args.folder)
    if args.model is None or (args.sample is None and args.sample_topic is None):
        raise WorkerError(
            "`--model` needs `--sample FILE` or `--sample-topic TOPIC`, and these need `--model`. Give both."
        )
    if args.sample is not None:
        _refuse_model_as_sample(args.model, args.sample)
    chosen = SampleFilter.of(args)
    sample = (
        of_topic(args.sample_topic, args.limit, chosen.passes)
        if args.sample_topic
        else of_file(args.sample, args.limit, chosen.passes)
    )
    return _for_model(args.folder, look_at(args.model), sample, args.sample_topic, chosen)


def _refuse_model_as_sample(model: Path, sample: str) -> None:
    """Raises WorkerError."""
    if not is_model(Path(sample)):
        return
    swapped = f" They seem to be swapped: write `--model {sample} --sample {model}`."
    raise WorkerError(
        f"--sample {sample}: expected events, one JSON object per line, found {FileKind.MODEL}. `--model` takes the model, and "
        f"`--sample` events for it.{swapped if file_kind(model) is FileKind.EVENTS else ''}"
    )


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
    print(f"cd {quote(str(folder))}\n{commands}")
    return 0


@dataclass(frozen=True, slots=True)
class _Guessed:
    """A pipeline for a model, guessed from a sample."""

    name: str  # of the pipeline and of the model
    model: ModelFile
    sample: Sample
    topic: str | None  # that the sample is from; None: it is from a file
    chosen: SampleFilter
    passed: int  # events of the sample that pass the filter
    events: Sequence[Mapping[str, Any]]  # those that the guesses are from
    found: Mapping[str, Found]  # their fields
    event_id: FieldGuess | None
    event_time: FieldGuess | None
    inputs: list[InputGuess]

    @property
    def why_no_id(self) -> str:
        return why_no_event_id(self.found, len(self.events))

    @property
    def used(self) -> list[str]:
        """The fields that are used up. The event's time isn't: it may be a feature, too."""
        own = [] if self.event_id is None else [self.event_id.options["field"]]
        fields = [one.options for entry in self.inputs for one in entry.fields]
        return [*own, *(options[name] for options in fields for name in ("field", "fallback") if name in options)]

    @property
    def commands(self) -> str:
        # A sample of a topic must not be written into this topic once more.
        return _listed((PREDICT, *(one for one in COMMANDS if self.topic is None or one is not PRODUCE)))


def _for_model(folder: Path, model: ModelFile, sample: Sample, topic: str | None, chosen: SampleFilter) -> int:
    guessed = _guess(_name_of(folder), model, sample, topic, chosen)
    version = folder / "models" / guessed.name / "1"
    with new_folder(folder):
        _copy_model(model, version)
        if not (kept := (version / CONFIG_FILE).exists()):
            _write_config(version, guessed.inputs, model.outputs)
        _write_pipeline(folder, guessed)
    _tell(folder, version, guessed, kept=kept)
    return 0


def _name_of(folder: Path) -> str:
    """The pipeline's name: that of its folder, as far as topics may have it."""
    allowed = [each if each.isascii() and (each.isalnum() or each in "._-") else "-" for each in folder.resolve().name]
    return "".join(allowed)[:MAX_NAME]


def _guess(name: str, model: ModelFile, sample: Sample, topic: str | None, chosen: SampleFilter) -> _Guessed:
    passed = chosen.passing(sample.events)
    events = without_deletions(passed)
    found, count = survey(events), len(events)
    event_id, event_time = event_id_of(found, count), event_time_of(found, count)
    taken = [one.options["field"] for one in (event_id, event_time) if one is not None]
    inputs = with_fallbacks(inputs_of(model, found, count, taken), events, found)
    return _Guessed(name, model, sample, topic, chosen, len(passed), events, found, event_id, event_time, inputs)


def _write_config(version: Path, inputs: Sequence[InputGuess], outputs: Sequence[str]) -> None:
    """Write the mapping, and the files of its vocabularies."""
    files = vocabulary_files(inputs)
    for options in (one.options for entry in inputs for one in entry.fields if one.options["field"] in files):
        entries = "".join(f"{text}\n" for text in options["vocabulary"])
        (version / files[options["field"]]).write_text(entries, encoding="utf-8")
    (version / CONFIG_FILE).write_text(config_text(inputs, outputs, files), encoding="utf-8")


def _write_pipeline(folder: Path, guessed: _Guessed) -> None:
    """Write what is beside the model."""
    conditions = [each.text for each in guessed.chosen.conditions]
    own = guessed.event_id, guessed.event_time, guessed.why_no_id
    texts = {
        "pipeline.yaml": pipeline_text(guessed.name, guessed.topic, *own, conditions),
        "events.jsonl": "".join(f"{json.dumps(event)}\n" for event in guessed.sample.events),
        "README.md": GENERATED_README.format(
            name=guessed.name, count=_counted(guessed.sample), commands=guessed.commands
        ),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _tell(folder: Path, version: Path, guessed: _Guessed, *, kept: bool) -> None:
    """Print what was guessed, and what to do next. `kept`: the model had a config.yaml already."""
    model, sample, config = guessed.model, guessed.sample, f"models/{guessed.name}/1/{CONFIG_FILE}"
    print(f"{folder} holds a pipeline for {model.path}, guessed from {_counted(sample)}.\n")
    for note in _notes(sample, guessed.topic, guessed.passed, len(guessed.events)):
        print(note)
    print(f"Look at these guesses, in pipeline.yaml and in {config}:")
    for guess in _guesses(guessed, kept=kept):
        print(f"- {guess}")
    for hint in () if kept else hints(guessed.events, guessed.found, guessed.used):
        print(f"\n{printable(hint)}")
    if model.name == "model.py":
        print(_not_copied(model.path, version), end="")
    if not kept and (left := list(unused(guessed.found, guessed.used, len(guessed.events)))):
        print("\nThese fields of the events fill no input:")
        print("\n".join(f"- {printable(line)}" for line in left))
    is_open = not model.outputs or are_open(guessed.inputs)
    if kept:
        is_open = PLACEHOLDER in (version / CONFIG_FILE).read_text(encoding="utf-8")
    first = f" replace each {PLACEHOLDER} in {config}, then" if is_open else ""
    print(f"\nNext:{first}\n\ncd {quote(str(folder))}\n{guessed.commands}")


def _guesses(guessed: _Guessed, *, kept: bool) -> Iterator[str]:
    """What to look at. `kept`: see `_tell`."""
    if guessed.topic is None:
        yield f"input.topics: {guessed_topic(guessed.name)}: {NO_TOPIC}"
    yield f"input.event_id: {_own_field(guessed.event_id, guessed.why_no_id)}"
    yield f"input.event_time: {_own_field(guessed.event_time, why_no_event_time(guessed.found))}"
    if kept:
        yield f"the {CONFIG_FILE} that lay beside the model is taken as it is"
    else:
        yield from guesses(guessed.inputs)
        yield from _not_loaded(guessed.model, guessed.name)


def _notes(sample: Sample, topic: str | None, passed: int, count: int) -> Iterator[str]:
    """What was left out of the sample. `passed`: events that pass the filter; `count`: those that were looked at."""
    if sample.skipped:
        yield _of_skipped(sample, topic)
    if passed < sample.seen:
        yield f"{passed:,} of these events pass the filter. The guesses are from them.\n"
    if count < passed:
        yield _of_deletions(passed - count)


def _own_field(guess: FieldGuess | None, why_none: str) -> str:
    return f"none taken: {why_none}" if guess is None else f"{guess.options['field']}: {guess.why}"


def _of_skipped(sample: Sample, topic: str | None) -> str:
    dead = "" if topic is None else " A worker makes dead letters of such records."
    were = "was" if sample.skipped == 1 else "were"
    return f"{of_skipped(sample)}, and {were} skipped.{dead} The first: {sample.first_skipped}\n"


def _of_deletions(count: int) -> str:
    are = "1 of these events is a deletion" if count == 1 else f"{count} of these events are deletions"
    return (
        f"{are} (`op` is `d`), without `after`: dead letters, unless each field of `after` has `missing:`. The guesses leave "
        "them out (`millstream docs models#changes-of-a-database`).\n"
    )


def _counted(sample: Sample) -> str:
    """ "1 event", "20 events", "the first 200 events (`--limit` takes more)" where the sample may have more."""
    number = counted(sample.seen, "event")
    return f"the first {number} (`--limit` takes more)" if sample.is_full else number


def _not_loaded(model: ModelFile, name: str) -> Iterator[str]:
    """What the user must do for a file that wasn't loaded."""
    if not model.inputs:
        yield (
            f"{model.path} was not read, because loading such a file runs its code: so {CONFIG_FILE} has {PLACEHOLDER} in place "
            f"of the names of inputs and outputs. Next: open models/{name}/1/{CONFIG_FILE}, replace each {PLACEHOLDER}, and give "
            f"dtype and fields of each input. Until then, `millstream check . --offline` names each line to fill in"
        )
    if BY_FILE[model.name] == "torch":
        yield (
            f"loading {model.path} runs code of its author: if you trust the author, write `trust: true` under `model:` in "
            f"pipeline.yaml"
        )


def _not_copied(model: Path, version: Path) -> str:
    """What to do with what model.py needs of what lies beside it; empty if it is all copied."""
    modules = [place for place in imported_beside(model) if not (version / place.name).exists()]
    files = [place for place in named_beside(model) if not (version / place.name).exists() and place not in modules]
    told = ""
    if modules:
        told += (
            f"\nmodel.py imports these, which lie beside it and were not copied: {', '.join(map(str, modules))}\n"
            f"Copy them into {version}, and import them with a dot, such as `from . import {modules[0].stem}`; or install them "
            "where the worker runs (`millstream docs models#a-model-in-python`).\n"
        )
    if files:
        told += (
            f"\nmodel.py names these files, which lie beside it and were not copied: {', '.join(map(str, files))}\n"
            f"If it loads them, copy them into {version}.\n"
        )
    return told


def _listed(commands: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"{command:<46}# {purpose}" for command, purpose in commands)


def _copy_model(model: ModelFile, version: Path) -> None:
    """Copy the model's folder, or its file with the files that belong to it (weights of an ONNX model lie beside it)."""
    if model.path.name == model.name and (model.path.parent / CONFIG_FILE).exists():
        around = version.resolve().parents  # the new pipeline may lie in the model's folder: it is no part of the model
        shutil.copytree(
            model.path.parent,
            version,
            ignore=lambda of, names: [name for name in names if Path(of).resolve() / name in around],
        )
        return
    version.mkdir(parents=True)
    shutil.copyfile(model.path, version / model.name)
    for beside in model.path.parent.glob(f"{glob.escape(model.path.name)}?*"):
        shutil.copyfile(beside, version / beside.name)
