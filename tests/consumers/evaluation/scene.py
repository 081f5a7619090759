"""A pipeline with a rollout, and its topics as lists of records: events with keys, segments, labels, errors and duplicates."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.consumers.evaluation.intake import ComparisonIntake, LabelIntake, LetterIntake, PredictionIntake
from millstream.consumers.evaluation.settings import step_settings
from millstream.consumers.evaluation.step_state import StepState
from millstream.consumers.rollout.progress import Progress
from millstream.consumers.rollout.record import RolloutRecord, RolloutVariant
from millstream.consumers.rollout.routing import RoutingPlan, route
from millstream.consumers.rollout.slots import reallocated, whole
from millstream.pipeline.shares import SLOTS
from millstream.schemas.column import column_of
from millstream.schemas.comparisons import ComparisonEncoder, PrimaryRows, Variant
from millstream.schemas.dead_letters import DeadLetter, DeadLetterColumns, DeadLetterEncoder
from millstream.schemas.directory import DirectoryStore
from millstream.schemas.predictions import JsonPredictionEncoder, PredictionEncoder
from millstream.schemas.records import COMPARISON, OWN_SCHEMAS_FOLDER, ROLLOUT_DEAD_LETTER, ROLLOUT_PREDICTION
from millstream.schemas.rollout_choices import RolloutChoice, RowChoices
from millstream.schemas.row_models import RowModels
from millstream.schemas.table import Table
from millstream.topics.since_reader import Fetched
from tests.pipeline.pipeline_files import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from millstream.consumers.evaluation.rows import Rows
    from millstream.pipeline.pipeline import Pipeline

SINCE: Final = 1_790_000_000_000
MINUTE: Final = 60_000
MATURITY: Final = 10 * MINUTE
NAMES: Final = ("primary", "canary")
FILE: Final = """\
name: shop
kafka: {bootstrap: "127.0.0.1:9092"}
input: {topic: events, format: json}
output: {topic: predictions, format: FORMAT, include: [country, amount]}
model: {name: m, version: 1, allow_nan_outputs: true}
labels: {topic: labels, format: json, event_id: event, value: outcome, wait: 10m, early: 5m}
comparison: {output: score, window: 5m}
rollout:
  steps: [SHARE, 60]
  segments: [country]
  metrics:
    accuracy: {margin: 0.05, segment_margin: 0.2}
    brier: {margin: 0.02}
    reward: {field: revenue, margin: 0.5}
    score_drift: {at_most: 0.25}
"""
SCORED: Final = "comparison: {output: score, window: 5m}"
STORE: Final = DirectoryStore(OWN_SCHEMAS_FOLDER)


def pipeline_of(folder: Path, *, share: int = 30, form: str = "avro", **changes: str) -> Pipeline:
    """The pipeline. `changes`: parts of the text by their start, such as `max_events`, are appended to the rollout."""
    text = FILE.replace("FORMAT", form).replace("SHARE", str(share))
    return load(folder, text + "".join(f"  {name}: {value}\n" for name, value in changes.items()))


def record_of(share: int = 30, **changes: Any) -> RolloutRecord:
    """A rollout whose candidate has a share in percent."""
    slots = share * SLOTS // 100
    progress = Progress("m:2", share=slots, since=SINCE)
    record = RolloutRecord(
        "shop", 2, 1, "c", SINCE, "ann", "step", "why", "shop-2", "canary", "running",
        (RolloutVariant("primary", "m", 1), RolloutVariant("canary", "m", 2)),
        reallocated(whole(), (SLOTS - slots, slots)), strategy_state=progress.to_json(),
    )  # fmt: skip
    return replace(record, **changes)


@dataclass(frozen=True)
class Event:
    """An event, what became of it, and its label."""

    id: str
    key: bytes | None
    time: int  # of its prediction
    variant: int
    score: float
    ms: float
    country: str | None
    amount: float
    outcome: bool | None  # None: no label
    revenue: float | None
    label_after: int  # ms after the prediction; negative: before
    failed: bool = False
    dead: bool = False
    randomised: bool = True
    propensity: float | None = None
    rollout: str = "shop-2"
    other: float = np.nan  # the shadow's score


@dataclass(frozen=True)
class Record:
    """A record in its topic."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes


