"""`millstream compare` where it can't run, and its table; tests/comparison runs it."""

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from millstream.consumers.comparison import show
from millstream.consumers.comparison.partials import Partial
from millstream.consumers.comparison.results import encode_result, result, result_key
from millstream.consumers.observability.metrics import SHADOW_SKIPPED
from millstream.inference.evaluation import Columns, summarise
from millstream.schemas.comparisons import Pair, Variant
from millstream.schemas.records import EVALUATION
from tests.broker.choice import Broker
from tests.broker.clients import produce
from tests.cli.command import COMMAND, ENVIRON, millstream, millstream_here
from tests.comparison.scene import START, Events, comparison_scene
from tests.pipeline.pipeline_files import SMALL, load

PAIR = Pair(Variant("delay", 1, "primary"), Variant("delay", 2))


def test_pipeline_without_shadows_is_refused_with_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(SMALL)
    done = millstream_here("compare", tmp_path)
    assert done.returncode == 1
    assert "there are no shadows to compare. Write `shadows:`" in done.stderr


@pytest.mark.parametrize("package", ["faust", "scipy"])
def test_missing_package_is_named_with_what_to_install(tmp_path: Path, package: str) -> None:
    (tmp_path / "pipeline.yaml").write_text(SMALL + "shadows: [{version: 2}]\n")
    hide = f"import sys; sys.modules['{package}'] = None; sys.argv = sys.argv[1:]\n"
    run = "from millstream.__main__ import main\nsys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", hide + run, COMMAND, "compare", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        env=ENVIRON,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 1
    assert f"needs the package {package}" in done.stderr
    assert f"{sys.executable} -m pip install 'millstream[comparison]'" in done.stderr
    assert "Traceback" not in done.stderr


def write_result(
    scene_bootstrap: str,
    topic: str,
    events: Events,
    *,
    final: bool,
    start: int = START,
    length: int = 3_600_000,
    pair: Pair = PAIR,
    updated_at: int = 1,
    failed: int = 0,
) -> None:
    """Write the job's result. The shadow fails on the first events, `failed` of them."""
    zeros = np.zeros(len(events.ids))
    columns = Columns(
        events.primary,
        events.shadow,
        zeros.astype(np.int8),
        np.arange(len(zeros)) < failed,
        zeros + 1,
        zeros + 2,
        events.labels.astype(float),
    )
    whole = Partial(summarise(columns, 0.5), final=final)
    record = result(start, start + length, pair, whole, pipeline="p", task="classification")
    value = encode_result({**record, "updated_at": updated_at}, EVALUATION.reserved_id)
    produce(scene_bootstrap, topic, [(result_key(start, pair), value)])


@pytest.mark.durable
def test_newest_result_of_each_window_is_shown(tmp_path: Path, kafka: Broker) -> None:
    scene = comparison_scene(tmp_path, kafka)
    topic = scene.pipeline.comparison.evaluations
    newest = time.time_ns() // 1_000_000 - 150_000
    for count, final in ((50, False), (100, True)):
        write_result(kafka.bootstrap, topic, Events.make(count), final=final, updated_at=newest, failed=10)
    done = millstream("compare", tmp_path, "--show")
    assert done.returncode == 0, done.stderr
    *table, stopped, verdict = done.stdout.splitlines()
    changed, heading, counts, both, names, primary, shadow = table
    assert re.fullmatch(
        rf"the results last changed at {datetime.fromtimestamp(newest // 1000, UTC):%F %T} UTC, \d(\.\d+)? min ago",
        changed,
    )
    assert heading == "2013-09-01 02:00:00 UTC  final  delay version 1 and delay version 2"
    assert counts == "  events 100, errors 10, labelled 100, paired 90"
    assert names.split() == ["auc", "log", "loss", "brier", "calibration", "error", "p95", "ms"]
    assert [line.split()[0] for line in (primary, shadow)] == ["primary", "shadow"]
    assert len(primary.split()) == len(shadow.split()) == 6
    assert "shifted" in both
    assert stopped.startswith("the comparison job isn't running")
    assert f"`millstream compare {tmp_path / 'pipeline.yaml'}`" in stopped  # in one line, to be copied
    assert verdict.startswith("version 2 is better: AUC +0.")
    assert verdict.endswith(" 90 paired events")
    assert max(map(len, table)) <= 80


