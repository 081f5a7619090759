"""`millstream optimize`: a new version beside the old one, and how the two compare."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from millstream.consumers.cli import main as cli
from millstream.consumers.demo.example import example_folder
from millstream.inference.repository import load_version
from tests.broker.choice import Broker
from tests.cli.checkout import millstream
from tests.consumers.python_service import python_service
from tests.consumers.service import flights_service, write_service
from tests.inference.models import doubling
from tests.inference.optimizing.networks import VOCABULARY, WIDTH, embedding, mlp

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
EVENTS = example_folder() / "events.jsonl"
SHORT = ("--seconds", "0.2")


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """The folder of a small network's version 1, with a file that its config could name."""
    folder = mlp(tmp_path / "models").file.parent
    (folder / "vocabulary.txt").write_text("a\n")
    return folder


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Events of the network; `late` is true where its first number is above 0."""
    numbers = np.random.default_rng(5).normal(size=(60, WIDTH)).round(3).tolist()
    rows = [{f"f{place}": x for place, x in enumerate(row)} | {"late": row[0] > 0} for row in numbers]
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def optimized(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    """Assert that the command succeeds; returns the report."""
    assert cli.run(["optimize", *map(str, arguments), *SHORT, "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def refused(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str | Path) -> str:
    """Assert that the command fails with one message and leaves nothing behind; returns the message."""
    before = sorted(folder.rglob("*"))
    assert cli.run(["optimize", *map(str, arguments), *SHORT]) == 1
    assert sorted(folder.rglob("*")) == before
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8-dynamic", "int8-static"])
def test_new_version_stands_beside_the_old_one_with_its_report(
    network: Path, events: Path, precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {file.name: file.read_bytes() for file in network.iterdir()}
    report = optimized(
        capsys, network, "--output", "2", "--precision", precision, "--events", events, "--labels", "late"
    )
    assert {file.name: file.read_bytes() for file in network.iterdir()} == old
    new = network.parent / "2"
    assert sorted(file.name for file in new.iterdir()) == [
        "config.yaml", "model.onnx", "optimize.json", "optimize.md", "vocabulary.txt",
    ]  # fmt: skip
    assert sorted(folder.name for folder in network.parent.iterdir()) == ["1", "2"]
    assert load_version(network.parents[1], "m", 2).file == new / "model.onnx"
    assert json.loads((new / "optimize.json").read_text()) == report
    compared = report["comparison"]
    (output,) = compared["numbers"]
    assert output["output"] == "score"
    assert 0 <= output["mean"] <= output["max"] < 0.05
    assert compared["events"] == (30 if precision == "int8-static" else 60)
    assert compared["quality"]["measure"] == "AUC"
    assert abs(compared["quality"]["old"] - compared["quality"]["new"]) < 0.1
    assert {row["version"] for row in report["speed"]} == {1, 2}


def test_command_prints_both_versions_side_by_side(network: Path, events: Path) -> None:
    done = millstream(
        "optimize",
        network,
        "--output",
        "3",
        "--precision",
        "int8-dynamic",
        "--events",
        events,
        "--labels",
        "late",
        *SHORT,
    )
    assert done.returncode == 0, done.stderr
    assert "m: version 3 (int8-dynamic) beside version 1, on cpu" in done.stdout
    for words in ("file, bytes", "events/s, batch of 256", "absolute differences of the outputs", "AUC", "verdict"):
        assert words in done.stdout
    assert "is written, with this report in optimize.md" in done.stderr
    assert "Please consider" not in done.stderr  # what the quantizer logs
    page = (network.parent / "3" / "optimize.md").read_text()
    assert page.startswith("# m: version 3 (int8-dynamic) beside version 1, on cpu\n")
    assert "| score |" in page


def test_events_of_a_pipeline_are_read_with_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = flights_service(tmp_path, NOWHERE, with_topics=False)
    labelled = tmp_path / "labelled.jsonl"
    lines = [json.loads(line) for line in EVENTS.read_text().splitlines()]
    # `late` is no field of the schema.
    labelled.write_text("".join(f"{json.dumps(row | {'late': row['departure_delay'] > 0})}\n" for row in lines))
    report = optimized(
        capsys, service.file, "--output", "3", "--precision", "int8-dynamic", "--events", labelled, "--labels", "late"
    )
    assert (report["model"], report["old"], report["new"]) == ("flights-delay", 1, 3)
    assert report["comparison"]["quality"]["events"] == 20
    assert report["bytes"]["new"] != report["bytes"]["old"]


def test_classes_are_compared_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = f"""\
inputs:
  - {{tensor: x, fields: [{", ".join(f"f{number}" for number in range(WIDTH))}], dtype: float32, shape: [{WIDTH}]}}
outputs:
  - {{tensor: y, name: kind, classes: [ant, bee, cow]}}
