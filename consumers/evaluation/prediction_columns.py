"""Predictions as columns: those of Avro in C where their values have the usual types, and any others one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.consumers.evaluation.scores import Scores
from millstream.schemas.avro.columns import ColumnReader, column_reader
from millstream.schemas.avro.sources import sources_of
from millstream.schemas.avro.wanted import wanted_columns
from millstream.schemas.column import NumberColumn
from millstream.schemas.datums import Datums
from millstream.schemas.errors import BadFieldError, BadPathError, SchemaError, SchemaUnavailable, Unreadable
from millstream.schemas.packed import Packed
from millstream.schemas.records import ROLLOUT_PREDICTION
from millstream.schemas.store import Schema
from millstream.schemas.wire import HEAD_BYTES, schema_id_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from millstream.consumers.evaluation.settings import StepSettings
    from millstream.schemas.arrays import Floats, Ints, Mask
    from millstream.schemas.avro.wanted import Wanted
    from millstream.schemas.column import Column
    from millstream.schemas.store import AvroType, SchemaStore
    from millstream.schemas.table import Table

_CHOICE: Final = ("id", "assigned", "propensity", "randomised", "model_ms")
_MOST_HEADS: Final = 100  # schemas whose readers are kept


@dataclass(frozen=True, slots=True)
class PredictionColumns:
    """Predictions that name a rollout, one entry each."""

    places: Ints  # of their records
    ids: Sequence[str]
    times: Ints  # ms since the epoch
    answered: Sequence[str]  # variants
    rollouts: Sequence[str]
    assigned: Sequence[str]  # variants
    propensities: Floats
    randomised: Mask
    ms: Floats
    scores: Floats  # NaN: none
    nan: Mask  # whether the score is no finite number
    fields: Mapping[str, Sequence[Any]]  # of their events

    def take(self, rows: Ints) -> PredictionColumns:
        """Those at these indices."""
        at = rows.tolist()
        return PredictionColumns(
            places=self.places[rows],
            ids=[self.ids[row] for row in at],
            times=self.times[rows],
            answered=[self.answered[row] for row in at],
            rollouts=[self.rollouts[row] for row in at],
            assigned=[self.assigned[row] for row in at],
            propensities=self.propensities[rows],
            randomised=self.randomised[rows],
            ms=self.ms[rows],
            scores=self.scores[rows],
            nan=self.nan[rows],
            fields={name: [values[row] for row in at] for name, values in self.fields.items()},
        )


class PredictionReader:
    """Reads predictions of one pipeline."""

    def __init__(self, settings: StepSettings, store: SchemaStore, form: str) -> None:
        """Args:
        settings: name the score and the wanted fields of events.
        store: of the schemas.
        form: avro or json.
        """
        self._rollout = settings.rollout
        self._fields = tuple(dict.fromkeys((*settings.segments, *settings.fields)))
        self._datums = Datums(store)
        self._scores = Scores(settings.scoring)
        self._can_be_fast = form == "avro" and settings.scoring.classes is None
        self._item = settings.scoring.item
        self._store = store
        self.fast: FastReader | None = None  # once the first prediction has shown its types

    def read(self, values: Sequence[bytes | None]) -> list[PredictionColumns]:
        """The predictions that name a rollout: of this step's, and perhaps some of others. Raises SchemaUnavailable."""
        packed = [value or b"" for value in values]
        if self.fast is None:
            return [self._one_by_one(packed, np.arange(len(packed)))]
        fast, left = self.fast.read(packed)
        slow = self._one_by_one([packed[place] for place in left.tolist()], left)
        return [own for own in (fast, slow) if own is not None and len(own.places)]

    def fields_of(self, values: Sequence[bytes | None]) -> list[dict[str, Any]]:
        """The fields of the events of any predictions. Raises SchemaUnavailable."""
        return [datum.get("event") or {} for datum in self._datums.read(values) if datum is not None]

    def _one_by_one(self, values: Sequence[bytes], places: Ints) -> PredictionColumns:
        """All values, of any types. `places`: of their records.

        Another pipeline's predictions must not decide which output is the score.
        """
        read = self._datums.read(values)
        rows = [row for row, datum in enumerate(read) if datum is not None and self._is_ours(datum)]
        found = [datum for datum in (read[row] for row in rows) if datum is not None]
        if found and self._can_be_fast and self.fast is None:
            self._begin_fast(found[0])
        choices = [datum["rollout"] for datum in found]
        scored = [self._scores.of(datum["outputs"]) for datum in found]
        events = [datum.get("event") or {} for datum in found]
        return PredictionColumns(
            places[np.array(rows, np.int64)],
            [datum["event_id"] for datum in found],
            np.array([datum["prediction_time"] for datum in found], np.int64),
            [datum["variant"] for datum in found],
            [own["id"] for own in choices],
            [own["assigned"] for own in choices],
            np.array([own["propensity"] for own in choices], np.float64),
            np.array([own["randomised"] for own in choices], np.bool_),
            np.array([own["model_ms"] for own in choices], np.float64),
            np.array([score for score, _ in scored], np.float64),
            np.array([is_nan for _, is_nan in scored], np.bool_),
            {name: [event.get(name) for event in events] for name in self._fields},
        )

    def _is_ours(self, datum: Mapping[str, Any]) -> bool:
        choice = datum.get("rollout")
        return isinstance(choice, dict) and choice.get("id") == self._rollout

    def _begin_fast(self, datum: Mapping[str, Any]) -> None:
        """From now on, read values of the types that this prediction has in C."""
        self._scores.of(datum["outputs"])
        event = datum.get("event") or {}
        try:
            self.fast = FastReader(
                self._store, self._scores.output, self._item, {name: event.get(name) for name in self._fields}
            )
        except (BadFieldError, BadPathError, ValueError):
            self._can_be_fast = False


