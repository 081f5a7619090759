"""`millstream rollout`: state and history, commands and their refusals, and the exit codes of `wait`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, get_args

import pytest
import yaml

from millstream.consumers.cli import main as cli
from millstream.consumers.cli import rollout
from millstream.consumers.cli.rollout_figures import evaluations_of
from millstream.consumers.cli.usage.rollout import STRATEGIES, field_override, hex_override, key_override, named_share
from millstream.consumers.control.writer import ControlWriter
from millstream.consumers.evaluation import topic as evaluation_topic
from millstream.consumers.evaluation.figures import StepFigures, WindowFigures, idle_figures
from millstream.consumers.evaluation.topic import Evaluations
from millstream.consumers.rollout.power import required_events
from millstream.consumers.rollout.rounded import about
from millstream.pipeline.loading import load_pipeline
from millstream.pipeline.rollout_section import Strategy
from millstream.schemas.records import ROLLOUT
from millstream.topics.admin import Admin, create
from tests.broker.choice import Broker
from tests.consumers.control.topic_in_memory import Topic, TopicReader, TopicTransaction
from tests.consumers.service import flights_service

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.pipeline.pipeline import Pipeline
    from tests.consumers.service import Service

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
NAME = "flights-delay"
WHY = ("--reason", "because", "--by", "alice")
LABELS = {"topic": "outcomes", "format": "json", "event_id": "id", "value": "late"}


def service_of(
    folder: Path, kafka: Broker = NOWHERE, section: dict[str, Any] | None = None, **sections: Any
) -> Service:
    """The flights with version 1, the same as version 3 and 4, and version 2, which has other inputs."""
    service = flights_service(folder, kafka, with_topics=False, rollout=section or {"strategy": "manual"}, **sections)
    for version in ("3", "4"):
        shutil.copytree(folder / "models" / NAME / "1", folder / "models" / NAME / version)
    return service


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """The control topic, in memory."""
    made = Topic()

    def reader(pipeline: Pipeline, _: object) -> TopicReader:
        return TopicReader(made, pipeline.name)

    def writer(_: object, __: object, own: TopicReader) -> ControlWriter:
        return ControlWriter(own, lambda: TopicTransaction(made), ROLLOUT.reserved_id)

    monkeypatch.setattr(rollout, "require_control_topic", lambda *_: None)
    monkeypatch.setattr(rollout, "open_reader", reader)
    monkeypatch.setattr(rollout, "open_writer", writer)
    monkeypatch.setattr(rollout, "evaluations_of", lambda *_: "not read here")
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that succeeds; returns what it prints."""

    def command(service: Service, action: str, *options: str, code: int = 0) -> str:
        assert cli.run(["rollout", action, str(service.file), *options]) == code, capsys.readouterr().err
        said = capsys.readouterr()
        return said.err if code == 1 else said.out

    return command


@pytest.fixture
def state(run: Callable[..., str]) -> Callable[[Service], Any]:
    return lambda service: json.loads(run(service, "status", "--json"))


def test_without_a_rollout_the_files_version_answers(
    tmp_path: Path, topic: Topic, run: Callable[..., str], state: Callable[[Service], Any]
) -> None:
    service = service_of(tmp_path)
    assert run(service, "status") == f"rollout   none: version 1 of {NAME} answers all events\n"
    assert state(service)["state"] == "none"
    headings = ["revision", "time", "(UTC)", "by", "action", "candidate", "before", "after", "reason"]
    assert run(service, "history").split() == headings
    assert "there is no rollout. Start one" in run(service, "promote", *WHY, code=1)
    assert "there is no rollout. Start one" in run(service, "wait", code=1)
    assert topic.rows == []


