"""The topics of a simulated rollout in memory: encoded as workers do, and read as by `SinceReader`."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from benchmarks.rollout_events import BATCH, COUNTRIES, NO_LABEL, SOON, Events
from millstream.consumers.rollout.hashes import hashed
from millstream.schemas.column import column_of
from millstream.schemas.dead_letters import DeadLetter, DeadLetterColumns, DeadLetterEncoder
from millstream.schemas.packed import Packed
from millstream.schemas.predictions import PredictionEncoder
from millstream.schemas.records import ROLLOUT_DEAD_LETTER, ROLLOUT_PREDICTION
from millstream.schemas.rollout_choices import RolloutChoice, RowChoices
from millstream.schemas.row_models import RowModels
from millstream.schemas.table import Table
from millstream.topics.since_reader import Fetched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.consumers.rollout.record import RolloutRecord
    from millstream.schemas.arrays import Ints

EVENTS: Final = "events"
_PARTITIONS: Final = 3
_WRITTEN_AFTER: Final = 20  # ms from a prediction to its record
_REPEATED: Final = 100  # one in so many predictions and labels comes twice; the second one is wrong


class Topics:
    """The predictions, dead letters and labels of one pipeline."""

    def __init__(self, pipeline: str, *, predictions: str, letters: str, labels: str) -> None:
        self._pipeline = pipeline
        self._names = predictions, letters, labels
        self._chunks: dict[str, list[Fetched]] = {name: [] for name in self._names}
        self._offsets = {name: np.zeros(_PARTITIONS, np.int64) for name in self._names}
        self._waiting: list[tuple[int, str, bytes]] = []  # labels to come: time, key and value
        self._predictions = PredictionEncoder(
            ROLLOUT_PREDICTION.reserved_id, pipeline=pipeline, variant="primary", rollout=True
        )
        self._letters = DeadLetterEncoder(ROLLOUT_DEAD_LETTER.reserved_id, rollout=True)
        self.now = 0  # ms since the epoch

    def write(self, record: RolloutRecord, events: Events, now: int) -> None:
        """Add the records of these events, and the labels that are due by now. `record`: routed them."""
        self.now = now
        predictions, letters, labels = self._names
        there = events.take(~events.dead & ~events.lost)
        again = there.take(there.ids % _REPEATED == 0)
        self._append(predictions, there.keys, self._predicted(record, there), there.times + _WRITTEN_AFTER)
        wrong = self._predicted(record, again, sign=-1)
        self._append(predictions, again.keys, wrong, np.minimum(again.times + SOON, now))
        dead = events.take(events.dead)
        values = Packed.of([self._letter(record, dead, row) for row in range(len(dead.ids))])
        self._append(letters, dead.keys, values, dead.times + _WRITTEN_AFTER)
        self._waiting += _labels(events)
        due = sorted(own for own in self._waiting if own[0] <= now)
        self._waiting = [own for own in self._waiting if own[0] > now]
        times, ids, bodies = zip(*due, strict=True) if due else ((), (), ())
        self._append(labels, [own.encode() for own in ids], bodies, np.array(times, np.int64))

    def reader(self, _client: Mapping[str, Any], since: Mapping[str, int]) -> Reader:
        """As `SinceReader`."""
        return Reader(self, since)

    def since(self, topic: str, time: int) -> list[Fetched]:
        """The chunks of a topic with records of this time or later."""
        return [own for own in self._chunks[topic] if len(own) and own.timestamps.max() >= time]

    def _append(self, topic: str, keys: Sequence[bytes], values: Sequence[bytes], times: Ints) -> None:
        """One chunk, partition after partition, as a consumer gets them."""
        partitions = (hashed(Packed.of(keys), EVENTS) % np.uint32(_PARTITIONS)).astype(np.int64)
        order = np.argsort(partitions, kind="stable")
        counts = np.bincount(partitions, minlength=_PARTITIONS)
        firsts = counts.cumsum() - counts
        sorted_ = partitions[order]
        offsets = self._offsets[topic][sorted_] + np.arange(len(order)) - firsts[sorted_]
        self._offsets[topic] += counts
        rows = order.tolist()
        self._chunks[topic].append(
            Fetched(sorted_, offsets, times[order], [keys[row] for row in rows], [values[row] for row in rows])
        )

    def _predicted(self, record: RolloutRecord, events: Events, sign: int = 1) -> Sequence[bytes]:
        """As workers write them. `sign`: -1 turns each answer round."""
        if not len(events.ids):
            return []
        names = [own.name for own in record.variants]
        batch = events.ids // BATCH
        _, firsts, of_rows = np.unique(batch * 2 + events.variant, return_index=True, return_inverse=True)
        models = RowModels(
            [(own.model, own.version) for own in record.variants],
            np.where(events.failed, 0, events.variant),
            names,
            RowChoices([_choice(record, events, row) for row in firsts.tolist()], of_rows.astype(np.int64)),
        )
        scores = events.score if sign > 0 else 1 - events.score
        country = Table({"country": column_of([COUNTRIES[own] for own in events.country.tolist()], "string")})
        times = events.times
        return self._predictions.encode(
            list(map(_id, events.ids.tolist())), times, times, times, {"score": scores}, country, models=models
        )

    def _letter(self, record: RolloutRecord, events: Events, row: int) -> bytes:
        model = record.variants[int(events.variant[row])]
        time = int(events.times[row])
        letter = DeadLetter(
            "model_error", "no", self._pipeline, EVENTS, 0, int(events.ids[row]), time, time, events.keys[row], b"{}",
            model=model.model, version=model.version, variant=model.name, rollout=_choice(record, events, row),
        )  # fmt: skip
        values, _ = self._letters.encode(DeadLetterColumns.of(letter))
        return values[0]


class Reader:
    """As `SinceReader`, of topics in memory."""

    def __init__(self, topics: Topics, since: Mapping[str, int]) -> None:
        self._topics = topics
        self._since = dict(since)
        self._read = dict.fromkeys(since, 0)  # chunks of each topic

    def read(self, _limit: int, _timeout: float) -> dict[str, Fetched]:
        """The next chunk of each topic."""
        found = {}
        for topic, number in self._read.items():
            chunks = self._topics.since(topic, self._since[topic])
            if number < len(chunks):
                found[topic] = chunks[number]
                self._read[topic] += 1
        return found

    @property
    def is_at_end(self) -> bool:
        """Whether all that was there has been read."""
        return self.behind == 0

    @property
    def behind(self) -> int:
        """Records that are not read yet."""
        left = (self._topics.since(topic, self._since[topic])[number:] for topic, number in self._read.items())
        return sum(len(chunk) for chunks in left for chunk in chunks)

    @property
    def left(self) -> frozenset[tuple[str, int, int]]:
        """As `SinceReader`: each topic has one partition, and chunks take the place of offsets."""
        return frozenset(
            (topic, 0, number)
            for topic, number in self._read.items()
            if number < len(self._topics.since(topic, self._since[topic]))
        )

    @property
    def read_until(self) -> float:
        """As `SinceReader`, which gives infinity at the end. The simulation's clock is late, so it is its time here."""
        if self.is_at_end:
            return self._topics.now
        newest = [
            chunks[number - 1].timestamps.max() if number else -math.inf
            for topic, number in self._read.items()
            if number < len(chunks := self._topics.since(topic, self._since[topic]))
        ]
        return float(min(newest))

    def refresh(self) -> None:
        """There are no new partitions."""

    def close(self) -> None:
        """There is no connection."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _id(number: int) -> str:
    """A worker's ID of an event whose values have none: the place of its record."""
    return f"{EVENTS}-0-{number}"


def _choice(record: RolloutRecord, events: Events, row: int) -> RolloutChoice:
    variant = int(events.variant[row])
    share = record.shares[variant] / 10_000
    return RolloutChoice(
        record.rollout, record.revision, record.variants[variant].name, share, True, float(events.ms[row])
    )


def _labels(events: Events) -> list[tuple[int, str, bytes]]:
    """The labels that come at any time. Some come a second time with the other outcome."""
    found = []
    for number, time, outcome in zip(
        events.ids.tolist(), events.labelled.tolist(), events.outcome.tolist(), strict=True
    ):
        if time != NO_LABEL:
            found.append((time, _id(number), json.dumps({"event": _id(number), "late": outcome}).encode()))
            if number % _REPEATED == 1:
                found.append(
                    (time + SOON, _id(number), json.dumps({"event": _id(number), "late": not outcome}).encode())
                )
    return found
