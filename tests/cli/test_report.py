"""`millstream report` on a real broker: predictions and shadows with their labels."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.cli.main import run as main
from millstream.consumers.cli.report_page import about_page
from millstream.consumers.supervision.child import MILLSTREAM
from tests.cli.test_replay import EVENTS, past
from tests.cli.test_rollout import service_of
from tests.comparison.scene import Events, comparison_scene
from tests.consumers.report.page_reader import PageReader
from tests.pipeline.pipeline_files import SMALL

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker


def report(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*MILLSTREAM, "report", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.durable
def test_shadow_is_compared_on_the_page(tmp_path: Path, kafka: Broker) -> None:
    scene = comparison_scene(tmp_path, kafka)
    events = Events.make(1000)
    scene.compare(events, errors={7: "broken"})
    scene.label(events.ids[:900], events.labels[:900].tolist())
    page = tmp_path / "report.html"
    done = report(str(scene.file), "--output", str(page))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Version 2: not decided yet: no event was compared so far")  # the job has not run
    found = PageReader(page.read_text(encoding="utf-8"))
    assert "Shadow: version 2" in found.headings
    assert {"ROC", "Calibration", "Agreement, of all events so far"} <= set(found.plots)
    assert "the shadow failed on 1 further events" in found.text
    assert any(text.startswith("899 of these events") for text in found.text)


@pytest.mark.durable
@pytest.mark.full
def test_predictions_and_a_replay_are_on_pages_with_segments(tmp_path: Path, kafka: Broker) -> None:
    scene = past(tmp_path, kafka, output={"include": ["origin"]})
    page, replayed = tmp_path / "report.html", tmp_path / "replay.html"
    done = report(str(scene.service.file), "--output", str(page), "--from", scene.start, "--segment", "origin")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{EVENTS:,} events were predicted by flights-delay version 1: AUC 0.")
    assert "AUC by origin" in PageReader(page.read_text(encoding="utf-8")).plots
    again = scene.replay("--report", str(replayed), "--segment", "origin", folder=tmp_path / "state")
    assert again.returncode == 0, again.stderr
    assert "Difference of AUC by origin" in PageReader(replayed.read_text(encoding="utf-8")).plots
    unknown = report(str(scene.service.file), "--output", str(page), "--segment", "dest")
    assert unknown.returncode == 1
    assert "--segment dest: expected a field that predictions include" in unknown.stderr
    nothing = report(str(scene.service.file), "--output", str(page), "--from", "2001-01-01", "--to", "2001-01-02")
    assert nothing.returncode == 1
    assert "there is nothing to report" in nothing.stderr


@pytest.mark.durable
def test_manual_rollout_begins_the_page(tmp_path: Path, kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(service_of(tmp_path, kafka).file)
    page = tmp_path / "report.html"
    commands = [
        ["topics", "create", file],
        ["rollout", "start", file, "3", "--share", "10%"],
        ["rollout", "promote", file],
    ]
    for command in (*commands, ["rollout", "rollback", file]):
        about = ["--reason", f"drill {command[1]}", "--by", "alice"] if command[0] == "rollout" else []
        assert main([*command, *about]) == 0, capsys.readouterr().err
    capsys.readouterr()
    done = report(file, "--output", str(page))
    assert done.returncode == 0, done.stderr
    assert "was rolled back on " in done.stdout
    assert "by alice (drill rollback). It has no evaluation by autopilot" in done.stdout
    assert "the page shows no predictions: " in done.stderr
    found = PageReader(page.read_text(encoding="utf-8"))
    changes = [text for text in found.text if " by alice: " in text]
    for action, text in zip(("start", "promote", "rollback"), changes, strict=True):
        assert text.endswith(f"(drill {action})")


def test_page_that_can_not_be_written_is_refused_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pipeline.yaml").write_text(SMALL)
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "none" / "report.html")]) == 1
    assert "expected a file in a folder that exists" in capsys.readouterr().err


def test_page_says_at_which_level_a_rollouts_intervals_hold() -> None:
    assert about_page()[0].endswith("Intervals are 95 %.")
    assert about_page(0.01)[0].endswith("they hold at all looks at once, with `rollout.level: 0.01`.")