def test_manual_rollout_from_start_to_promotion(
    tmp_path: Path, topic: Topic, run: Callable[..., str], state: Callable[[Service], Any]
) -> None:
    service = service_of(tmp_path)
    assert topic.rows == []
    assert "revision 1: start by alice: primary (version 1) 99 %, canary (version 3) 1 %, running (because)" in run(
        service, "start", "3", "--share", "1%", *WHY
    )
    run(service, "set", "--share", "25", *WHY)
    run(service, "pause", *WHY)
    run(service, "resume", *WHY)
    assert "promote by alice: primary (version 1) 0 %, canary (version 3) 100 %, promoted" in run(
        service, "promote", *WHY
    )
    found = state(service)
    assert (found["state"], found["before"], found["allowed"]) == (
        "promoted",
        {"state": "running", "shares": [75.0, 25.0]},
        ["rollback"],
    )
    assert [(own["name"], own["version"], own["share"]) for own in found["variants"]] == [
        ("primary", 1, 0),
        ("canary", 3, 100),
    ]
    changes = [json.loads(line) for line in run(service, "history", "--json").splitlines()]
    assert [(own["revision"], own["action"], own["state"]) for own in changes] == [
        (1, "start", "running"),
        (2, "set", "running"),
        (3, "pause", "paused"),
        (4, "resume", "running"),
        (5, "promote", "promoted"),
    ]
    assert [own["before"]["shares"] for own in changes] == [[], [99, 1], [75, 25], [75, 25], [75, 25]]
    assert run(service, "wait", "3") != ""
    lines = run(service, "history").splitlines()
    assert lines[2].split()[-9:] == ["set", "3", "99/1", "%", "running", "75/25", "%", "running", "because"]
    run(service, "start", "4", *WHY)
    assert [own["version"] for own in state(service)["variants"]] == [3, 4]
    assert "revision 6" in run(service, "status")


def test_canary_goes_by_the_files_steps(
    tmp_path: Path, topic: Topic, run: Callable[..., str], state: Callable[[Service], Any]
) -> None:
    service = service_of(tmp_path, section={"least_labels": 0, "steps": [2, 20], "approve": [20], "candidate": 3})
    run(service, "start", "--by", "bob")
    assert state(service)["reason"] == f"{NAME} 3 starts at 2 %"
    assert "approve: the rollout is running, because its step has not passed" in run(service, "approve", *WHY, code=1)
    run(service, "step", *WHY)
    assert (state(service)["variants"][1]["share"], state(service)["emergency"]) == (20, True)
    assert "state     running, step 2 of 2" in run(service, "status")
    run(service, "rollback", *WHY)
    assert state(service)["state"] == "rolled_back"
    assert len(topic.rows) == 3


def test_set_and_resume_say_with_which_step_the_rollout_goes_on(
    tmp_path: Path, topic: Topic, run: Callable[..., str]
) -> None:
    section = {"least_labels": 0, "steps": [1, 5, 25, 50], "approve": [25], "candidate": 3}
    service = service_of(tmp_path, section=section)
    run(service, "start", *WHY)
    run(service, "step", *WHY)
    run(service, "pause", *WHY)
    after = "anew: what was evaluated before doesn't count. When it has passed, the candidate gets"
    assert run(service, "set", "--share", "10%", *WHY).splitlines()[1:] == [
        f"next      `resume` begins step 2 of 4 before 100 % at 10 % {after} 25 %, if somebody approves it"
    ]
    assert run(service, "set", "--share", "30%", *WHY).splitlines()[1:] == [
        f"next      `resume` begins step 2 of 4 before 100 % at 30 % {after} 50 %"
    ]
    assert run(service, "resume", *WHY).splitlines()[1:] == [
        f"next      step 2 of 4 before 100 % at 30 % has begun {after} 50 %"
    ]
    assert len(run(service, "pause", *WHY).splitlines()) == 1
    assert "`resume` begins the watch at 100 % anew: " in run(service, "set", "--share", "100%", *WHY)
    old = "the candidate's events from before don't count, but the baseline's from before 100 % still do."
    assert f"the watch at 100 % has begun anew: {old} " in run(service, "resume", *WHY)
    assert "anew" not in run(service, "set", "--key", "a=canary", *WHY)
    assert topic.rows != []


