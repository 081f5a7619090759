"""A file in place of another one: one message that says what was expected there, and what the file is."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from millstream.consumers.cli import main as cli
from millstream.consumers.demo.example import example_folder

VERSION = "second/models/flights-delay/1"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that has a pipeline and its events. It is too deep for a search to find another test's pipeline."""
    folder = tmp_path / "a" / "b" / "c" / "d"
    shutil.copytree(example_folder(), folder / "second")
    shutil.copyfile(example_folder() / "events.jsonl", folder / "events.jsonl")
    events = (folder / "events.jsonl").read_text()
    (folder / "one.jsonl").write_text(f"{events.splitlines()[0]}\n")
    (folder / "events.csv").write_text("id,distance\na,2.5\n")
    (folder / "notes.txt").write_text("remember\n")
    (folder / "packed.gz").write_bytes(gzip.compress((folder / "second" / "pipeline.yaml").read_bytes()))
    monkeypatch.chdir(folder)


def said(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """The only line of a command that fails."""
    assert cli.run([*command]) != 0
    [line] = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (
            VERSION,
            f"{VERSION}/pipeline.yaml: cannot read the pipeline file: No such file or directory. The folder has the "
            "config.yaml of a model. Did you mean `second`?",
        ),
        (
            "second/models",
            "second/models/pipeline.yaml: cannot read the pipeline file: No such file or directory. Did you mean `second`?",
        ),
        (
            "second/models/flights-delay",
            "second/models/flights-delay/pipeline.yaml: cannot read the pipeline file: No such file or directory. Did you mean "
            "`second`?",
        ),
        (
            f"{VERSION}/config.yaml",
            f"{VERSION}/config.yaml: expected a pipeline file, found the config.yaml of a model. Did you mean `second`?",
        ),
        (
            "second/events.jsonl",
            "second/events.jsonl: expected a pipeline file, found events as JSON. Did you mean `second`? Events come after",
        ),
        (
            "one.jsonl",
            "one.jsonl: expected a pipeline file, found events as JSON. Name the pipeline's folder, or its pipeline.yaml.",
        ),
        (
            "events.csv",
            "events.csv: expected a pipeline file, found a CSV file. Name the pipeline's folder, or its pipeline.yaml. Events",
        ),
        (
            "packed.gz",
            "packed.gz: expected a pipeline file, found a file that is compressed with gzip. If it is a pipeline file, unpack it "
            "(`gunzip < packed.gz > NEW.yaml`). Name the pipeline's folder, or its pipeline.yaml.",
        ),
        (
            f"{VERSION}/model.onnx",
            f"{VERSION}/model.onnx: expected a pipeline file, found a model. Did you mean `second`? `millstream init DIR --model "
            f"{VERSION}/model.onnx --sample EVENTS` makes",
        ),
    ],
)
def test_other_file_in_place_of_the_pipeline_is_told_with_the_pipeline_near_it(
    capsys: pytest.CaptureFixture[str], named: str, message: str
) -> None:
    assert said(capsys, "check", named).startswith(message)


def test_pipeline_is_found_from_the_folder_of_the_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(VERSION)
    assert said(capsys, "check", ".").endswith("The folder has the config.yaml of a model. Did you mean `../../..`?")
    assert said(capsys, "check", str(Path.cwd())).endswith(f"Did you mean `{Path.cwd().parents[2]}`?")


def test_config_in_a_folder_without_a_pipeline_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.move(VERSION, "alone")
    assert said(capsys, "check", "alone").endswith("Name the pipeline's folder, or its pipeline.yaml.")


def test_config_that_was_copied_over_the_pipeline_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copyfile(f"{VERSION}/config.yaml", "second/pipeline.yaml")
    assert said(capsys, "check", "second").startswith(
        "second/pipeline.yaml: expected a pipeline file, found the config.yaml of a model. Write the pipeline file here"
    )


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("events.jsonl", "events as JSON"),
        ("one.jsonl", "events as JSON"),
        ("events.csv", "a CSV file"),
        ("notes.txt", "another file"),
    ],
)
@pytest.mark.parametrize("command", ["predict", "produce"])
@pytest.mark.parametrize("pipeline", ["second", "second/pipeline.yaml"])
def test_events_in_place_of_the_pipeline_are_told_to_come_behind_it(
    capsys: pytest.CaptureFixture[str], command: str, pipeline: str, file: str, kind: str
) -> None:
    assert said(capsys, command, file, pipeline) == (
        f"{file}: expected a pipeline file, found {kind}. `{pipeline}`, in place of the events, is a pipeline. Name it first."
    )


def test_pipeline_with_a_mistake_is_not_taken_for_events(capsys: pytest.CaptureFixture[str]) -> None:
    Path("wrong.yaml").write_text(Path("second/pipeline.yaml").read_text().replace("kafka:", "colour: red\nkafka:"))
    assert "colour: unknown key" in said(capsys, "predict", "wrong.yaml", "second")


def test_model_in_place_of_events_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    file = f"{VERSION}/model.onnx"
    message = f"{file}: expected events as UTF-8 text, found a model. Name a file with events."
    assert message in said(capsys, "predict", "second", file)


def test_model_and_sample_that_are_swapped_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    model = f"{VERSION}/model.onnx"
    expected = f"--sample {model}: expected events, one JSON object per line, found a model. `--model` takes the model"
    swapped = said(capsys, "init", "new", "--model", "events.jsonl", "--sample", model)
    assert swapped.startswith(expected)
    assert swapped.endswith(f"They seem to be swapped: write `--model {model} --sample events.jsonl`.")
    twice = said(capsys, "init", "new", "--model", model, "--sample", model)
    assert twice.startswith(expected)
    assert "swapped" not in twice


def test_events_in_place_of_the_model_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    message = said(capsys, "init", "new", "--model", "events.jsonl", "--sample", "events.jsonl")
    assert "found events as JSON (`millstream docs models`). `--model` takes the model, and `--sample`" in message