def events_of(count: int, *, seed: int = 1, share: int = 30, keys: int = 200, span: int = 30 * MINUTE) -> list[Event]:
    """Events of both variants, ascending by time; a batch of ten has the same latency."""
    rng = np.random.default_rng(seed)
    names = [b"key-%d" % number for number in rng.integers(0, keys, count)]
    plan = RoutingPlan("shop-2", record_of(share).ranges)
    variants = route(plan, names).variant.tolist()
    times = np.sort(SINCE + rng.integers(1, span, count)).tolist()
    truth = rng.normal(size=count)
    scores = 1 / (1 + np.exp(-2 * (truth + rng.normal(size=count))))
    outcomes = (truth + 0.7 * rng.normal(size=count) > 0.3).tolist()
    after = rng.integers(-2 * MINUTE, 15 * MINUTE, count).tolist()
    batches = rng.gamma(4, 2, count // 10 + 1)
    draws = rng.random((4, count))
    return [
        Event(
            f"event-{number}",
            None if draws[0, number] < 0.02 else names[number],
            times[number],
            variants[number],
            float("nan") if draws[1, number] < 0.02 else float(scores[number]),
            float(batches[number // 10]) + variants[number],
            ("DE", "FR", "IT", None)[int(draws[2, number] * 4)],
            float(draws[3, number] * 100),
            None if draws[0, number] > 0.9 else outcomes[number],
            None if draws[2, number] > 0.7 else float(draws[1, number]),
            after[number],
            failed=bool(draws[3, number] > 0.97) and variants[number] == 1,
            dead=bool(draws[3, number] < 0.02),
            randomised=bool(draws[1, number] < 0.98),
            other=float(scores[number] ** 1.2),
        )
        for number in range(count)
    ]  # fmt: skip


@dataclass
class Topics:
    """The records of the events, by topic."""

    share: int = 30
    form: str = "avro"
    partitions: int = 3
    records: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))

    def write(self, events: Iterable[Event]) -> None:
        """Predictions or dead letters, and labels."""
        for event in events:
            if event.dead:
                self.append("letters", event.key or event.id.encode(), self.letter(event), event.time + 20)
            else:
                self.append(
                    "predictions", event.key or event.id.encode(), self.prediction(event), event.time + 20, event.key
                )
            self.label(event)

    def compare(self, events: Iterable[Event]) -> None:
        """Comparisons and labels."""
        for event in events:
            self.append("comparisons", event.id.encode(), self.comparison(event), event.time)
            self.label(event)

    def label(self, event: Event) -> None:
        """The event's label, if it has one."""
        if event.outcome is not None:
            datum = {"event": event.id, "outcome": event.outcome, "revenue": event.revenue}
            self.append("labels", event.id.encode(), json.dumps(datum).encode(), event.time + event.label_after)

    def append(self, topic: str, place: bytes, value: bytes, timestamp: int, key: bytes | None = None) -> None:
        """A record in the partition of its key."""
        partition = sum(place) % self.partitions
        offset = sum(record.partition == partition for record in self.records[topic])
        self.records[topic].append(Record(partition, offset, timestamp, key, value))

    def prediction(self, event: Event, outputs: dict[str, Any] | None = None) -> bytes:
        """As a worker writes it."""
        answered = 0 if event.failed else event.variant
        models = RowModels(
            [("m", answered + 1)], None, [NAMES[answered]], RowChoices([self.choice(event)], np.zeros(1, np.int64))
        )
        table = Table({"country": column_of([event.country], "string"), "amount": column_of([event.amount], "float64")})
        time = np.array([event.time], np.int64)
        encoder = (
            PredictionEncoder(ROLLOUT_PREDICTION.reserved_id, pipeline="shop", variant="primary", rollout=True)
            if self.form == "avro"
            else JsonPredictionEncoder(pipeline="shop", variant="primary", rollout=True)
        )
        outputs = outputs or {"score": np.array([event.score]), "words": np.array(["x"], object)}
        [value] = encoder.encode([event.id], time, time, time, outputs, table, models=models)
        return value

    def choice(self, event: Event) -> RolloutChoice:
        share = self.share / 100
        propensity = event.propensity if event.propensity is not None else (1 - share, share)[event.variant]
        return RolloutChoice(event.rollout, 2, NAMES[event.variant], propensity, event.randomised, event.ms)

    def letter(self, event: Event) -> bytes:
        """A dead letter of the event; its ID is its place."""
        letter = DeadLetter(
            "model_error", "no", "shop", "events", 0, int(event.id.rpartition("-")[2]), event.time, event.time, event.key,
            b"{}", model="m", version=event.variant + 1, variant=NAMES[event.variant], rollout=self.choice(event),
        )  # fmt: skip
        values, _ = DeadLetterEncoder(ROLLOUT_DEAD_LETTER.reserved_id, rollout=True).encode(
            DeadLetterColumns.of(letter)
        )
        return values[0]

    def comparison(self, event: Event) -> bytes:
        """As a worker with a shadow writes it."""
        encoder = ComparisonEncoder(COMPARISON.reserved_id, "shop", shadow=Variant("m", 2))
        primary = PrimaryRows(RowModels([("m", 1)]), {"score": np.array([event.score])}, event.ms)
        outputs = None if event.failed else {"score": np.array([event.other])}
        time = np.array([event.time], np.int64)
        [value] = encoder.encode(
            [event.id], [event.key], time, primary, outputs, event.ms + 1, {0: "broken"} if event.failed else None
        )
        return value


def fetched_of(records: Sequence[Record]) -> Fetched:
    """Records as a reader gives them."""
    numbers = np.array([(own.partition, own.offset, own.timestamp) for own in records], np.int64).reshape(-1, 3)
    return Fetched(
        numbers[:, 0], numbers[:, 1], numbers[:, 2], [own.key for own in records], [own.value for own in records]
    )


def state_of(pipeline: Pipeline, record: RolloutRecord | None = None) -> StepState:
    """The state of a step without events."""
    return StepState(step_settings(pipeline, record or record_of()))


Chunk = tuple[str, list[Record]]


def in_order(topics: Topics, size: int = 10**9) -> list[Chunk]:
    """Topic after topic, so many records at a time."""
    return [
        (topic, records[start : start + size])
        for topic, records in topics.records.items()
        for start in range(0, len(records), size)
    ]


def feed(state: StepState, pipeline: Pipeline, chunks: Iterable[Chunk], *, settle: bool = True) -> StepState:
    """Read the chunks. All that is not read yet counts as later than what is read, as in a reader of partitions."""
    store = STORE
    predictions = PredictionIntake(state, store, pipeline.output.format)
    intakes: dict[str, Callable[[Fetched], Rows]] = {
        "predictions": predictions.rows,
        "letters": LetterIntake(state, store).rows,
        "comparisons": ComparisonIntake(state, store).rows,
    }
    assert pipeline.labels is not None
    labels = LabelIntake(pipeline.labels, state.settings, store)
    for topic, records in chunks:
        fetched = fetched_of(records)
        if topic == "labels":
            state.held.add_labels(labels.rows(fetched))
        else:
            state.held.add(intakes[topic](fetched))
        if settle:
            state.held.settle(state.read_until)
    return state


read = partial(feed)
