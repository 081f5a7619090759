"""Real workers follow a rollout: each event once, by the variant that its prediction names."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.load import vector_events
from millstream.consumers.cli import main as cli
from millstream.consumers.rollout.routing import FieldOverride, route
from millstream.schemas.comparisons import ComparisonDecoder
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.records import OWN_SCHEMAS_FOLDER
from tests.broker.clients import produce, read_all
from tests.consumers.processes import Worker, wait_balanced
from tests.consumers.service import value_of
from tests.consumers.serving.rollout_scene import (
    RolloutScene,
    is_loaded,
    rollout_prediction_of,
    until_revision,
    write_python_version,
)
from tests.consumers.serving.versions import CONFIG, write_version

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytestmark = [pytest.mark.broker, pytest.mark.durable]
EVENTS = 400
EFFECT = 2.0  # seconds within which a change takes effect in all workers
FALLBACKS = "millstream_rollout_fallback_events_total{{reason={},variant=canary}}"


def check_routing(scene: RolloutScene, rows: list[dict[str, Any]]) -> None:
    """Each prediction names the variant that `route` chooses by the revision that it names."""
    for row in rows:
        choice = row["rollout"]
        if choice is None or not choice["randomised"]:
            continue
        record = scene.records[choice["revision"]]
        assert choice["id"] == record.rollout
        (variant,) = route(record.plan(), [scene.keys[row["event_id"]]]).variant.tolist()
        assert choice["assigned"] == record.variants[variant].name
        assert choice["propensity"] == record.shares[variant] / 10_000


def test_worker_follows_a_rollout_from_the_start_to_the_promotion(kafka: Broker, tmp_path: Path) -> None:
    scene = RolloutScene(tmp_path, kafka, 1, 2)
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        scene.send(EVENTS)
        scene.start(75, 25)
        until_revision(worker, 1)
        worker.wait_for(lambda: is_loaded(worker, "canary", 2), 30, "ready with version 2")
        scene.send(EVENTS)
        scene.shift(0, 100, state="promoted")
        until_revision(worker, 2)
        scene.send(EVENTS)
        worker.wait_for(lambda: "version 1 of model vector is unloaded" in worker.log, 30, "rid of version 1")
        assert worker.rebalances() == 1
        assert worker.stop() == 0
    with Worker(scene.service.file, "--until-idle") as worker:  # starts with what the record names
        scene.send(EVENTS, wait=False)
        assert worker.wait() == 0
    rows = scene.predictions()
    before, during, after, restarted = (rows[at : at + EVENTS] for at in range(0, 4 * EVENTS, EVENTS))
    assert {(row["version"], row["variant"]) for row in before} == {(1, "primary")}
    assert [row["rollout"] for row in before] == [None] * EVENTS
    assert [(row["version"], row["variant"]) for row in after + restarted] == [(2, "canary")] * 2 * EVENTS
    check_routing(scene, rows)
    assert {row["variant"] for row in during} == {"primary", "canary"}
    assert all(row["rollout"]["assigned"] == row["variant"] and row["rollout"]["randomised"] for row in during)
    assert all(row["rollout"]["model_ms"] > 0 for row in during)


@pytest.mark.full
def test_worker_that_is_killed_after_its_shadow_was_promoted_starts_again_without_the_shadow(
    kafka: Broker, tmp_path: Path
) -> None:
    scene = RolloutScene(tmp_path, kafka, 1, 2, shadows=[{"version": 2, "name": "more_trees"}])
    assert cli.run(["topics", "create", str(scene.service.file)]) == 0
    scene.start(80, 20)
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        worker.wait_for(lambda: is_loaded(worker, "canary", 2), 30, "ready with version 2")
        scene.send(EVENTS)
        scene.shift(0, 100, state="promoted")
        until_revision(worker, 2)
        scene.send(EVENTS)
        scene.service.wait_committed()
        worker.stop(signal.SIGKILL)
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        scene.send(EVENTS)
        assert worker.stop() == 0
        assert worker.log.count("the shadow `more_trees` is left out, because its version is live now") == 1
    assert {row["version"] for row in scene.predictions()[EVENTS:]} == {2}
    assert cli.run(["check", str(scene.service.file)]) == 0
    values = [value_of(message) for message in read_all(kafka.bootstrap, f"{scene.pipeline.name}-comparisons")]
    pairs = ComparisonDecoder(DirectoryStore(OWN_SCHEMAS_FOLDER)).decode(values)[0].pairs
    assert {(pair.primary.version, pair.shadow.version) for pair in pairs} <= {(1, 2)}


@pytest.mark.full
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_two_workers_follow_changes_within_seconds_without_a_rebalance(
    kafka: Broker, tmp_path: Path, delivery: str
) -> None:
    scene = RolloutScene(tmp_path, kafka, 1, 2, delivery=delivery)
    scene.start(100, 0)
    with Worker(scene.service.file) as one, Worker(scene.service.file) as other:
        for worker in (one, other):
            worker.wait_ready()
        wait_balanced(one, other, partitions=2)
        before = [worker.rebalances() for worker in (one, other)]
        late: list[float] = []
        for share in (1, 5, 25, 50, 100, 0, 50):
            scene.shift(100 - share, share)
            began = time.monotonic()
            for worker in (one, other):
                until_revision(worker, scene.record.revision, timeout=EFFECT)
            late.append(time.monotonic() - began)
            scene.send(EVENTS)
        after = [worker.rebalances() for worker in (one, other)]
        assert one.stop() == other.stop() == 0
    rows = scene.predictions()
    check_routing(scene, rows)
    for turn, share in enumerate((1, 5, 25, 50, 100, 0, 50)):
        own = rows[turn * EVENTS : (turn + 1) * EVENTS]
        assert {row["rollout"]["revision"] for row in own} == {2 + turn}
        assert {row["variant"] for row in own} <= {"primary", "canary"} - ({"canary"} if not share else set())
    # The last round of the rebalance that balanced the two may end for one of them after that.
    assert all(now <= then + 1 for now, then in zip(after, before, strict=True)), "nobody joined or left because of it"
    assert max(late) < EFFECT


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"instances": 2}], ids=["one", "copies"])
def test_exactly_once_with_workers_that_are_killed_during_changes(
    kafka: Broker, tmp_path: Path, options: dict[str, Any]
) -> None:
    scene = RolloutScene(
        tmp_path,
        kafka,
        1,
        2,
        delivery="exactly_once",
        batch={"max_events": 16},
        model=options,
    )
    scene.start(50, 50)
    for turn in range(6):
        with ExitStack() as stack:
            workers = [stack.enter_context(Worker(scene.service.file)) for _ in range(2)]
            workers[0].wait_ready()
            scene.send(5 * EVENTS, wait=False)
            for share in (10, 90, 40):
                scene.shift(100 - share, share)
                scene.send(EVENTS, wait=False)
            # The context kills them here, at another point of the work each time.
            time.sleep(0.1 * turn)
    with Worker(scene.service.file, "--until-idle") as worker:
        assert worker.wait(120) == 0
    rows = scene.predictions()  # each event once
    check_routing(scene, rows)
    assert len({row["rollout"]["revision"] for row in rows}) > 3
    assert {row["variant"] for row in rows} == {"primary", "canary"}


@pytest.mark.full
def test_candidate_that_is_missing_or_unfit_costs_no_event_and_leaves_the_worker_ready(
    kafka: Broker, tmp_path: Path
) -> None:
    scene = RolloutScene(tmp_path, kafka, 1)
    write_version(scene.models, 3, config={**CONFIG, "outputs": [{"tensor": "score", "name": "probability"}]})
    (scene.models / "4").mkdir()
    (scene.models / "4" / "config.yaml").write_text("inputs: [")
    (scene.models / "4" / "model.onnx").write_bytes(b"no model")
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        for turn, (version, said) in enumerate(
            [
                (2, "expected version 2 of model vector in the repository, found 1, 3, 4."),
                (3, "expected the outputs"),
                (4, "config.yaml"),
            ]
        ):
            scene.start(50, 50, versions=(1, version), rollout=f"r{version}")
            until_revision(worker, turn + 1)
            worker.wait_for(lambda version=version: f"events of version {version}." in worker.log, 30, "refusing it")  # type: ignore[misc]
            assert said in worker.log
            scene.send(EVENTS)
            assert worker.get("/ready")[0] == 200
        assert worker.metrics()[FALLBACKS.format("not_loaded")] > 0
        write_version(scene.models, 5)
        scene.start(50, 50, versions=(1, 5), rollout="r5")
        until_revision(worker, 4)
        worker.wait_for(lambda: is_loaded(worker, "canary", 5), 30, "ready with version 5")
        scene.send(EVENTS)
        assert worker.stop() == 0
    rows = scene.predictions()
    check_routing(scene, rows)
    for row in rows[: 3 * EVENTS]:
        assert (row["version"], row["variant"], row["rollout"]["randomised"]) == (1, "primary", True)
    assert {row["rollout"]["assigned"] for row in rows} == {"primary", "canary"}
    assert {row["version"] for row in rows[3 * EVENTS :]} == {1, 5}


@pytest.mark.full
def test_overrides_by_key_and_by_field_decide_and_say_so(kafka: Broker, tmp_path: Path) -> None:
    scene = RolloutScene(tmp_path, kafka, 1, 2, rollout={"override_fields": ["id"]})
    named = "event-0000000003"
    scene.start(100, 0, keys=((b"key-1", 1),), fields=(FieldOverride("id", frozenset({named}), 1),))
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        scene.send(EVENTS)
        assert worker.stop() == 0
    rows = {row["event_id"]: row for row in scene.predictions()}
    moved = {event for event, row in rows.items() if row["variant"] == "canary"}
    assert moved == {named, "event-0000000001"}
    assert {event for event, row in rows.items() if not row["rollout"]["randomised"]} == moved


@pytest.mark.full
def test_topic_that_cannot_be_read_keeps_the_state_and_a_worker_that_starts_says_what_to_do(
    kafka: Broker, tmp_path: Path
) -> None:
    scene = RolloutScene(tmp_path, kafka, 1, 2)
    scene.start(50, 50)
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        scene.write_foreign(b"hello")
        worker.wait_for(
            lambda: worker.metrics().get("millstream_rollout_control_unreadable") == 1,
            30,
            "aware of the foreign record",
        )
        scene.send(EVENTS)
        scene.delete_topic()
        scene.send(EVENTS)
        assert worker.get("/ready")[0] == 200
        assert worker.metrics()["millstream_rollout_control_unreadable"] == 1
        assert worker.stop() == 0
    assert worker.log.count("the record at offset") == 1
    assert set(scene.variants()) == {"primary", "canary"}
    with Worker(scene.service.file) as worker:
        assert worker.wait() == 1
    assert f"{scene.topic} (rollout). Create them: millstream topics create" in worker.log


@pytest.mark.full
def test_candidate_that_hangs_while_it_is_loaded_does_not_keep_workers_from_ending_nor_a_rollback_from_helping(
    kafka: Broker, tmp_path: Path
) -> None:
    scene = RolloutScene(tmp_path, kafka, 1)
    write_python_version(scene.models, 2, "", loading="time.sleep(600)")
    scene.start(50, 50)
    with Worker(scene.service.file) as worker:
        until_loading(worker)
        assert worker.stop() == 0
    with Worker(scene.service.file) as worker:
        until_loading(worker)
        scene.shift(100, 0, state="rolled_back")
        worker.wait_ready()
        scene.send(EVENTS)
        assert worker.stop() == 0
    assert set(scene.variants()) == {"primary"}


def until_loading(worker: Worker) -> None:
    worker.wait_for(lambda: "the versions of the rollout" in worker.get("/ready")[1], 60, "loading a version")


REJECTS = """
if (x[:, 0] > 0).any():
    raise ValueError("a positive one")
