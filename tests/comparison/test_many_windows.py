"""Event times spread over very many windows: the job stays live, also after restarts, and says what it leaves out."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from millstream.consumers.supervision.child import reported_port
from tests.comparison.scene import MINUTE, Events, Job, comparison_scene

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")

DAY = 24 * 60 * MINUTE
STALL_AFTER = 10


def probe(job: Job, path: str) -> tuple[int, str]:
    port = reported_port(job.log)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.durable
@pytest.mark.full
def test_restarted_with_very_many_windows_it_goes_on_and_stays_live(tmp_path: Path, kafka: Broker) -> None:
    step, windows = 2000, 700
    scene = comparison_scene(
        tmp_path,
        kafka,
        partitions=2,
        labels={"wait": "720h"},
        limits={"stall_after": f"{STALL_AFTER}s"},
    )
    events = Events.make(3 * step, span=windows * 60 * MINUTE)

    def live_until_read(job: Job, compared: int) -> None:
        def read() -> bool:
            code, said = probe(job, "/live")
            assert code == 200, said
            return job.metric("millstream_comparison_records_total", what="comparisons") >= compared

        job.wait_for(lambda: reported_port(job.log) is not None, "at work")
        job.wait_for(read, "at the new comparisons")

    for number in range(3):
        mixed = Events(
            events.ids[number::3],
            events.times[number::3],
            events.primary[number::3],
            events.shadow[number::3],
            events.labels[number::3],
        )
        with Job(scene, "--metrics-port", "0") as job:
            scene.compare(mixed)
            scene.label(mixed.ids, mixed.labels.tolist())
            live_until_read(job, step)
            rows = job.wait_for_results(events=(number + 1) * step, labelled=(number + 1) * step)
            assert probe(job, "/live")[0] == probe(job, "/ready")[0] == 200
            assert len(rows) > 0.5 * windows
            if number == 1:
                job.kill()
            else:
                assert job.stop() == 0
