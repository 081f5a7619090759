"""`millstream init`: creates a folder with a working pipeline, as the start of your own."""

import argparse
import shutil
from pathlib import Path

from millstream.consumers.demo.example import example_folder
from millstream.consumers.errors import WorkerError

COPIED = ("pipeline.yaml", "schemas", "models", "events.jsonl")

README = """# A Millstream pipeline

`pipeline.yaml` describes the pipeline; `millstream options` lists all its options. `schemas/` holds the events' Avro schema,
`models/` the model, and `events.jsonl` 20 events to try it with. The example predicts which flights from New York arrive late.

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder to create; must be empty if it exists")


def run(args: argparse.Namespace) -> int:
    """Copy the example, and print the next commands."""
    folder: Path = args.folder
    commands = "\n".join(f"{command:<36}# {purpose}" for command, purpose in COMMANDS)
    try:
        _make(folder, README.format(commands=commands))
    except OSError as error:
        raise WorkerError(f"{folder}: the folder can't be created: {error.strerror}. Choose another place.") from None
    print(f"{folder} holds a working pipeline. Next, with a Kafka broker at 127.0.0.1:9092 or KAFKA_BOOTSTRAP")
    print("(`millstream broker` starts one):\n")
    print(f"cd {folder}\n{commands}")
    return 0


def _make(folder: Path, readme: str) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        found = "a folder that isn't empty" if folder.is_dir() else "a file"
        raise WorkerError(f"{folder}: expected a new or empty folder, found {found}. Choose another name.")
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        source = example_folder() / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        else:
            shutil.copyfile(source, folder / name)
    (folder / "README.md").write_text(readme, encoding="utf-8")
