"""Writes figures to the topic `rollout.evaluations`, and reads them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from millstream.consumers.evaluation.figures import IDLE
from millstream.consumers.evaluation.records import figures_datums, joined, records_of
from millstream.consumers.rollout.clusters import Clusters
from millstream.consumers.schema_store import own_schema_id
from millstream.schemas.errors import SchemaError, SchemaUnavailable
from millstream.schemas.records import ROLLOUT_EVALUATION
from millstream.topics.records import RecordWriter
from millstream.topics.since_reader import SinceReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.consumers.evaluation.figures import StepFigures
    from millstream.pipeline.pipeline import Pipeline
    from millstream.schemas.store import SchemaStore


class FiguresPublisher:
    """Writes the figures of steps. For one thread."""

    def __init__(self, pipeline: Pipeline, store: SchemaStore) -> None:
        """Connect.

        Args:
            pipeline: with a rollout.
            store: gives the schema ID.

        Raises:
            BrokerUnreachableError: no broker answers.
            TopicError: the topic does not exist.
            SchemaUnavailable: the registry does not answer.
        """
        assert pipeline.rollout is not None
        self._topic = pipeline.rollout.evaluations
        self._client = pipeline.client_config()
        self._schema_id = own_schema_id(pipeline, store, ROLLOUT_EVALUATION, self._topic)
        self._writer: RecordWriter | None = RecordWriter(self._client, self._topic)

    def publish(self, figures: StepFigures) -> None:
        """Write the figures, and wait until the broker has them.

        Raises:
            BrokerUnreachableError: no broker answers.
            TopicError: a record can't be written. The next call tries anew.
        """
        writer, self._writer = self._writer or RecordWriter(self._client, self._topic), None
        for key, value in records_of(figures, self._schema_id):
            writer.write(value, key)
        writer.flush()
        self._writer = writer  # one that has failed writes nothing any more


class Evaluations(NamedTuple):
    """What the topic has."""

    steps: list[StepFigures]  # the newest figures of each step that it still has, in the order of rollouts and steps
    idle: StepFigures | None = None  # the newest `idle_figures` of the pipeline; None: there are none


def read_figures(pipeline: Pipeline, store: SchemaStore) -> Evaluations:
    """Read what the topic has now.

    Raises:
        BrokerUnreachableError, TopicError: the topic can't be read.
        SchemaUnavailable: the registry does not answer.
    """
    found = _read(pipeline, store)
    idle = [own for own in found if own.epoch == IDLE and own.pipeline == pipeline.name]
    return Evaluations([own for own in found if own.epoch != IDLE], idle[-1] if idle else None)


def _read(pipeline: Pipeline, store: SchemaStore) -> list[StepFigures]:
    assert pipeline.rollout is not None
    datums = figures_datums(store)
    totals: dict[tuple[str, int], tuple[dict[str, Any], int]] = {}
    windows: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for value, at in _newest(pipeline.client_config(), pipeline.rollout.evaluations).values():
        try:
            datum = datums.one(value)
        except SchemaUnavailable:
            raise
        except SchemaError:  # somebody else's record
            continue
        step = datum["rollout"], datum["epoch"]
        if datum["window_start"] is None:
            totals[step] = datum, at
        else:
            windows[step].append(datum)
    found = [
        replace(joined(total, windows[step]), written=at if at >= 0 else None) for step, (total, at) in totals.items()
    ]
    return sorted(found, key=lambda own: (own.since, own.epoch))


def _newest(client: Mapping[str, Any], topic: str) -> dict[bytes, tuple[bytes, int]]:
    """The newest value of each key, and when the topic got it, ms since the epoch."""
    newest: dict[bytes, tuple[bytes, int]] = {}
    with SinceReader(client, {topic: 0}) as reader:
        for fetched in reader.existing():
            rows = zip(fetched.keys, fetched.values, fetched.timestamps.tolist(), strict=True)
            newest |= {key or b"": (value or b"", at) for key, value, at in rows}
    return newest


def earlier_ratios(steps: Sequence[StepFigures], rollout: str, epoch: int) -> dict[str, Clusters]:
    """The sample ratios of a rollout's steps before this one, by candidate. Each step's figures hold those before it, too."""
    before = [own for own in steps if own.rollout == rollout and own.epoch < epoch]
    return {
        ratio.candidate: Clusters(np.array(ratio.expected), np.array(ratio.found))
        for own in sorted(before, key=lambda step: step.epoch)
        for ratio in own.ratios
    }
