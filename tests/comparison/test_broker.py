"""The broker under the comparison job dies in the middle of windows: every comparison still counts once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.broker.choice import Broker
from tests.broker.maven import MavenKafka, missing_for_maven
from tests.comparison.scene import Events, Job, check, comparison_scene

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")
pytestmark = [
    pytest.mark.durable,
    pytest.mark.skipif(missing_for_maven() is not None, reason="kills a broker of its own, which needs Java and Maven"),
]


@pytest.mark.full
def test_broker_killed_in_a_window_and_started_anew(tmp_path: Path) -> None:
    """The job goes on by itself; what it had begun to write is there once."""
    step = 1500
    with MavenKafka() as own:
        scene = comparison_scene(tmp_path, Broker(own.bootstrap, durable=True, kind="maven"))
        events = Events.make(3 * step)
        with Job(scene, "--metrics-port", "0") as job:
            job.wait_for(lambda: job.metric("millstream_comparison_update_seconds") > 0, "at work")
            for number in range(3):
                part = events.part(step * number, step * (number + 1))
                scene.compare(part)
                scene.label(part.ids, part.labels.tolist())
                if number < 2:
                    # At another moment each time: while it joins, while it writes results and commits.
                    time.sleep(0.4 + 0.8 * number)
                    own.kill()
                    own.start()
            rows = job.wait_for_results(events=3 * step, labelled=3 * step, duplicates=0, repeated_labels=0)
            for row in rows:
                check(row, events)
            assert job.stop() == 0
            assert "Traceback" not in job.log


@pytest.mark.full
def test_job_says_once_that_the_broker_is_away_and_once_that_it_is_back(tmp_path: Path) -> None:
    with MavenKafka() as own:
        scene = comparison_scene(tmp_path, Broker(own.bootstrap, durable=True, kind="maven"))
        with Job(scene, "--metrics-port", "0") as job:
            job.wait_for(lambda: job.metric("millstream_comparison_update_seconds") > 0, "at work")
            own.kill()
            job.wait_for(lambda: "does not answer; waiting, nothing is lost" in job.log, "told that the broker is away")
            own.start()
            job.wait_for(lambda: "answers again, after" in job.log, "told that the broker is back")
            assert job.log.count("does not answer") == 1, job.log
            assert job.log.count("the lag can't be read") <= 1, (
                job.log
            )  # it may notice before the job has asked the broker
            assert job.stop() == 0