def test_step_that_has_not_passed_cannot_be_approved_and_what_it_lacks_is_told(
    tmp_path: Path,
    topic: Topic,
    run: Callable[..., str],
    state: Callable[[Service], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = service_of(tmp_path, section={"least_labels": 0, "steps": [2, 20], "approve": [20], "candidate": 3})
    run(service, "start", *WHY)
    record = state(service)
    window = WindowFigures(None, None, ())
    notes = ("autopilot: hold: the step has taken 12 of 600 s",)
    now = rollout.clock() - 3 * 3_600_000
    found = StepFigures(record["pipeline"], record["rollout"], 1, 1, 0, now, 0.0, 0, notes, (), (), (), window, ())
    monkeypatch.setattr(rollout, "evaluations_of", lambda *_: Evaluations([found]))
    said = run(service, "approve", *WHY, code=1)
    assert "its step has not passed yet. A step must pass before somebody can approve the next one" in said
    assert (
        "What is missing: the step has taken 12 of 600 s. The step was evaluated 3 h ago: autopilot doesn't run" in said
    )
    advice = "autopilot: would await_approval: all metrics passed: accuracy is good enough"
    monkeypatch.setattr(rollout, "evaluations_of", lambda *_: Evaluations([replace(found, notes=(advice,))]))
    service.file.write_text(service.file.read_text().replace("rollout:\n", "rollout:\n  mode: advise\n"))
    said = run(service, "approve", *WHY, code=1)
    assert "not passed" not in said
    assert "does not wait for approval, because autopilot only advises (`rollout.mode: advise`)" in said
    assert "says: would await_approval: all metrics passed: accuracy is good enough. The step was" in said
    assert said.endswith("` goes on to the next step.\n")
    assert len(topic.rows) == 1


def test_status_reads_the_evaluations_once(
    tmp_path: Path, topic: Topic, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, read = service_of(tmp_path), list[object]()
    run(service, "start", "3", *WHY)
    run(service, "rollback", *WHY)
    monkeypatch.setattr(rollout, "evaluations_of", evaluations_of)

    class AtEnd:
        """As SinceReader, of a topic without records."""

        def existing(self) -> Iterator[object]:
            return iter(())

        def __enter__(self) -> Self:
            read.append(self)
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(evaluation_topic, "SinceReader", lambda *_: AtEnd())
    assert "not yet" not in run(service, "status")
    assert (len(read), len(topic.rows)) == (1, 2)


def test_overrides_are_shown_and_kept_until_the_end(
    tmp_path: Path, topic: Topic, run: Callable[..., str], state: Callable[[Service], Any]
) -> None:
    service = service_of(tmp_path, section={"strategy": "manual", "override_fields": ["carrier"]})
    run(service, "start", "3", *WHY)
    run(service, "set", "--key", "a=b=canary", "--key-hex", "00ff=primary", "--field", "carrier=UA:canary", *WHY)
    found = state(service)
    assert [(own["hex"], own["variant"]) for own in found["keys"]] == [("613d62", "canary"), ("00ff", "primary")]
    assert found["fields"] == [{"field": "carrier", "values": ["UA"], "variant": "canary"}]
    assert "override  field carrier = UA: canary" in run(service, "status")
    assert "expected a field of `rollout.override_fields` (carrier)" in run(
        service, "set", "--field", "origin=EWR:canary", *WHY, code=1
    )
    assert "variant: expected one of primary, canary, found green" in run(
        service, "set", "--key", "a=green", *WHY, code=1
    )
    run(service, "promote", *WHY)
    assert (state(service)["keys"], state(service)["fields"]) == ([], [])
    assert len(topic.rows) == 3


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["9"], "has no version 9"),
        (["1"], "expected another version than the baseline, found 1, which answers already"),
        (
            ["2"],
            "Start the rollout of another version, or export the model with the same inputs. Both versions of a rollout answer "
            "in the same worker, so they must fit each other. To let one take the place of the other without a rollout: "
            "`millstream docs rollouts#a-version-with-other-inputs`.",
        ),
        ([], "expected the candidate's version, found none"),
        (["3", "4"], "expected one version with `manual`, found 3, 4"),
        (["3", "--strategy", "canary"], "canary can't run with"),
        (["3", "--strategy", "blue-green"], "expected `labels:`"),
        (["3", "--strategy", "bandit"], "expected `reward`"),
    ],
)
def test_start_refuses_what_cannot_run_and_changes_nothing(
    tmp_path: Path, topic: Topic, run: Callable[..., str], options: list[str], says: str
) -> None:
    assert says in run(service_of(tmp_path), "start", *options, *WHY, code=1)
    assert topic.rows == []


def test_start_refuses_a_version_that_workers_could_not_load(
    tmp_path: Path, topic: Topic, run: Callable[..., str]
) -> None:
    service = service_of(tmp_path)
    model = tmp_path / "models" / NAME / "3" / "model.onnx"
    model.write_bytes(model.read_bytes()[:300])  # a copy that is not complete
    assert f"{model} can't be loaded" in run(service, "start", "3", *WHY, code=1)
    assert topic.rows == []