class FastReader:
    """Reads predictions in C, if their score is a number, and the wanted fields are all texts or all numbers."""

    def __init__(self, store: SchemaStore, output: str | None, item: int | None, example: Mapping[str, Any]) -> None:
        """Args:
        store: of the schemas.
        output: the one with the score.
        item: its item, if it is an array.
        example: the wanted fields of an event's, with their values.

        Raises:
            ValueError: there is no such output, or the fields have several types.
            BadFieldError, BadPathError: a name can't be in a path.
        """
        if output is None:
            raise ValueError("no score")
        self._score = f'outputs["{output}"]' + ("" if item is None else f"[{item}]")
        self._events = {name: f'event["{name}"]' for name in example}
        number = "double" if item is None else {"type": "array", "items": ["null", "double"]}
        self._reader = _schema(["null", number], ["null", _type_of(example)])
        choice = [f"rollout.{name}" for name in _CHOICE]
        paths = ["event_id", "prediction_time", "variant", *choice, self._score, *self._events.values()]
        self._wanted: Wanted = wanted_columns(self._reader, paths)
        self._store = store
        self._readers: dict[bytes, ColumnReader | None] = {}

    def read(self, values: Sequence[bytes]) -> tuple[PredictionColumns | None, Ints]:
        """The predictions that name a rollout; and the rows that must be read in another way. Raises SchemaUnavailable."""
        rest = np.arange(len(values))
        if not len(values):
            return None, rest
        head = values[0][:HEAD_BYTES]
        reader = self._reader_of(head)
        if reader is None:
            return None, rest
        decoded, _ = reader.read(Packed.of(values))
        read = np.zeros(len(values), np.bool_)
        read[decoded.rows] = True
        return self._columns(self._wanted.decoded(decoded).table, decoded.rows), np.flatnonzero(~read)

    def _columns(self, table: Table, places: Ints) -> PredictionColumns:
        chosen = _valid(table["rollout.id"])
        if not chosen.all():
            rows = np.flatnonzero(chosen)
            table, places = table.take(rows), places[rows]
        # A number without a value is no score; one that is not finite is no finite score.
        known, scores = _valid(table[self._score]), _numbers(table[self._score])
        finite = np.isfinite(scores)
        return PredictionColumns(
            places,
            table["event_id"].to_list(),
            _numbers(table["prediction_time"]).astype(np.int64),
            table["variant"].to_list(),
            table["rollout.id"].to_list(),
            table["rollout.assigned"].to_list(),
            _numbers(table["rollout.propensity"]),
            _numbers(table["rollout.randomised"]).astype(np.bool_),
            _numbers(table["rollout.model_ms"]),
            np.where(known & finite, scores, np.nan),
            known & ~finite,
            {name: table[path].to_list() for name, path in self._events.items()},
        )

    def _reader_of(self, head: bytes) -> ColumnReader | None:
        if head not in self._readers:
            if len(self._readers) >= _MOST_HEADS:  # hostile IDs
                self._readers.clear()
            self._readers[head] = self._compiled(head)
        return self._readers[head]

    def _compiled(self, head: bytes) -> ColumnReader | None:
        """None: this schema has no program, so its values are read one by one."""
        try:
            writer = self._store.by_id(schema_id_of(head))
            sources = sources_of(writer, self._reader, self._wanted.fields)
        except SchemaUnavailable:
            raise
        except (SchemaError, Unreadable):
            return None
        return column_reader(head, writer, sources, of_some=True)


def _schema(score: AvroType, field: AvroType) -> Schema:
    """prediction-v3 with these types of outputs and of the event's fields."""
    maps = {"outputs": score, "event": field}
    fields = [
        own | {"type": {"type": "map", "values": maps[own["name"]]}} if own["name"] in maps else own
        for own in ROLLOUT_PREDICTION.definition["fields"]
    ]
    definition = ROLLOUT_PREDICTION.definition | {"fields": fields}
    return Schema(ROLLOUT_PREDICTION.reserved_id, ROLLOUT_PREDICTION.name, definition)


def _type_of(example: Mapping[str, Any]) -> str:
    """The Avro type of all these values. Raises ValueError if they have several, or another one."""
    kinds = {type(value) for value in example.values()} - {type(None)}
    if kinds <= {str}:
        return "string"
    if kinds == {float}:
        return "double"
    raise ValueError("fields of several types")


def _valid(column: Column) -> Mask:
    return np.ones(len(column), np.bool_) if column.valid is None else column.valid


def _numbers(column: Column) -> npt.NDArray[Any]:
    assert isinstance(column, NumberColumn)
    return column.values
