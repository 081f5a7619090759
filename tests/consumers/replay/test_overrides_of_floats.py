"""The routing is checked by overrides of fields whose floats have 32 bits in the events, and 64 in the predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from millstream.consumers.records import Records
from millstream.consumers.replay import run
from millstream.consumers.replay.answers import row_type
from millstream.consumers.replay.folder import About, Progress, ReplayFolder
from millstream.consumers.replay.replayed import Request
from millstream.consumers.replay.row_sink import hashes
from millstream.consumers.replay.run import Late, Replay
from millstream.consumers.resilience.limited_retry import LimitedRetry
from millstream.consumers.rollout.routing import FieldOverride, route
from millstream.consumers.serving.rollout_router import texts_of
from millstream.pipeline.loading import load_pipeline
from millstream.schemas.column import column_of
from millstream.schemas.predictions import PredictionEncoder
from millstream.schemas.records import ROLLOUT_PREDICTION
from millstream.schemas.table import Table
from tests.broker.choice import Broker
from tests.consumers.control.topic_in_memory import Topic, TopicReader, started
from tests.consumers.in_memory import MemoryRecord
from tests.consumers.replay.row_models import row_models
from tests.consumers.service import flights_service

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from millstream.consumers.rollout.record import RolloutRecord

NOWHERE = Broker("127.0.0.1:1", durable=False, kind="mock")
IDS = [f"event-{number}" for number in range(90)]
DISTANCES = column_of([0.1 if row % 9 == 8 else 7.5 for row in range(len(IDS))], "float32")


class Predictions:
    """As RangeReader, of a topic that has these values."""

    def __init__(self, values: list[bytes]) -> None:
        self._values = values

    def ranges(self, *_: object) -> dict[Any, Any]:
        return {}

    def begin(self, _: object) -> None: ...

    def __iter__(self) -> Iterator[Records]:
        yield Records.of([MemoryRecord(at, value) for at, value in enumerate(self._values)])

    def close(self) -> None: ...


def predicted(record: RolloutRecord) -> list[bytes]:
    """What a worker that follows the record writes."""
    routed = route(record.plan(), [each.encode() for each in IDS], {"distance": texts_of(DISTANCES)})
    assert 0 < (~routed.randomised).sum() < len(IDS)
    models = row_models(record, routed.variant, routed.randomised)
    times = np.arange(len(IDS))
    encoder = PredictionEncoder(
        ROLLOUT_PREDICTION.reserved_id, pipeline=record.pipeline, variant="primary", rollout=True
    )
    outputs = {"late_probability": np.full(len(IDS), 0.5, np.float32)}
    return list(encoder.encode(IDS, times, times, times, outputs, Table({"distance": DISTANCES}), models=models))


def answered(folder: Path) -> ReplayFolder:
    """The folder of a replay that has answered all events."""
    rows = np.zeros(len(IDS), row_type(0))
    rows["id"] = hashes(IDS)
    found = ReplayFolder(folder)
    folder.mkdir()
    found.write_pending(rows, Progress({("events", 0): len(IDS)}, len(IDS)))
    found.keep_pending(0)
    return found


def test_override_by_a_float_of_32_bits_is_checked_as_workers_compare_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = {"strategy": "manual", "override_fields": ["distance"]}
    pipeline = load_pipeline(flights_service(tmp_path, NOWHERE, with_topics=False, rollout=section).file, {})
    near = FieldOverride("distance", frozenset({"0.1"}), 1)
    record, topic = replace(started(), pipeline=pipeline.name, fields=(near,)), Topic()
    topic.writer().write(record)
    monkeypatch.setattr(run, "open_reader", lambda *_: TopicReader(topic, pipeline.name))
    monkeypatch.setattr(run, "RangeReader", lambda *_: Predictions(predicted(record)))
    request = Request(1, 0, len(IDS), None, None)
    replay = Replay(pipeline, request, answered(tmp_path / "state"), Late(0, 0, 0), LimitedRetry(1.0, print))
    about = About(pipeline.name, "flights-delay", 1, 0, len(IDS), None, "late_probability", {}, "g", {})
    found = replay.compare(about, lambda *_: None).routing
    assert found is not None
    assert (found.checked, found.mismatches, found.examples) == (len(IDS), 0, [])