def test_command_may_name_the_revision_that_it_was_decided_on(
    tmp_path: Path, topic: Topic, run: Callable[..., str]
) -> None:
    service = service_of(tmp_path)
    run(service, "start", "3", "--revision", "0", *WHY)
    run(service, "set", "--share", "5%", "--revision", "1", "--reason", "first", "--by", "bob")
    for command in (("promote",), ("start", "4"), ("set", "--share", "9%")):
        said = run(service, *command, "--revision", "1", *WHY, code=1)
        assert (
            "expected revision 1, found 2: bob made the change 'set' in the meantime (first). Look at the new state"
            in said
        )
    assert len(topic.rows) == 2


def test_share_that_looks_like_an_option_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("-5%", "-5"):
        with pytest.raises(SystemExit):
            cli.run(["rollout", "set", str(tmp_path), "--share", text, *WHY])
        assert "argument --share: expected a share from 0% to 100%" in capsys.readouterr().err


def test_long_reasons_are_cut_in_the_history_and_whole_in_json(
    tmp_path: Path, topic: Topic, run: Callable[..., str]
) -> None:
    service, reason = service_of(tmp_path), "all metrics passed: " + "accuracy is good enough; " * 20
    run(service, "start", "3", "--reason", reason)
    line = run(service, "history").splitlines()[-1]
    assert "all metrics passed: accuracy" in line
    assert line.rstrip().endswith("...")
    assert json.loads(run(service, "history", "--json"))["reason"] == reason
    assert topic.rows


def test_shares_of_a_canary_are_the_files(tmp_path: Path, topic: Topic, run: Callable[..., str]) -> None:
    service = service_of(tmp_path, section={"least_labels": 0})
    assert "whose shares are in the pipeline file" in run(service, "start", "3", "--share", "5", code=1)
    assert "more than 0% and less than 100%, found 100%" in run(
        service, "start", "3", "--strategy", "ab", "--share", "100", code=1
    )
    assert topic.rows == []


def test_blue_green_needs_a_shadow_of_the_candidate(tmp_path: Path, topic: Topic, run: Callable[..., str]) -> None:
    service = service_of(
        tmp_path, section={"strategy": "blue-green", "least_labels": 0}, shadows=[{"version": 4, "sample_rate": 0.5}]
    )
    assert "needs a shadow of version 3" in run(service, "start", "3", code=1)
    run(service, "start", "4")
    assert len(topic.rows) == 1


def test_rollout_that_runs_is_not_begun_again_by_mistake(
    tmp_path: Path, topic: Topic, run: Callable[..., str], state: Callable[[Service], Any]
) -> None:
    service = service_of(tmp_path)
    run(service, "start", "3", "--reason", "newest", "--by", "autopilot")
    refused = run(service, "start", "3", *WHY, code=1)
    assert "is on its way already (running, revision 1: autopilot made the change 'start')" in refused
    run(service, "start", "4", *WHY)
    assert state(service)["action"] == "restart"
    assert len(topic.rows) == 2


def test_change_of_somebody_else_in_between_is_told(
    tmp_path: Path, topic: Topic, run: Callable[..., str], state: Callable[[Service], Any]
) -> None:
    """As autopilot and a person at once."""
    service = service_of(tmp_path)
    run(service, "start", "3", *WHY)
    topic.interrupt = lambda: run(service, "pause", "--reason", "errors", "--by", "autopilot")
    said = run(service, "promote", *WHY, code=1)
    assert "expected revision 1, found 2: autopilot made the change 'pause' in the meantime (errors)" in said
    assert state(service)["state"] == "paused"


def test_foreign_record_is_told_and_a_start_replaces_it(
    tmp_path: Path, topic: Topic, run: Callable[..., str], state: Callable[[Service], Any]
) -> None:
    service = service_of(tmp_path)
    key = load_pipeline(service.file, {}).name.encode()
    topic.rows.append((key, b"hello"))
    assert run(service, "status").startswith("problem   the record at offset 0 can't be read: expected a record of")
    assert state(service)["state"] == "unknown"
    assert "Start the rollout anew: millstream rollout start" in run(service, "promote", *WHY, code=1)
    run(service, "start", "3", *WHY)
    assert state(service)["state"] == "running"
    rows = [json.loads(line) for line in run(service, "history", "--json").splitlines()]
    assert [own["counts"] for own in rows] == [False, True, True]
    assert "the record was deleted" in run(service, "history")
    topic.rows.append((key, b"\0 from a later version"))
    assert "can't be read" in state(service)["problem"]
    run(service, "set", "--share", "3", *WHY)  # by the last state that can be read
    assert state(service)["problem"] == ""