"""
    folder = mlp(tmp_path / "models", classes=3, config=config).file.parent
    numbers = np.random.default_rng(5).normal(size=(40, WIDTH)).tolist()
    rows = [{f"f{place}": x for place, x in enumerate(row)} | {"true": "bee"} for row in numbers]
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    report = optimized(capsys, folder, "--output", "2", "--precision", "fp16", "--events", file, "--labels", "true")
    (agreement,) = report["comparison"]["classes"]
    assert agreement["output"] == "kind"
    assert agreement["share"] > 0.9
    assert report["comparison"]["quality"]["measure"] == "accuracy"


def test_nothing_is_written_unseen(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, network.parent, network, "--output", "2", "--precision", "fp16")
    assert said.startswith("nothing shows whether the new version answers as the old one does: add --events FILE")
    report = optimized(capsys, network, "--output", "2", "--precision", "fp16", "--blind")
    assert report["comparison"] is None
    assert "compared on no event (--blind)" in (network.parent / "2" / "optimize.md").read_text()


@pytest.mark.parametrize("arguments", [["--precision", "int8-static"], ["--labels", "late"]], ids=str)
def test_what_needs_events_is_refused_without_them(
    network: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, network.parent, network, "--output", "2", "--blind", *arguments)
    assert said.endswith("add --events FILE.\n")


def test_version_that_exists_is_never_overwritten(
    network: Path, events: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, network.parent, network, "--output", "1", "--events", events)
    assert "exists already, and no version is overwritten. Choose another number, such as 2." in said


def test_numbers_that_are_too_large_for_16_bits_are_told(
    tmp_path: Path, events: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = mlp(tmp_path / "large", scale=1e8).file.parent
    said = refused(capsys, folder.parent, folder, "--output", "2", "--precision", "fp16", "--events", events)
    assert "the new version answers NaN or infinity in `y`: tensor `m` reaches " in said
    assert "It isn't written; try another `--precision`" in said


def test_model_that_is_no_onnx_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = python_service(tmp_path, NOWHERE, "return {'y': inputs['x'][:, 0]}", with_topics=False)
    said = refused(capsys, tmp_path / "models", service.file, "--output", "2", "--blind")
    assert "model.py: expected model.onnx, found a model for python. Export it to ONNX first" in said


def test_model_without_weights_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = doubling(
        tmp_path, config="inputs: [{tensor: x, fields: [a, b], dtype: float32, shape: [2]}]\noutputs: [{tensor: y}]\n"
    ).file.parent
    said = refused(capsys, folder.parent, folder, "--output", "2", "--precision", "int8-dynamic", "--blind")
    assert "nothing to store in 8 bits" in said


def test_weights_in_other_files_are_not_copied(network: Path, events: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = network / "model.onnx"
    onnx.save(onnx.load(file), file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    report = optimized(capsys, network, "--output", "2", "--precision", "fp16", "--events", events)
    assert not (network.parent / "2" / "weights.bin").exists()
    assert report["bytes"]["old"] > (network / "weights.bin").stat().st_size


def test_folder_without_a_version_number_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = mlp(tmp_path / "models").file.parent
    renamed = folder.rename(folder.with_name("best"))
    said = refused(capsys, tmp_path, renamed, "--output", "2", "--blind")
    assert "whose name is the version; found 'best'" in said


def test_without_the_package_onnx_it_says_how_to_install_it(
    network: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    said = refused(capsys, network.parent, network, "--output", "2", "--blind")
    assert "-m pip install 'millstream[optimize]'" in said


def test_pipeline_without_a_version_would_no_longer_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mlp(tmp_path / "models")
    service = write_service(
        tmp_path, NOWHERE, with_topics=False, input={"format": "json"}, model={"name": "m"}, schemas={"directory": "."}
    )
    said = refused(capsys, tmp_path / "models", service.file, "--output", "2", "--blind")
    assert "expected a `version`, because the model will have several" in said
    assert "Write `version: 1` under `model:` first." in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--labels", "nowhere"], "--labels nowhere: expected this field in the events"),
        (["--labels", "late..x"], "path `late..x`, character 6: expected a name"),
        (["--format", "csv"], "CSV has only text, and a model's folder has no schema"),
    ],
    ids=str,
)
def test_events_that_can_not_be_compared_are_told(
    network: Path, events: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(capsys, network.parent, network, "--output", "2", "--events", events, *arguments)


def test_folder_of_a_model_without_its_version_is_told(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, network.parent, network.parent, "--output", "2", "--blind")
    assert "expected one version of the model: name its folder, such as" in said


@pytest.mark.parametrize("precision", ["fp16", "int8-static"])
def test_events_of_different_lengths_run_through_both_versions(
    tmp_path: Path, precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = embedding(tmp_path / "models").file.parent
    random = np.random.default_rng(4)
    rows = [{"tokens": random.integers(0, VOCABULARY, random.integers(1, 60)).tolist()} for _ in range(50)]
    file = tmp_path / "events.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    report = optimized(capsys, folder, "--output", "2", "--precision", precision, "--events", file)
    (output,) = report["comparison"]["numbers"]
    assert 0 < output["max"] < 0.1


def test_file_that_can_not_be_copied_is_told(network: Path, events: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (network / "words.txt").symlink_to("nowhere")
    said = refused(capsys, network.parent, network, "--output", "2", "--events", events)
    assert f"{network.parent / '2'} can't be written: " in said
    assert f"No such file or directory: '{network / 'words.txt'}'" in said
