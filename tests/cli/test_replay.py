"""`millstream replay` on a real broker: what it answers, what it compares, and that it goes on after a kill."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.consumers.cli.main import run as main
from millstream.consumers.control.topic import open_reader, open_writer
from millstream.consumers.demo.flights import LATER_MONTHS, departures, encode_events
from millstream.consumers.replay.folder import About, ReplayFolder
from millstream.consumers.rollout.routing import FieldOverride, route
from millstream.consumers.schema_store import open_store
from millstream.consumers.serving.rollout_router import texts_of
from millstream.consumers.supervision.child import MILLSTREAM
from millstream.pipeline.loading import load_pipeline
from millstream.schemas.column import column_of
from millstream.schemas.predictions import PredictionEncoder
from millstream.schemas.records import ROLLOUT_PREDICTION
from millstream.schemas.table import Table
from millstream.topics.local.child import start
from tests.broker.choice import Broker
from tests.broker.clients import create_topic, produce, read_all, wait_until
from tests.comparison.scene import exact_auc
from tests.consumers.control.topic_in_memory import started
from tests.consumers.replay.row_models import row_models
from tests.consumers.service import Service, flights_service, prediction_of
from tests.inference.python_models import predicting
from tests.pipeline.pipeline_files import SMALL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

EVENTS = 3000
BETTER, UNDECIDED = 0, 5
NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
TODAY = datetime.now(UTC).strftime("%Y-%m-%d")


@dataclass(frozen=True)
class Past:
    """A pipeline whose version 1 has predicted some flights, all with labels."""

    service: Service
    late: dict[str, bool]  # event ID -> label
    start: str
    end: str

    def replay(self, *options: str, folder: Path) -> subprocess.CompletedProcess[str]:
        return _millstream(*self.command(*options, folder=folder))

    def command(self, *options: str, folder: Path) -> list[str]:
        span = ("--model", "v2", "--from", self.start, "--to", self.end, "--state", str(folder))
        return ["replay", str(self.service.file), *span, *options]


def _millstream(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MILLSTREAM, *arguments], capture_output=True, text=True, timeout=120, check=False)


def _now() -> str:
    return datetime.now(UTC).isoformat()


def past(folder: Path, kafka: Broker, *, bad: int = 0, labels: bool = True, **sections: Any) -> Past:
    """Let version 1 predict the flights. `bad`: events before them that can't be decoded; `sections` are the file's."""
    topic = f"{folder.name[:60]}-{os.urandom(4).hex()}-late"
    section = {"topic": topic, "format": "json", "event_id": "id", "value": "late"}
    service = flights_service(folder, kafka, **({"labels": section} if labels else {}), **sections)
    create_topic(kafka.bootstrap, topic, 2, {})
    flights = departures(LATER_MONTHS)[:EVENTS]
    begun = _now()
    rows = [(None, b"\0\0\0\0\1bad")] * bad
    rows += [
        (None if tail is None else tail.encode(), value)
        for tail, value in zip(flights["tail_number"], encode_events(flights, 1), strict=True)
    ]
    produce(kafka.bootstrap, service.inputs[0], rows)
    done = _millstream("work", str(service.file), "--until-idle")
    assert done.returncode == 0, done.stderr
    late = dict(zip(flights["id"].to_list(), flights["late"].to_list(), strict=True))
    produce(
        kafka.bootstrap,
        topic,
        [
            (None, json.dumps({"id": key, "late": bool(value)}).encode())
            for key, value in late.items()
            if value is not None
        ],
    )
    time.sleep(0.002)  # so that the last event's timestamp is before the end
    return Past(service, late, begun, _now())


def answered(past: Past, topic: str) -> dict[str, float]:
    """The predictions in a topic, each event once."""
    found = [prediction_of(message) for message in read_all(past.service.bootstrap, topic)]
    assert len({row["event_id"] for row in found}) == len(found)
    return {row["event_id"]: row["outputs"]["late_probability"] for row in found}


@pytest.mark.durable
def test_replay_compares_with_the_predictions_and_the_labels_and_touches_nothing(tmp_path: Path, kafka: Broker) -> None:
    scene = past(tmp_path, kafka, bad=2)
    before = scene.service.committed(), len(scene.service.predictions()), len(scene.service.dead_letters())
    topic = f"{scene.service.output}-replayed"
    done = scene.replay("--json", "--output", topic, folder=tmp_path / "state")
    assert done.returncode == BETTER, done.stderr
    found = json.loads(done.stdout)
    assert (found["answered"], found["rejected"]) == (EVENTS, {"undecodable": 2})
    assert found["predicted_by"] == ["flights-delay version 1"]
    assert found["words"].startswith("version 2 is better: AUC +0.")
    assert "2 without an answer" in done.stderr
    first, second = answered(scene, scene.service.output), answered(scene, topic)
    assert first.keys() == second.keys()
    known = [key for key, value in scene.late.items() if value is not None]
    labels = np.array([scene.late[key] for key in known])
    for side, scores in (("primary", first), ("shadow", second)):
        assert found["whole"][side]["auc"] == pytest.approx(
            exact_auc(np.array([scores[key] for key in known]), labels), abs=5e-4
        )
    agree = [(first[key] >= 0.5) == (second[key] >= 0.5) for key in first]
    assert found["whole"]["agreement"] == pytest.approx(np.mean(agree))
    after = scene.service.committed(), len(scene.service.predictions()), len(scene.service.dead_letters())
    assert before == after
    again = scene.replay("--output", topic, folder=tmp_path / "state")  # only the comparison
    assert again.returncode == BETTER
    assert "only the comparison is made again" in again.stderr
    assert again.stdout.splitlines()[-1] == found["words"]
    assert len(answered(scene, topic)) == EVENTS


@pytest.mark.durable
@pytest.mark.full
@pytest.mark.parametrize("writes", [True, False])
def test_killed_replay_goes_on_and_doubles_nothing(tmp_path: Path, kafka: Broker, writes: bool) -> None:
    scene = past(tmp_path, kafka)
    topic = f"{scene.service.output}-replayed"
    options = ["--rate", "300", *(["--output", topic] if writes else [])]
    state, log = tmp_path / "state", tmp_path / "log"
    for kill in range(3):
        process = start([*MILLSTREAM, *scene.command(*options, folder=state)], log)
        wait_until(lambda: len(list(state.glob("checkpoint-*"))) > kill, 60, "a checkpoint")  # noqa: B023
        time.sleep(0.1 * kill)
        process.kill()
        process.wait()
    assert len(list(state.glob("checkpoint-*"))) >= 3
    options = options[2:]
    done = scene.replay("--json", *options, folder=state)
    assert done.returncode == BETTER, done.stderr
    assert "events are done" in done.stderr
    found = json.loads(done.stdout)
    assert (found["answered"], found["repeated"]) == (EVENTS, 0)
    if writes:
        assert answered(scene, topic).keys() == answered(scene, scene.service.output).keys()


@pytest.mark.durable
def test_replay_that_began_with_another_filter_or_mapping_is_refused(tmp_path: Path, kafka: Broker) -> None:
    scene, state = past(tmp_path, kafka, labels=False), tmp_path / "state"
    file, topic = scene.service.file, f"{scene.service.output}-replayed"
    right = file.read_text()
    file.write_text(right.replace("\ninput:\n", "\ninput:\n  filter: id == nothing\n"))
    done = scene.replay("--output", topic, folder=state)
    assert f"0 events answered, {EVENTS:,} left out by input.filter; this took" in done.stderr
    file.write_text(right)
    done = scene.replay("--output", topic, folder=state)
    assert done.returncode == 1
    assert "expected `input.filter: id == nothing`, as when the results in" in done.stderr
    assert "found no `input.filter`. Change it back, add --anew" in done.stderr
    done = scene.replay("--anew", "--output", topic, folder=state)  # it has written nothing so far
    assert "only the comparison is made again" not in done.stderr
    assert answered(scene, topic).keys() == answered(scene, scene.service.output).keys()
    config = next((tmp_path / "models").glob("*/2/config.yaml"))
    config.write_text(f"{config.read_text()}\n# corrected\n")
    done = scene.replay("--output", topic, folder=state)
    assert "checksum of config.yaml" in done.stderr
    done = scene.replay("--anew", "--output", topic, folder=state)
    assert done.returncode == 1
    assert f"topic {topic} has " in done.stderr
    assert "its readers would see them twice" in done.stderr
    assert len(answered(scene, topic)) == EVENTS


@pytest.mark.durable
def test_replay_up_to_now_that_was_stopped_says_how_to_go_on(tmp_path: Path, kafka: Broker) -> None:
    scene, state = past(tmp_path, kafka), tmp_path / "state"
    slowly = replace(scene, end="now").command("--rate", "500", folder=state)
    process = start([*MILLSTREAM, *slowly], tmp_path / "log")
    wait_until(lambda: any(state.glob("checkpoint-*")), 60, "a checkpoint")
    process.terminate()
    assert process.wait(60) == 1
    said = re.search(r"stopped\. The same command with --to (\S+) goes on", (tmp_path / "log").read_text())
    assert said is not None
    done = replace(scene, end=said[1]).replay("--json", folder=state)
    assert done.returncode == BETTER, done.stderr
    assert "events are done" in done.stderr
    assert json.loads(done.stdout)["answered"] == EVENTS


@pytest.mark.durable
@pytest.mark.full
def test_what_is_missing_is_told_with_what_to_do(tmp_path: Path, kafka: Broker) -> None:
    scene = past(tmp_path, kafka, labels=False)
    unlabelled = scene.replay(folder=tmp_path / "state")
    assert unlabelled.returncode == UNDECIDED
    assert "only labels can tell which model is right. Write `labels:`" in unlabelled.stdout
    assert "agreement 0." in unlabelled.stdout
    own = scene.replay("--output", scene.service.output, folder=tmp_path / "other")
    assert own.returncode == 1
    assert "this is the pipeline's own topic (output)" in own.stderr
    other = scene.replay("--output", f"{scene.service.output}-x", folder=tmp_path / "state")
    assert other.returncode == 1
    assert "this folder has another replay (version 2" in other.stderr
    span = ("--from", "2001-01-01", "--to", "2001-01-02", "--state", str(tmp_path / "empty"))
    empty = _millstream("replay", str(scene.service.file), "--model", "2", *span)
    assert empty.returncode == 1
    assert "no event is in this range of time" in empty.stderr
    assert "Traceback" not in unlabelled.stderr + own.stderr + other.stderr + empty.stderr


@pytest.mark.durable
@pytest.mark.full
@pytest.mark.parametrize("wrong", [0, 3])
def test_routing_of_predictions_is_checked_by_the_control_topic(tmp_path: Path, kafka: Broker, wrong: int) -> None:
    topic = f"{tmp_path.name[:60]}-{os.urandom(4).hex()}-rollout"
    section = {"strategy": "manual", "topic": topic, "override_fields": ["distance"]}
    service = flights_service(tmp_path, kafka, rollout=section)
    create_topic(kafka.bootstrap, topic, 1, {"cleanup.policy": "compact"})
    pipeline = load_pipeline(service.file, {})
    store, near = open_store(pipeline), FieldOverride("distance", frozenset({"0.1"}), 1)
    record = replace(started(), pipeline=pipeline.name, fields=(near,))
    with open_reader(pipeline, store) as reader:
        open_writer(pipeline, store, reader).write(record)
    begun = _now()
    flights = departures(LATER_MONTHS)[:100]
    produce(kafka.bootstrap, service.inputs[0], [(None, value) for value in encode_events(flights, 1)])
    ids = flights["id"].to_list()
    distances = column_of([0.1 if row % 9 == 8 else 7.5 for row in range(len(ids))], "float32")
    routed = route(record.plan(), [each.encode() for each in ids], {"distance": texts_of(distances)})
    assert 0 < (~routed.randomised).sum() < len(ids)
    variants = routed.variant.copy()
    variants[:wrong] = 1 - variants[:wrong]
    models = row_models(record, variants, routed.randomised)
    times = np.full(len(ids), time.time_ns() // 1_000_000)
    encoder = PredictionEncoder(ROLLOUT_PREDICTION.reserved_id, pipeline=pipeline.name, variant="primary", rollout=True)
    outputs = {"late_probability": np.full(len(ids), 0.5, np.float32)}
    values = encoder.encode(ids, times, times, times, outputs, Table({"distance": distances}), models=models)
    produce(kafka.bootstrap, service.output, [(None, value) for value in values])
    time.sleep(0.002)
    scene = Past(service, {}, begun, _now())
    done = scene.replay("--json", folder=tmp_path / "state")
    assert done.returncode == UNDECIDED, done.stderr
    found = json.loads(done.stdout)["routing"]
    assert (found["checked"], found["mismatches"], len(found["examples"])) == (len(ids), wrong, wrong)
    service.file.write_text(service.file.read_text(encoding="utf-8").replace(topic, f"{topic}-2"), encoding="utf-8")
    done = scene.replay(folder=tmp_path / "state")
    assert f"routing: 100 predictions not checked: topic {topic}-2 (rollout) does not exist" in " ".join(
        (done.stdout + done.stderr).split()
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--model", "2", "--from", "2026-01-02", "--to", "2026-01-01"), "expected the earlier time first"),
        (("--model", "2", "--from", "2026-01-02", "--to", "2999-01-01"), "this is in the future"),
        (("--model", "2", "--from", "2999-01-01", "--to", "now"), "expected the earlier time first"),
        (("--model", "0", "--from", "2026-01-01", "--to", "2026-01-02"), "expected a version from 1 on, found '0'"),
        (
            ("--model", "2", "--from", "yesterday", "--to", "2026-01-02"),
            "such as 2026-05-01 or 2026-05-01T12:30Z, found",
        ),
        (
            ("--model", "2", "--from", "0001-01-01", "--to", "2026-01-02"),
            "expected a time since 1970, as Kafka's records have",
        ),
        (("--model", "2", "--from", "12:50", "--to", "2026-01-02"), f"no date. For today, write {TODAY}T12:50Z"),
        (("--model", "2", "--from", "12:50+02:00", "--to", "2026-01-02"), "T12:50+02:00"),
    ],
)
def test_wrong_use_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: Sequence[str], said: str
) -> None:
    (tmp_path / "pipeline.yaml").write_text(SMALL)
    with pytest.raises(SystemExit) as end:
        main(["replay", str(tmp_path), *options])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


PETS = "inputs: [{tensor: x, fields: [x], dtype: float32}]\noutputs: [{tensor: p, classes: [cat, dog]}]\n"


def complete_replay(folder: Path, compared: str | None, **scored_by: object) -> list[str]:
    """A complete replay of a model with the classes cat and dog, by no broker; returns the command that made it."""
    folder.mkdir()
    state = ReplayFolder(folder)
    settings = {"output": None, "item": None, "classes": None} | scored_by
    state.write_about(About("p", "m", 1, 0, 1000, None, compared, settings, "g", {}))
    state.note_done()
    span = ["--model", "1", "--from", "1970-01-01T00:00:00", "--to", "1970-01-01T00:00:01", "--state", str(folder)]
    return ["replay", str(folder.parent), *span]


def pets(folder: Path, **comparison: object) -> None:
    """A pipeline with that model."""
    flights_service(folder, NOWHERE, with_topics=False, model={"name": "m", "version": 1}, comparison=comparison)
    predicting(folder / "models", "return {}", config=PETS)


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ({"output": "p.cat"}, {"output": "p.dog"}, "expected `output: p.cat`, as when the results in "),
        ({"output": "p.cat"}, {"output": "p.dog"}, "found `output: p.dog`. Change it back, add --anew "),
        ({"output": "p.cat"}, {}, "found no `output`."),
        ({"output": "p", "item": 0}, {"output": "p", "item": 1}, "expected `item: 0`, as"),
        (
            {"classes": ["cat", "dog"]},
            {"task": "multiclass", "classes": ["dog", "cat"]},
            "expected `classes: cat, dog`, as",
        ),
        ({}, {"task": "multiclass"}, "expected no `classes`, as"),
    ],
)
def test_complete_replay_with_scores_of_other_settings_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], then: dict[str, Any], now: dict[str, Any], said: str
) -> None:
    pets(tmp_path, **now)
    assert main(complete_replay(tmp_path / "state", then.get("output"), **then)) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({}, "comparison.output: expected the output of the class that a label of 1 stands for, found none"),
        ({"task": "regression"}, "comparison.task: expected `task: multiclass`, because "),
    ],
)
def test_complete_replay_of_a_class_that_nobody_named_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], section: dict[str, Any], said: str
) -> None:
    pets(tmp_path, **section)
    assert main(complete_replay(tmp_path / "state", "p.cat")) == 1
    assert said in capsys.readouterr().err