@pytest.mark.parametrize(("ends", "code"), [("promote", 0), ("rollback", 4), ("start", 7), ("pause", 6)])
def test_wait_tells_the_end_by_its_exit_code(
    tmp_path: Path, topic: Topic, run: Callable[..., str], ends: str, code: int
) -> None:
    service = service_of(tmp_path)
    run(service, "start", "3", *WHY)
    options = ["4"] if ends == "start" else []
    topic.while_waiting.append(lambda: cli.run(["rollout", ends, str(service.file), *options, *WHY]))
    said = run(service, "wait", "--timeout", "100ms", code=code)
    assert f"{'restart' if ends == 'start' else ends} by alice" in said


def test_start_that_is_waited_for_is_printed_once(tmp_path: Path, topic: Topic, run: Callable[..., str]) -> None:
    service = service_of(tmp_path)
    said = run(service, "start", "3", *WHY)
    topic.while_waiting.append(lambda: cli.run(["rollout", "promote", str(service.file), *WHY]))
    said += run(service, "wait", "3", "--json", "--timeout", "1m")
    assert (said.count("start by alice"), changes_of(said)) == (1, ["promote"])


def test_wait_for_a_version_that_starts_later(tmp_path: Path, topic: Topic, run: Callable[..., str]) -> None:
    service = service_of(tmp_path)
    run(service, "start", "3", *WHY)
    run(service, "rollback", *WHY)
    for command in (["start", "4"], ["promote"]):
        words = ["rollout", command[0], str(service.file), *command[1:], *WHY]
        topic.while_waiting.append(partial(cli.run, words))
    said = run(service, "wait", "4", "--json")
    changes = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [own["action"] for own in changes] == ["start", "promote"]
    assert run(service, "wait", "4", "--timeout", "1ms") != ""
    assert run(service, "wait", "3", "--timeout", "1ms", code=6) == ""