@pytest.mark.durable
@pytest.mark.parametrize(
    ("count", "swapped", "code", "outcome"),
    [(1000, False, 0, "better"), (1000, True, 4, "not better"), (20, False, 5, "not decided yet")],
)
def test_exit_code_and_json_tell_the_verdict(
    tmp_path: Path, kafka: Broker, count: int, swapped: bool, code: int, outcome: str
) -> None:
    scene = comparison_scene(tmp_path, kafka)
    events = Events.make(count)
    if swapped:
        events = replace(events, primary=events.shadow, shadow=events.primary)
    write_result(kafka.bootstrap, scene.pipeline.comparison.evaluations, events, final=True)
    write_result(
        kafka.bootstrap,
        scene.pipeline.comparison.evaluations,
        Events.make(1000),
        final=True,
        pair=Pair(PAIR.primary, Variant("delay", 7)),  # the file doesn't name it
    )
    done = millstream_here("compare", tmp_path, "--show", "--json")
    assert (done.returncode, done.stderr) == (code, "")
    (found,) = map(json.loads, done.stdout.splitlines())
    assert found["shadow"] == "version 2"
    assert found["verdict"]["outcome"] == outcome
    assert [row["labelled"] for row in found["windows"]] == [count]


@pytest.mark.durable
def test_events_of_windows_of_two_lengths_count_once(tmp_path: Path, kafka: Broker) -> None:
    """After a change of `comparison.window`, events of the windows that were open are in those of the new length, too."""
    scene = comparison_scene(tmp_path, kafka)
    topic, minute = scene.pipeline.comparison.evaluations, 60_000
    for start, length, count in (
        (START - 20 * minute, 20, 10),
        (START, 20, 30),
        (START, 60, 100),
        (START + 60 * minute, 60, 200),
    ):
        write_result(kafka.bootstrap, topic, Events.make(count), final=True, start=start, length=length * minute)
    done = millstream_here("compare", tmp_path, "--show", "--json")
    (found,) = map(json.loads, done.stdout.splitlines())
    assert [row["labelled"] for row in found["windows"]] == [10, 100, 200]


@pytest.mark.durable
def test_no_results_say_how_to_start_the_job(tmp_path: Path, kafka: Broker) -> None:
    comparison_scene(tmp_path, kafka)
    done = millstream_here("compare", tmp_path, "--show")
    assert done.returncode == 5
    assert (
        f"no results yet: the comparison job writes them (start it with `millstream compare {tmp_path / 'pipeline.yaml'}`"
        in done.stdout
    )
    assert "A busy worker's shadow leaves events out" in done.stdout
    assert SHADOW_SKIPPED.name in done.stdout


@pytest.mark.parametrize("stopped", [False, True])
def test_no_results_of_a_job_that_runs_say_when_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stopped: bool
) -> None:
    pipeline = load(tmp_path, SMALL + "shadows: [{version: 2}]\ncomparison: {update_every: 90s}\n")
    monkeypatch.setattr(show, "is_empty", lambda *_: stopped)
    [said] = map(str, show.results(pipeline, [], []))
    assert ("about 90s (`comparison.update_every`) after it has read the first comparisons" in said) == (not stopped)
    assert ("If no job runs, start it with `millstream compare " in said) == (not stopped)


def test_json_without_show_is_refused(tmp_path: Path) -> None:
    done = millstream("compare", tmp_path, "--json")
    assert done.returncode == 2
    assert "add --show" in done.stderr


@pytest.mark.durable
def test_comparisons_are_shown_by_tail(tmp_path: Path, kafka: Broker) -> None:
    scene = comparison_scene(tmp_path, kafka)
    scene.compare(Events.make(3), errors={1: "out of memory"})
    done = millstream_here("tail", tmp_path, "--comparisons", "--from-beginning", "--limit", "3", "--timeout", "20")
    rows = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda row: str(row["key"]))
    assert [row["key"] for row in rows] == [row["value"]["event_id"] for row in rows]
    assert [row["value"]["shadow"]["error"] for row in rows] == [None, "out of memory", None]
    assert rows[0]["value"]["shadow"]["outputs"].keys() == {"p"}


@pytest.mark.durable
def test_hostile_results_are_shown_or_passed_over_and_act_on_no_terminal(tmp_path: Path, kafka: Broker) -> None:
    scene = comparison_scene(tmp_path, kafka)
    topic, events = scene.pipeline.comparison.evaluations, Events.make(5)
    odd = Pair(Variant("[/red]\x1b[2J" * 1000, 1, "primary"), Variant("[link=x]\x9b", -5))
    write_result(kafka.bootstrap, topic, events, final=True, pair=odd)
    for start in (2**62, -(2**62)):
        write_result(kafka.bootstrap, topic, events, final=True, start=start)
    head = b"\0" + EVALUATION.reserved_id.to_bytes(4)
    for number, value in enumerate((b"", b"junk", head, head + b"\xff" * 9, b"\0\0\0\0\1" + b"\xff" * 50, None)):
        produce(kafka.bootstrap, topic, [(b"%d" % number, value)])
    write_result(kafka.bootstrap, topic, events, final=False)
    done = millstream_here("compare", tmp_path, "--show")
    assert (done.returncode, done.stderr) == (5, "")
    assert done.stdout.replace("\n", "").isprintable()
    assert done.stdout.count("2013-09-01 02:00:00") == 2
    assert "[/red]\\x1b[2J" in done.stdout
    assert len(done.stdout) < 20_000