"""
CRASHES = """
if (x[:, 0] > 1.5).any():
    import os
    os.abort()
"""
AWAY = """
if (x != 0).any():  # not the blank events of the warm-up
    raise ConnectionError("the server of version 2 is away")
"""
SLOW = """
time.sleep(0.05 if (x != 0).any() else 0)
"""


def python_scene(folder: Path, kafka: Broker, body: str) -> RolloutScene:
    """Version 2 is a Python model that does this with `x`, before it answers."""
    scene = RolloutScene(folder, kafka, 1)
    write_python_version(scene.models, 2, body)
    scene.start(50, 50)
    return scene


@pytest.mark.full
def test_events_that_the_candidate_rejects_are_dead_letters_that_name_it(kafka: Broker, tmp_path: Path) -> None:
    scene = python_scene(tmp_path, kafka, REJECTS)
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        scene.send(EVENTS)
        assert worker.stop() == 0
    letters = scene.service.dead_letters()
    rows = [rollout_prediction_of(message) for message in scene.service.predictions()]
    check_routing(scene, rows)
    assert len(letters) + len(rows) == EVENTS
    assert len({row["event_id"] for row in rows}) == len(rows)
    assert {row["version"] for row in rows} == {1, 2}
    assert {(letter.reason, letter.model, letter.version, letter.variant) for letter in letters} == {
        ("model_rejected", "vector", 2, "canary")
    }
    choices = [letter.rollout for letter in letters]
    assert {(choice.assigned, choice.revision, choice.propensity) for choice in choices if choice} == {
        ("canary", 1, 0.5)
    }
    assert None not in choices


@pytest.mark.full
def test_event_on_which_the_candidate_takes_workers_down_is_a_dead_letter_that_names_it(
    kafka: Broker, tmp_path: Path
) -> None:
    scene = RolloutScene(
        tmp_path, kafka, 1, batch={"max_events": 16}, limits={"crash_attempts": 1}, membership={"static": True}
    )
    write_python_version(scene.models, 2, CRASHES)
    scene.start(50, 50)
    values = vector_events(60, seed=1).values
    rows = [(b"key-%d" % row, value[:6] + b"event-%010d" % row + value[22:]) for row, value in enumerate(values)]
    produce(scene.service.bootstrap, scene.service.inputs[0], rows)
    for _ in range(40):
        with Worker(scene.service.file, "--until-idle") as worker:
            if worker.wait(120) == 0:
                break
    letters = scene.service.dead_letters()
    assert letters
    routed = route(scene.record.plan(), [letter.key or b"" for letter in letters]).variant.tolist()
    assert set(routed) == {1}
    assert {(letter.reason, letter.version, letter.variant) for letter in letters} == {("crashed", 2, "canary")}
    choices = [letter.rollout for letter in letters]
    assert {(own.assigned, own.randomised, own.propensity) for own in choices if own} == {("canary", True, 0.5)}
    answered = {rollout_prediction_of(message)["event_id"] for message in scene.service.predictions()}
    assert len(answered) + len(letters) == len(rows)


@pytest.mark.full
def test_candidate_whose_executor_is_away_costs_no_event(kafka: Broker, tmp_path: Path) -> None:
    scene = python_scene(tmp_path, kafka, AWAY)
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        scene.send(EVENTS)
        assert worker.get("/ready")[0] == 200
        assert worker.metrics()[FALLBACKS.format("outage")] > 0
        assert worker.stop() == 0
    rows = scene.predictions()
    check_routing(scene, rows)
    assert {(row["version"], row["variant"], row["rollout"]["assigned"]) for row in rows} == {
        (1, "primary", "primary"),
        (1, "primary", "canary"),
    }
    assert worker.log.count("the server of version 2 is away") == 1


@pytest.mark.full
def test_slow_candidate_is_seen_in_its_own_predictions(kafka: Broker, tmp_path: Path) -> None:
    scene = python_scene(tmp_path, kafka, SLOW)
    with Worker(scene.service.file) as worker:
        worker.wait_ready()
        scene.send(EVENTS)
        assert worker.stop() == 0
    rows = scene.predictions()
    check_routing(scene, rows)
    assert min(row["rollout"]["model_ms"] for row in rows if row["variant"] == "canary") >= 50
    assert min(row["rollout"]["model_ms"] for row in rows if row["variant"] == "primary") < 50