def changes_of(said: str) -> list[str]:
    """What `wait --json` has printed; the commands in between print lines that are no JSON."""
    return [json.loads(line).get("action", "none") for line in said.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("most_polled", [None, 1])
@pytest.mark.parametrize(
    ("commands", "code", "changes"),
    [
        (["set --share 5%", "pause", "rollback"], 4, ["set", "pause", "rollback"]),
        (["promote", "start 4"], 0, ["promote"]),
        (["rollback", "start 4", "promote"], 4, ["rollback"]),
        (["set --share 5%", "start 4", "promote"], 7, ["set", "restart"]),
    ],
)
def test_wait_sees_each_change_however_many_come_at_once(
    tmp_path: Path,
    topic: Topic,
    run: Callable[..., str],
    commands: list[str],
    code: int,
    changes: list[str],
    most_polled: int | None,
) -> None:
    service = service_of(tmp_path)
    run(service, "start", "3", *WHY)
    topic.most_polled = most_polled
    words = [command.split() for command in commands]
    topic.while_waiting.append(
        lambda: [cli.run(["rollout", name, str(service.file), *options, *WHY]) for name, *options in words]
    )
    assert changes_of(run(service, "wait", "3", "--json", "--timeout", "1m", code=code)) == changes


@pytest.mark.parametrize("options", [[], ["3"]])
def test_wait_ends_if_the_record_is_deleted(
    tmp_path: Path, topic: Topic, run: Callable[..., str], options: list[str]
) -> None:
    service = service_of(tmp_path)
    run(service, "start", "3", *WHY)
    key, _ = topic.rows[0]
    topic.while_waiting.append(lambda: topic.rows.append((key, None)))
    said = run(service, "wait", *options, "--timeout", "1m", code=7)
    assert said.splitlines()[-1] == "the record was deleted: the pipeline file's version answers"
    commands = [["start", str(service.file), "3"], ["promote", str(service.file)]]
    topic.while_waiting += [lambda: topic.rows.append((key, None))]
    topic.while_waiting += [partial(cli.run, ["rollout", *command, *WHY]) for command in commands]
    assert changes_of(run(service, "wait", "3", "--json", "--timeout", "1m")) == ["start", "promote"]


def test_wait_goes_over_to_a_topic_that_was_created_anew(tmp_path: Path, topic: Topic, run: Callable[..., str]) -> None:
    service = service_of(tmp_path)
    run(service, "start", "4", *WHY)
    run(service, "start", "3", *WHY)
    topic.while_waiting += [topic.recreate, lambda: topic.rows.append((b"other", b"whatever"))]
    topic.while_waiting.append(lambda: cli.run(["rollout", "start", str(service.file), "3", *WHY]))
    assert changes_of(run(service, "wait", "--json", "--timeout", "1m", code=7)) == ["start"]


def test_arms_are_different_and_not_too_many(tmp_path: Path, topic: Topic, run: Callable[..., str]) -> None:
    reward = {"reward": {"field": "won", "margin": 1}}
    section = {"strategy": "bandit", "arms": [3], "least_share": 40, "metrics": reward}
    service = service_of(tmp_path, section=section, labels=LABELS)
    assert "expected each version once, found 3, 3" in run(service, "start", "3", "3", code=1)
    assert "expected at most 2 arms with the baseline" in run(service, "start", "3", "4", code=1)
    assert "primary (version 1) 50 %, v3 (version 3) 50 %" in run(service, "start")
    assert len(topic.rows) == 1


def test_record_of_another_model_is_told_and_replaced(
    tmp_path: Path, topic: Topic, run: Callable[..., str], state: Callable[[Service], Any]
) -> None:
    service = service_of(tmp_path)
    run(service, "start", "4", *WHY)
    run(service, "promote", *WHY)
    document = yaml.safe_load(service.file.read_text("utf-8"))
    document["model"] = {"name": "renamed", "version": 1}
    service.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    for version in ("1", "3"):
        shutil.copytree(tmp_path / "models" / NAME / "1", tmp_path / "models" / "renamed" / version)
    assert "model.name is renamed, so workers don't follow this record" in run(service, "status")
    run(service, "start", "3", *WHY)
    assert [(own["model"], own["version"]) for own in state(service)["variants"]] == [("renamed", 1), ("renamed", 3)]
    assert len(topic.rows) == 3


def test_pipeline_without_the_section_is_told_what_to_write(tmp_path: Path, run: Callable[..., str]) -> None:
    service = flights_service(tmp_path, NOWHERE, with_topics=False)
    assert "expected the section `rollout:`, found none. Write for example" in run(service, "status", code=1)


@pytest.mark.parametrize("text", ["canary", "=canary", "a:b"])
def test_override_without_its_parts_is_wrong_use(text: str) -> None:
    for read in (key_override, hex_override, field_override):
        with pytest.raises(Exception, match="expected"):
            read(text)


def test_overrides_and_shares_on_the_command_line() -> None:
    assert named_share("12.5%") == ("", 1250)
    assert named_share("v2=3") == ("v2", 300)
    assert field_override("a.b=x=y:z:canary") == ("a.b", "x=y:z", "canary")
    assert key_override("k=") == (b"k", "")


def test_check_says_that_a_shadow_which_has_won_starts_a_rollout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = {"start_after_shadow": "1m"}
    service = service_of(tmp_path, section=section, labels=LABELS, shadows=[{"version": 3, "name": "next"}])
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    said = capsys.readouterr().out
    assert (
        "canary of a shadow's version that has won, or of a version that `millstream rollout start` names: 1 %" in said
    )


def test_command_and_file_know_the_same_strategies() -> None:
    assert get_args(Strategy) == STRATEGIES


def test_check_says_what_the_section_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = {"candidate": "latest", "metrics": {"accuracy": {"margin": 0.02}}, "override_fields": ["carrier"]}
    service = service_of(tmp_path, section=section, labels=LABELS)
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("rollout")]
    sizes = "1,100,000 at 1 %, 240,000 at 5 %, 60,000 at 25 %, 45,000 at 50 %"
    assert said == [
        "rollout   canary of version latest: 1 %, 5 %, 25 %, 50 %, then 100 %",
        "rollout   each step takes 10 min, 500 labels or more, and is judged by accuracy, errors, dead_letters, latency; a "
        "breach leads to rollback",
        "rollout   latency: the model calls of the candidate's slowest 20 % of events may take 1.5 times as long as the "
        "baseline's. It passes when they are shown to take less, and is breached when they are shown to take more",
        "rollout   a step that takes longer than 1 d is inconclusive: it is held, and may still pass",
        "rollout   at 100 %, the candidate is watched for 1 h, and then promoted",
        f"rollout   accuracy: at most about {sizes} labelled events of both versions show it with a probability of 80%, if both "
        "versions are equally good; many events of one key count as fewer",
        "rollout   it may take longer until latency and the sample ratio pass, too: `millstream rollout status` says what "
        "they lack",
        "rollout   overrides by carrier: `millstream replay` can't check them, because predictions don't have the field. Add it "
        "to `output.include` if it should",
    ]


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (
            {"approve": [50, 100], "watch": "0s", "longest": "2h"},
            [
                "a step that takes longer than 2 h is inconclusive: it is held, and may still pass",
                "before 50 %, 100 %, it waits for `millstream rollout approve`",
                "a candidate that passes its last step is promoted at once, and not watched at 100 %",
            ],
        ),
        (
            {"strategy": "ab", "longest": "48h"},
            ["a step that takes longer than 2 d is inconclusive: it is held, and may still pass"],
        ),
        (
            {"strategy": "bandit", "arms": [3], "metrics": {"reward": {"field": "won", "margin": 1}}},
            ["errors, latency and quality are evaluated anew every 1 d"],
        ),
    ],
)
def test_check_says_for_whom_and_for_how_long_steps_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], section: dict[str, Any], says: list[str]
) -> None:
    service = service_of(tmp_path, section=section, labels=LABELS)
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    said = [line.removeprefix("rollout   ") for line in capsys.readouterr().out.splitlines()]
    assert [line for line in said if line in says] == says


