"""Turns fetched records into rows: predictions, dead letters and comparisons of the step, and labels."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.consumers.comparison.outcomes import Outcomes
from millstream.consumers.comparison.rows import id_hash
from millstream.consumers.evaluation.datums import Datums
from millstream.consumers.evaluation.rows import LABEL_ROW, Rows, empty_events, positions
from millstream.consumers.evaluation.scores import Scores
from millstream.consumers.evaluation.segments import text_of
from millstream.consumers.rollout.clusters import SALT
from millstream.consumers.rollout.hashes import hashed
from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.decoding import open_decoder
from millstream.schemas.ids import ids_of
from millstream.schemas.packed import Packed
from millstream.schemas.records import ROLLOUT_DEAD_LETTER
from millstream.schemas.store import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.consumers.evaluation.step_state import StepState
    from millstream.pipeline.comparison_sections import Labels
    from millstream.schemas.arrays import Floats, Ints
    from millstream.schemas.store import SchemaStore
    from millstream.schemas.table import Table
    from millstream.topics.since_reader import Fetched

PREDICTIONS, LETTERS, COMPARISONS, LABELS = range(4)
"""The topics, as `positions` number them."""
_LONGEST_MS: Final = 1e9  # a latency of more than 11 days must be wrong
_SAME_SHARE: Final = 1e-9
_LETTER_PATHS: Final = (
    "topic", "partition", "offset", "failed_at", "key", "rollout.id", "rollout.assigned", "rollout.propensity",
    "rollout.randomised",
)  # fmt: skip


class StepFilter:
    """Which events belong to the step."""

    def __init__(self, settings: StepSettings) -> None:
        self._settings = settings
        self._places = {own.name: place for place, own in enumerate(settings.variants)}

    def variant(self, choice: Any, time: int) -> int:
        """The index of the variant that routing assigned; -1 if the event doesn't belong to the step.

        Args:
            choice: the field `rollout` of a prediction or a dead letter.
            time: when it was made, ms since the epoch.
        """
        settings = self._settings
        if not isinstance(choice, dict) or choice.get("id") != settings.rollout or time < settings.begin:
            return -1
        place = self._places.get(choice["assigned"], -1)
        if place < 0 or (time < settings.since and place > 0):
            return -1
        is_before = time < settings.since
        if settings.by_share and not is_before and abs(choice["propensity"] - settings.shares[place]) > _SAME_SHARE:
            return -1
        return place


class PredictionIntake:
    """Predictions of the step."""

    def __init__(self, state: StepState, store: SchemaStore, form: str) -> None:
        self._state = state
        self._settings = state.settings
        self._datums = Datums(store, form)
        self._filter = StepFilter(state.settings)
        self._scores = Scores(state.settings.scoring)

    def rows(self, fetched: Fetched) -> Rows:
        """The rows of the events that belong to the step. Raises SchemaUnavailable."""
        found: list[dict[str, Any]] = []
        places: list[int] = []
        variants: list[int] = []
        for place, datum in enumerate(self._datums.read(fetched.values)):
            variant = -1 if datum is None else self._variant(datum)
            if datum is not None and variant >= 0:
                found.append(datum)
                places.append(place)
                variants.append(variant)
        rows = empty_events(self._state.dtype, len(found))
        if not found:
            return rows
        at = np.array(places, np.int64)
        ids = [datum["event_id"] for datum in found]
        _place(rows, fetched, at, PREDICTIONS)
        rows["id"] = list(map(id_hash, ids))
        rows["time"] = [datum["prediction_time"] for datum in found]
        rows["hash"] = key_hashes([fetched.keys[place] for place in places], ids)
        rows["variant"] = variants
        names = [own.name for own in self._settings.variants]
        rows["failed"] = [datum["variant"] != names[own] for datum, own in zip(found, variants, strict=True)]
        rows["randomised"] = [datum["rollout"]["randomised"] for datum in found]
        rows["ms"] = _latencies([datum["rollout"]["model_ms"] for datum in found])
        rows["score"], rows["nan"] = zip(*(self._scores.of(datum["outputs"]) for datum in found), strict=True)
        events = [datum.get("event") or {} for datum in found]
        if self._settings.segments:
            rows["segments"] = self._state.segments.codes(events)
        if self._settings.fields:
            rows["fields"] = field_values(events, self._settings.fields)
        return rows

    def reference(self, fetched: Fetched) -> Floats:
        """The watched fields of any predictions: [predictions, fields]. Raises SchemaUnavailable."""
        datums = [datum for datum in self._datums.read(fetched.values) if datum is not None]
        return field_values([datum.get("event") or {} for datum in datums], self._settings.fields)

    def _variant(self, datum: dict[str, Any]) -> int:
        try:
            return self._filter.variant(datum.get("rollout"), datum["prediction_time"])
        except (KeyError, TypeError):
            return -1  # somebody else's record


class LetterIntake:
    """Dead letters of the step: events that a model of the rollout refused."""

    def __init__(self, state: StepState, store: SchemaStore) -> None:
        self._state = state
        self._filter = StepFilter(state.settings)
        reader = Schema(ROLLOUT_DEAD_LETTER.reserved_id, ROLLOUT_DEAD_LETTER.name, ROLLOUT_DEAD_LETTER.definition)
        self._decoder = AvroDecoder(store, reader, _LETTER_PATHS)

    def rows(self, fetched: Fetched) -> Rows:
        """The rows of the dead letters that belong to the step. Raises SchemaUnavailable."""
        decoded = self._decoder.decode([value or b"" for value in fetched.values])
        table = decoded.table
        variants = np.array(self._variants(table), np.int64)
        good = np.flatnonzero(variants >= 0)
        rows = empty_events(self._state.dtype, len(good))
        if not len(good):
            return rows
        columns = {name: table[name].take(good).to_list() for name in ("topic", "partition", "offset", "key")}
        ids = [f"{topic}-{part}-{offset}" for topic, part, offset in zip(*list(columns.values())[:3], strict=True)]
        _place(rows, fetched, decoded.rows[good], LETTERS)
        rows["id"] = list(map(id_hash, ids))
        rows["time"] = table["failed_at"].take(good).to_list()
        rows["hash"] = key_hashes(columns["key"], ids)
        rows["variant"] = variants[good]
        rows["randomised"] = table["rollout.randomised"].take(good).to_list()
        rows["dead"] = True
        return rows

    def _variants(self, table: Table) -> list[int]:
        names = ("failed_at", "rollout.id", "rollout.assigned", "rollout.propensity")
        return [
            -1 if of is None else self._filter.variant({"id": of, "assigned": assigned, "propensity": share}, time)
            for time, of, assigned, share in zip(*(table[name].to_list() for name in names), strict=True)
        ]


class ComparisonIntake:
    """Comparisons of the step: events that both versions answered."""

    def __init__(self, state: StepState, store: SchemaStore) -> None:
        self._state = state
        self._datums = Datums(store)
        self._pair = tuple((own.model, own.version) for own in state.settings.variants[:2])
        self._scores = Scores(state.settings.scoring)

    def rows(self, fetched: Fetched) -> Rows:
        """The rows of the comparisons that belong to the step. Raises SchemaUnavailable."""
        found: list[dict[str, Any]] = []
        places: list[int] = []
        begin = self._state.settings.begin
        for place, datum in enumerate(self._datums.read(fetched.values)):
            if datum is not None and fetched.timestamps[place] >= begin and self._is_ours(datum):
                found.append(datum)
                places.append(place)
        rows = empty_events(self._state.dtype, len(found))
        if not found:
            return rows
        at = np.array(places, np.int64)
        ids = [datum["event_id"] for datum in found]
        _place(rows, fetched, at, COMPARISONS)
        rows["id"] = list(map(id_hash, ids))
        rows["time"] = fetched.timestamps[at]
        rows["hash"] = key_hashes([datum["key"] for datum in found], ids)
        for prefix, side in (("", "primary"), ("other_", "shadow")):
            outputs = [datum[side]["outputs"] for datum in found]
            rows[f"{prefix}failed"] = [own is None for own in outputs]
            scores = [self._scores.of(own or {}) for own in outputs]
            rows[f"{prefix}score"], rows[f"{prefix}nan"] = zip(*scores, strict=True)
            rows[f"{prefix}ms"] = _latencies([datum[side]["latency_ms"] for datum in found])
        return rows

    def _is_ours(self, datum: dict[str, Any]) -> bool:
        try:
            return self._pair == tuple((datum[side]["model"], datum[side]["version"]) for side in ("primary", "shadow"))
        except (KeyError, TypeError):
            return False  # somebody else's record


class LabelIntake:
    """Labels of any events."""

    def __init__(self, section: Labels, settings: StepSettings, store: SchemaStore) -> None:
        """Raises SchemaError: the schema is missing, or lacks a field that the pipeline file names."""
        self._section = section
        self._reward = settings.reward
        self._outcomes = Outcomes(settings.scoring.task, settings.scoring.classes)
        reader = None if section.schema_name is None else store.by_name(section.schema_name)
        rewards = {} if self._reward is None else {self._reward: "number"}
        types = {section.event_id: "scalar", **rewards, section.value: self._outcomes.json_type}
        self._decoder = open_decoder(section.format, store, reader, types)

    def rows(self, fetched: Fetched) -> Rows:
        """The rows of the labels. A record counts if it has an event ID, and an outcome or a reward. Raises SchemaUnavailable."""
        decoded = self._decoder.decode([value or b"" for value in fetched.values])
        table = decoded.table
        values = self._outcomes.numbers_of(table[self._section.value])
        values = np.where(self._outcomes.are_possible(values), values, np.nan)
        rewards = self._rewards(table)
        is_good = np.isfinite(values) | np.isfinite(rewards)
        ids = table[self._section.event_id]
        if ids.valid is not None:
            is_good &= ids.valid
        good = np.flatnonzero(is_good)
        at = decoded.rows[good]
        rows = np.zeros(len(good), LABEL_ROW)
        rows["id"] = list(map(id_hash, ids_of(ids.take(good))))
        rows["value"], rows["reward"] = values[good], rewards[good]
        rows["time"] = fetched.timestamps[at]
        rows["position"] = positions(LABELS, fetched.partitions[at], fetched.offsets[at])
        return rows

    def _rewards(self, table: Table) -> Floats:
        if self._reward is None:
            return np.full(len(table), np.nan)
        return Outcomes("regression").numbers_of(table[self._reward])


def key_hashes(keys: Sequence[bytes | None], ids: Sequence[str]) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The hash of each event's routing key: its record's key; without one, its ID."""
    routing = [event_id.encode() if key is None else key for key, event_id in zip(keys, ids, strict=True)]
    return hashed(Packed.of(routing), SALT)


def field_values(events: Iterable[dict[str, Any]], fields: Sequence[str]) -> Floats:
    """The values whose distribution is watched: [events, fields]. A text is a number by its hash; NaN: no value."""
    return np.array([[_number(event.get(field)) for field in fields] for event in events], np.float64).reshape(
        -1, len(fields)
    )


def _number(value: Any) -> float:
    if value is None:
        return float("nan")
    return float(value) if isinstance(value, int | float) else zlib.crc32(text_of(value).encode()) / 2**32


def _latencies(milliseconds: Iterable[float]) -> Floats:
    found = np.array(list(milliseconds), np.float64)
    return np.where((found >= 0) & (found <= _LONGEST_MS), found, np.nan)


def _place(rows: Rows, fetched: Fetched, at: Ints, source: int) -> None:
    rows["written"] = fetched.timestamps[at]
    rows["position"] = positions(source, fetched.partitions[at], fetched.offsets[at])
