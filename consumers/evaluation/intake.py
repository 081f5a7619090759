"""Turns fetched records into rows: predictions, dead letters and comparisons of the step, and labels."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.consumers.comparison.outcomes import Outcomes
from millstream.consumers.comparison.rows import id_hash
from millstream.consumers.evaluation.prediction_columns import PredictionReader
from millstream.consumers.evaluation.rows import LABEL_ROW, Rows, empty_events, positions
from millstream.consumers.evaluation.scores import Scores
from millstream.consumers.evaluation.segments import text_of
from millstream.consumers.rollout.clusters import SALT
from millstream.consumers.rollout.hashes import hashed
from millstream.schemas.avro.decoder import AvroDecoder
from millstream.schemas.datums import Datums
from millstream.schemas.decoding import open_decoder
from millstream.schemas.ids import ids_of, place_id
from millstream.schemas.packed import Packed
from millstream.schemas.records import ROLLOUT_DEAD_LETTER
from millstream.schemas.routing_keys import routing_keys
from millstream.schemas.store import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.consumers.evaluation.prediction_columns import PredictionColumns
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
        self._shares = np.array(settings.shares)

    def variants(
        self, rollouts: Sequence[str | None], assigned: Sequence[str | None], propensities: Floats, times: Ints
    ) -> Ints:
        """The index of the variant that routing assigned to each event; -1 if the event doesn't belong to the step.

        Args:
            rollouts: the rollout's ID; None if there was no rollout.
            assigned: the variant's name.
            propensities: its share.
            times: when the prediction or the dead letter was made, ms since the epoch.
        """
        settings = self._settings
        places = np.array([self._places.get(name or "", -1) for name in assigned], np.int64)
        ours = np.array([own == settings.rollout for own in rollouts], np.bool_) & (places >= 0)
        is_before = times < settings.since
        ours &= times >= settings.begin
        if settings.rewards_since is None:
            ours &= ~is_before | (places == 0)
        if settings.by_share:
            ours &= is_before | (np.abs(propensities - self._shares[places]) <= _SAME_SHARE)
        return np.where(ours, places, -1)


class PredictionIntake:
    """Predictions of the step."""

    def __init__(self, state: StepState, store: SchemaStore, form: str) -> None:
        self._state = state
        self._settings = state.settings
        self.reader = PredictionReader(state.settings, store, form)
        self._filter = StepFilter(state.settings)

    def rows(self, fetched: Fetched) -> Rows:
        """The rows of the events that belong to the step. Raises SchemaUnavailable."""
        parts = [self._rows(fetched, part) for part in self.reader.read(fetched.values)]
        return np.concatenate(parts) if parts else empty_events(self._state.dtype, 0)

    def reference(self, fetched: Fetched) -> Floats:
        """The watched fields of any predictions: [predictions, fields]. Raises SchemaUnavailable."""
        events = self.reader.fields_of(fetched.values)
        fields = self._settings.fields
        return field_values([[event.get(field) for event in events] for field in fields], len(events))

    def _rows(self, fetched: Fetched, columns: PredictionColumns) -> Rows:
        of = columns
        variants = self._filter.variants(of.rollouts, of.assigned, of.propensities, of.times)
        if (variants < 0).any():
            good = np.flatnonzero(variants >= 0)
            of, variants = of.take(good), variants[good]
        rows = empty_events(self._state.dtype, len(variants))
        _place(rows, fetched, of.places, PREDICTIONS)
        rows["id"] = list(map(id_hash, of.ids))
        rows["time"], rows["variant"], rows["randomised"] = of.times, variants, of.randomised
        rows["hash"] = key_hashes([fetched.keys[place] for place in of.places.tolist()], of.ids)
        names = [own.name for own in self._settings.variants]
        rows["failed"] = [name != names[own] for name, own in zip(of.answered, variants.tolist(), strict=True)]
        rows["ms"], rows["score"], rows["nan"] = _latencies(of.ms), of.scores, of.nan
        if self._settings.segments:
            rows["segments"] = self._state.segments.codes(
                [of.fields[name] for name in self._settings.segments], len(rows)
            )
        if self._settings.fields:
            rows["fields"] = field_values([of.fields[name] for name in self._settings.fields], len(rows))
        return rows


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
        variants = self._variants(table)
        good = np.flatnonzero(variants >= 0)
        rows = empty_events(self._state.dtype, len(good))
        if not len(good):
            return rows
        columns = {name: table[name].take(good).to_list() for name in ("topic", "partition", "offset", "key")}
        # A dead letter has no ID of its event. If events have IDs of their own, this one is another: an event that also has a
        # prediction then counts twice.
        ids = list(map(place_id, columns["topic"], columns["partition"], columns["offset"]))
        _place(rows, fetched, decoded.rows[good], LETTERS)
        rows["id"] = list(map(id_hash, ids))
        rows["time"] = table["failed_at"].take(good).to_list()
        rows["hash"] = key_hashes(columns["key"], ids)
        rows["variant"] = variants[good]
        rows["randomised"] = table["rollout.randomised"].take(good).to_list()
        rows["dead"] = True
        return rows

    def _variants(self, table: Table) -> Ints:
        rollouts, assigned = (table[f"rollout.{name}"].to_list() for name in ("id", "assigned"))
        shares = np.array([np.nan if own is None else own for own in table["rollout.propensity"].to_list()], np.float64)
        return self._filter.variants(rollouts, assigned, shares, np.array(table["failed_at"].to_list(), np.int64))


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
    """The hash of each event's routing key."""
    return hashed(Packed.of(routing_keys(keys, ids)), SALT)


def field_values(columns: Sequence[Sequence[Any]], count: int) -> Floats:
    """The values whose distribution is watched: [events, fields]. A text is a number by its hash; NaN: no value.

    Args:
        columns: the values of each field.
        count: of events.
    """
    found = np.empty((count, len(columns)))
    for place, values in enumerate(columns):
        found[:, place] = list(map(_number, values))
    return found


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
