"""What `millstream compare --show` reads, on a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.consumers.comparison import show
from millstream.consumers.comparison.results import encode_result
from millstream.consumers.schema_store import open_store
from millstream.schemas.records import EVALUATION
from tests.broker.clients import produce
from tests.comparison.scene import comparison_scene
from tests.comparison.test_verdict import a_result

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.choice import Broker


@pytest.mark.durable
def test_results_are_read_to_their_end_while_the_job_writes_on(
    kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = comparison_scene(tmp_path, kafka)
    topic, store, ones = scene.pipeline.comparison.evaluations, open_store(scene.pipeline), np.ones(1)
    assert show.read_results(scene.pipeline, store) == []

    def update(window: int, at: int) -> None:
        record = {**a_result(ones, ones, ones), "window_start": 3_600_000 * window, "updated_at": at}
        produce(kafka.bootstrap, topic, [(b"%d" % window, encode_result(record, EVALUATION.reserved_id))])

    update(1, 1)
    update(2, 1)
    update(1, 2)
    produce(kafka.bootstrap, topic, [(b"foreign", b"no result")])
    decode, decoded = show.decode_result, 0

    def decode_while_the_job_writes(*args: Any) -> dict[str, Any]:
        nonlocal decoded
        decoded += 1
        assert decoded < 100, "the reader follows the job for ever"
        update(3, decoded)
        return decode(*args)

    monkeypatch.setattr(show, "decode_result", decode_while_the_job_writes)
    found = {row["window_start"] // 3_600_000: row["updated_at"] for row in show.read_results(scene.pipeline, store)}
    assert (found[1], found[2]) == (2, 1)
