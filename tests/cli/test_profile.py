"""`millstream profile`: the model at several batch sizes, and the settings that follow from them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from millstream.consumers.cli import main as cli
from millstream.consumers.demo.example import example_folder
from tests.broker.choice import Broker
from tests.cli.checkout import millstream
from tests.consumers.python_service import python_service
from tests.consumers.service import flights_service, write_service
from tests.inference.optimizing.networks import embedding

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
EVENTS = example_folder() / "events.jsonl"
SHORT = ("--seconds", "0.3")


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    return flights_service(tmp_path, NOWHERE, with_topics=False, batch={"max_events": 8}).file


def profiled(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
    assert cli.run(["profile", *map(str, arguments), *SHORT, "--json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_command_prints_a_row_for_each_size_and_settings_to_paste(pipeline: Path) -> None:
    done = millstream("profile", pipeline, "--events", EVENTS, "--target-p99", "10s", *SHORT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "flights-delay version 1" in done.stdout
    assert f"20 of {EVENTS}" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.strip()[:1].isdecimal()]
    assert [row[1] for row in rows if row[0] == "1"] == ["1", "2", "4", "8"]
    text = done.stdout[done.stdout.index("\nbatch:") :]
    batch = yaml.safe_load(text)["batch"]
    assert batch["target_p99"] == "10s"
    assert batch["max_events"] in {1, 2, 4, 8}
    assert batch["max_wait"].endswith("s")


def test_settings_that_are_printed_are_valid(pipeline: Path) -> None:
    done = millstream("profile", pipeline, "--events", EVENTS, "--target-p99", "200ms", *SHORT)
    text = done.stdout[done.stdout.index("\nbatch:") :]
    document = yaml.safe_load(pipeline.read_text()) | {"batch": yaml.safe_load(text)["batch"]}
    pipeline.write_text(yaml.safe_dump(document))
    assert millstream("check", pipeline, "--offline").returncode == 0


def test_json_has_the_same_rows_and_settings(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *rows, end = profiled(capsys, pipeline, "--events", EVENTS)
    assert {row["batch"] for row in rows} == {1, 2, 4, 8}
    assert {row["threads"] for row in rows} >= {1}
    assert all(row["events_per_second"] > 0 and row["p50_ms"] <= row["p99_ms"] and row["calls"] > 0 for row in rows)
    assert end["meets_target"]
    assert set(end["settings"]["batch"]) == {"max_events"}


def test_impossible_target_is_told_and_ends_with_1(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    end = profiled(capsys, pipeline, "--target-p99", "1us", code=1)[-1]
    assert not end["meets_target"]
    assert end["reason"].startswith("no batch size meets 0.001 ms")


def test_target_of_the_pipeline_is_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = {"max_events": 2, "target_p99": "5s"}
    service = flights_service(tmp_path, NOWHERE, with_topics=False, batch=batch)
    assert profiled(capsys, service.file)[-1]["settings"]["batch"]["target_p99"] == "5s"


def test_without_events_blank_ones_are_measured(pipeline: Path) -> None:
    done = millstream("profile", pipeline, *SHORT)
    assert done.returncode == 0
    assert "events    blank: zeros, empty texts" in done.stdout


def test_sizes_of_config_yaml_and_the_largest_one_are_measured(
    pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = pipeline.parent / "models" / "flights-delay" / "2" / "config.yaml"
    config.write_text(f"{config.read_text()}batch_sizes: [3, 12]\n")
    rows = profiled(capsys, pipeline, "--model", "flights-delay/2")[:-1]
    assert {row["batch"] for row in rows} == {1, 2, 3, 4, 8, 12}
    rows = profiled(capsys, pipeline, "--max-events", "5")[:-1]
    assert {row["batch"] for row in rows} == {1, 2, 4, 5}


def test_chart_has_a_line_for_each_number_of_threads(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = pipeline.parent / "profile.svg"
    profiled(capsys, pipeline, "--plot", file)
    texts = [element.text for element in ET.parse(file).iter("{http://www.w3.org/2000/svg}text")]
    assert "1 thread" in texts
    assert "thousand events/s" in texts
    assert cli.run(["profile", str(pipeline), *SHORT, "--plot", str(pipeline.parent / "no" / "x.svg")]) == 1
    assert "the chart can't be written" in capsys.readouterr().err


def test_python_model_is_measured_without_events_that_it_rejects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "if (inputs['x'] < 0).any(): raise ValueError('negative')\nreturn {'y': inputs['x'][:, 0]}"
    service = python_service(tmp_path, NOWHERE, body, with_topics=False, batch={"max_events": 2})
    events = tmp_path / "events.jsonl"
    events.write_text("".join(f'{{"id": "e{x}", "x": {x}}}\n' for x in (1, -1, 2, 3)) + "no JSON\n")
    assert cli.run(["profile", str(service.file), "--events", str(events), *SHORT]) == 0
    said = capsys.readouterr()
    assert f"3 of {events}" in said.out
    assert "2 events get no prediction, and are not measured. The first: " in said.err
    assert f"{events}:5" in said.err


def test_events_that_are_all_rejected_end_with_the_first_reason(
    pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = pipeline.parent / "bad.jsonl"
    events.write_text('{"id": 1}\n')
    assert cli.run(["profile", str(pipeline), "--events", str(events), *SHORT]) == 1
    assert f"{events}: expected events that get a prediction, found 1 others. The first reason: {events}:1: " in (
        capsys.readouterr().err
    )


def test_file_without_events_is_told(pipeline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = pipeline.parent / "none.jsonl"
    events.write_text("\n")
    assert cli.run(["profile", str(pipeline), "--events", str(events), *SHORT]) == 1
    assert f"{events}: expected events, found none. Put some of your events there.\n" in capsys.readouterr().err


def test_model_that_refuses_blank_events_asks_for_real_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = python_service(tmp_path, NOWHERE, "raise ValueError('blank')", with_topics=False, batch={"max_events": 2})
    assert cli.run(["profile", str(service.file), *SHORT]) == 1
    assert "no batch size could be measured. Give real events: --events FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target-p99", "20"], "expected a duration, found 20 without a unit"),
        (["--target-p99", "0ms"], "expected a duration above 0"),
        (["--model", "m/x"], "expected a model's name, or NAME/VERSION"),
        (["--seconds", "0"], "expected a number of seconds above 0"),
    ],
    ids=str,
)
def test_wrong_option_is_wrong_use(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(["profile", "p.yaml", *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_exactly_once_reserves_the_time_between_commits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = flights_service(
        tmp_path, NOWHERE, with_topics=False, batch={"max_events": 2}, delivery="exactly_once", commit_every="4s"
    )
    end = profiled(capsys, service.file, "--target-p99", "10s")[-1]
    wait = end["settings"]["batch"]["max_wait"]
    assert (
        3 < float(wait.removesuffix("s")) <= 4
    )  # of 10 s, a fifth is for the other stages, and 4 s until the next commit


def test_padding_is_told_where_lengths_vary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    embedding(tmp_path / "models")
    model = {"name": "m", "version": 1}
    service = write_service(tmp_path, NOWHERE, with_topics=False, input={"format": "json"}, model=model)
    events = tmp_path / "events.jsonl"
    events.write_text('{"tokens": [1, 2, 3, 4, 5, 6, 7, 8]}\n' * 4)
    rows = profiled(capsys, service.file, "--events", events, "--max-events", "4")[:-1]
    assert {row["padding"] for row in rows} == {0.5}  # the shortest length that the model runs at is 16
    assert cli.run(["profile", str(service.file), "--max-events", "4", *SHORT]) == 0
    assert "padding, %" in capsys.readouterr().out


def test_slow_model_runs_only_some_of_the_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "time.sleep(0.05)\nreturn {'y': inputs['x'][:, 0]}"
    service = python_service(tmp_path, NOWHERE, body, with_topics=False, batch={"max_events": 2})
    events = tmp_path / "events.jsonl"
    events.write_text("".join(f'{{"id": "e{x}", "x": {x}}}\n' for x in range(500)))
    assert cli.run(["profile", str(service.file), "--events", str(events), *SHORT]) == 0
    used = re.search(r"^events +(\d+) of ", capsys.readouterr().out, re.MULTILINE)
    assert used is not None
    assert 2 <= int(used[1]) < 500
