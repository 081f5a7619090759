"""A partition whose comparisons come when the windows of the others are closed and deleted: the results keep all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.comparison.scene import MINUTE, START, Events, Job, comparison_scene

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker

pytest.importorskip("faust", reason="the comparison job's packages: make .venv/.comparison")
pytestmark = pytest.mark.durable
PARTITIONS = 3
HOUR = 60 * MINUTE


def split(events: Events) -> tuple[Events, Events]:
    """The events of the last partition, and the others."""
    from aiokafka.partitioner import murmur2  # noqa: PLC0415

    places = np.array([(murmur2(event.encode()) & 0x7FFFFFFF) % PARTITIONS for event in events.ids])
    parts = []
    for chosen in (places == PARTITIONS - 1, places < PARTITIONS - 1):
        ids = [event for event, is_in in zip(events.ids, chosen, strict=True) if is_in]
        parts.append(
            Events(ids, events.times[chosen], events.primary[chosen], events.shadow[chosen], events.labels[chosen])
        )
    return parts[0], parts[1]


@pytest.mark.full
def test_results_keep_the_rows_of_partitions_that_are_done(tmp_path: Path, kafka: Broker) -> None:
    scene = comparison_scene(tmp_path, kafka, partitions=PARTITIONS, labels={"wait": "1s"})
    late, early = split(Events.make(600))
    events = len(early.ids)
    with Job(scene) as job:
        scene.compare(early)
        job.wait_for_results(events=events)
        for hour in (4, 6, 8):  # one update or more for each hour: the first windows are final, and then deleted
            _, more = split(Events.make(30, seed=hour, start=START + hour * HOUR, span=MINUTE))
            scene.compare(more)
            events += len(more.ids)
            job.wait_for_results(events=events)
        assert sum(row["final"] for row in scene.results()) >= 3
        scene.compare(late)
        job.wait_for_results(events=events + len(late.ids), timeout=30)
        assert job.stop() == 0