@pytest.mark.usefixtures("topic")
def test_status_shows_what_autopilot_says_while_no_rollout_is_on_its_way(
    tmp_path: Path,
    run: Callable[..., str],
    state: Callable[[Service], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = service_of(tmp_path)
    says = idle_figures(NAME, 0, rollout.clock() - 5_000, "autopilot: would start version 3: it arrived")
    monkeypatch.setattr(rollout, "evaluations_of", lambda *_: Evaluations([], says))
    assert "next      autopilot: would start version 3: it arrived (said 5" in run(service, "status")
    assert state(service)["autopilot"]["notes"] == ["autopilot: would start version 3: it arrived"]
    run(service, "start", "3", *WHY)
    assert "next  " not in run(service, "status")
    run(service, "rollback", *WHY)
    assert "next      autopilot: would start" in run(service, "status")


def test_commands_work_on_a_broker(
    kafka: Broker,
    tmp_path: Path,
    run: Callable[..., str],
    state: Callable[[Service], Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    service = service_of(tmp_path, kafka)
    assert "does not exist on" in run(service, "status", code=1)
    pipeline = load_pipeline(service.file, {})
    create(Admin(pipeline.client_config()), pipeline)
    run(service, "start", "3", "--share", "10%", *WHY)
    run(service, "promote", *WHY)
    assert run(service, "wait", "3").count("\n") == 1
    assert state(service)["state"] == "promoted"
    document = yaml.safe_load(service.file.read_text("utf-8"))
    document["model"]["version"] = 4
    service.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    told = "model.version is 4, but workers follow the rollout's record"
    assert told in run(service, "status")
    capsys.readouterr()
    assert cli.run(["check", str(service.file)]) == 0
    assert told in capsys.readouterr().out
    promoted = tmp_path / "models" / NAME / "3" / "model.onnx"
    promoted.write_bytes(promoted.read_bytes()[:300])
    assert cli.run(["check", str(service.file)]) == 1
    assert f"{promoted} can't be loaded" in capsys.readouterr().err


@pytest.mark.usefixtures("topic")
def test_the_file_that_names_another_version_than_the_promoted_one_is_told(
    tmp_path: Path, run: Callable[..., str]
) -> None:
    service = service_of(tmp_path)
    assert "note" not in run(service, "start", "3", *WHY)
    assert "note" not in run(service, "status")
    for said in (run(service, "promote", *WHY), run(service, "status")):
        assert (
            "workers follow the rollout's record: version 3. Write 3 there; a restart is not needed. If version 1"
            in said
        )
    assert "note" not in run(service, "rollback", *WHY)
    assert json.loads(run(service, "history", "--json").splitlines()[-1])["action"] == "rollback"


@pytest.mark.usefixtures("topic")
def test_note_says_to_take_the_shadow_of_the_promoted_version_out(tmp_path: Path, run: Callable[..., str]) -> None:
    service = service_of(tmp_path, shadows=[{"version": 4, "name": "other"}, {"version": 3, "name": "more_trees"}])
    run(service, "start", "3", *WHY)
    for said in (run(service, "promote", *WHY), run(service, "status")):
        assert "Write 3 there, and take its shadow out (more_trees: it is not compared with itself); a restart" in said
        assert "`millstream compare` shows the shadow's verdict only with a copy of the file as it is" in said


@pytest.mark.usefixtures("topic")
def test_note_says_to_restart_the_workers_of_dedicated_shadows(tmp_path: Path, run: Callable[..., str]) -> None:
    service = service_of(tmp_path, shadows=[{"version": 4, "dedicated": True}])
    run(service, "start", "3", *WHY)
    told = "Write 3 there; then restart the workers with `--role shadow`, which compare with version 1 until then"
    assert told in run(service, "promote", *WHY)


@pytest.mark.usefixtures("topic")
def test_status_says_since_when_a_rollout_is_paused(
    tmp_path: Path, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service, times = service_of(tmp_path), iter(range(1_000_000, 9_000_000, 60_000))
    monkeypatch.setattr(rollout, "clock", lambda: next(times))
    run(service, "start", "3", *WHY)  # at 1,000 s
    run(service, "pause", *WHY)
    run(service, "set", "--key", "a=canary", *WHY)
    assert "state     paused, since 1970-01-01 00:17:40 (2 min); commands: resume," in run(service, "status")


@pytest.mark.usefixtures("topic")
def test_mode_is_that_which_autopilot_follows(
    tmp_path: Path, run: Callable[..., str], state: Callable[[Service], Any]
) -> None:
    service = service_of(tmp_path, section={"least_labels": 0, "steps": [2, 20], "mode": "advise"})
    run(service, "start", "3", *WHY)
    assert "step 1 of 2 before 100 %, autopilot only advises, since" in run(service, "status")
    assert state(service)["mode"] == "advise"
    service.file.write_text(service.file.read_text().replace("mode: advise", "mode: act"))
    assert "advises" not in run(service, "status")
    assert state(service)["mode"] == "act"
    run(service, "rollback", *WHY)
    run(service, "start", "3", "--strategy", "manual", *WHY)
    assert state(service)["mode"] == "manual"


@pytest.mark.parametrize(
    ("strategy", "accuracy", "told"),
    [
        (
            "ab",
            {"margin": 0.02},
            "SIZE labelled events of both versions show it with a probability of 80%, if both versions are equally good",
        ),
        (
            "ab",
            {"margin": 0.0, "minimum_effect": 0.02},
            "SIZE labelled events of both versions show it with a probability of 80%, if the candidate is better by 4.0%",
        ),
        ("canary", {"margin": 0.02}, "1,100,000 at 1 %, SIZE at 50 % labelled events of both versions show it"),
    ],
)
def test_check_says_how_many_labels_a_step_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strategy: str, accuracy: dict[str, float], told: str
) -> None:
    section: dict[str, Any] = {"strategy": strategy, "candidate": 3, "metrics": {"accuracy": accuracy}}
    section |= {"steps": [1, 50]} if strategy == "canary" else {}
    service = service_of(tmp_path, section=section, labels=LABELS)
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    last, beside = [line for line in capsys.readouterr().out.splitlines() if line.startswith("rollout")][-2:]
    assert "until latency and the sample ratio pass, too" in beside
    size = required_events(0.5, 0.02, 0.5, level=0.009, power=0.8).any_time
    assert last.startswith(f"rollout   accuracy: at most about {told.replace('SIZE', about(size))}")
    assert last.endswith("; many events of one key count as fewer")


def test_check_says_what_the_error_of_a_number_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    section = {"strategy": "blue-green", "candidate": 3, "metrics": {"absolute_error": {"margin": 0.5}}}
    shadowed: dict[str, Any] = {"labels": LABELS, "comparison": {"task": "regression"}, "shadows": [{"version": 3}]}
    service = service_of(tmp_path, section=section, **shadowed)
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    assert "Write `bound` into rollout.metrics.absolute_error" in capsys.readouterr().out
    section = {"strategy": "canary", "steps": [50], "metrics": {"absolute_error": {"margin": 0.5, "bound": 60}}}
    service = service_of(tmp_path / "canary", section=section, **shadowed)
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    shown = capsys.readouterr().out
    assert "`bound`" not in shown
    section |= {"metrics": {"absolute_error": {"margin": 0.5, "minimum_effect": 0.2}}}
    service = service_of(tmp_path / "effect", section=section, **shadowed)
    assert cli.run(["check", str(service.file), "--offline"]) == 0
    told = capsys.readouterr().out
    assert "`bound`" not in told
    assert "stays undecided, because equal answers can't show a benefit above 0.2" in told
    size = about(required_events(0.5, 0.5, 0.5, level=0.009).any_time)
    assert f"absolute_error: about {size} labelled events" in shown
    assert "its values have a standard deviation of 0.5: twice that needs four times as many" in shown
