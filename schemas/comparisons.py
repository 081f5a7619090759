"""Encodes comparisons, a whole micro-batch at a time, and decodes them. A comparison has both models' outputs for an event.

docs/comparison.md describes how they are used.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.schemas.arrays import Ints
from millstream.schemas.avro.types import parsed
from millstream.schemas.avro.varint import varint
from millstream.schemas.avro.write import NULL, VALUE, fixed_pieces, long_pieces, nullable_pieces, text, text_pieces
from millstream.schemas.datums import DatumsOf
from millstream.schemas.errors import BadSchemaError, NotWireFormat, UnknownSchema
from millstream.schemas.interleave import Piece, interleave
from millstream.schemas.packed import Packed
from millstream.schemas.predictions import Outputs, UnsupportedOutputError, output_pieces
from millstream.schemas.records import COMPARISON
from millstream.schemas.row_models import Model, RowModels
from millstream.schemas.store import Schema, SchemaStore
from millstream.schemas.wire import frame

# Without logical types: times are plain integers.
_SCHEMA: Final = parsed(Schema(COMPARISON.reserved_id, COMPARISON.name, COMPARISON.definition))
_MAX_ERROR_LENGTH = 1000  # characters of a shadow's error in a comparison

Latency = float | npt.NDArray[np.float64]
"""Milliseconds that the model took for an event's micro-batch: one number for all rows, or one per row."""


class Variant(NamedTuple):
    """A model version with its role."""

    model: str
    version: int
    name: str = "shadow"  # its name in the pipeline file


class PrimaryRows(NamedTuple):
    """The primary's results for the events of a comparison."""

    models: RowModels  # that made them
    outputs: Outputs  # name -> [events, ...]
    latency_ms: Latency


class ComparisonEncoder:
    """Encodes comparisons of a primary and a shadow as Avro in the wire format: schema comparison-v1 with the ID `schema_id`."""

    def __init__(self, schema_id: int, pipeline: str, *, shadow: Variant) -> None:
        self._head = frame(schema_id)
        self._pipeline = text(pipeline)
        self._shadow = text(shadow.model) + varint(shadow.version) + text(shadow.name)

    def encode(
        self,
        event_ids: Sequence[str],
        keys: Sequence[bytes | None],
        event_times: Ints,
        primary: PrimaryRows,
        shadow_outputs: Outputs | None,
        shadow_latency_ms: Latency,
        errors: Mapping[int, str] | None = None,
    ) -> list[bytes]:
        """Return one value per event, in the order of the events. The records' keys are the event IDs.

        Args:
            event_ids: the event IDs.
            keys: the keys of the events' records.
            event_times: milliseconds since the epoch (UTC).
            primary: the primary's results.
            shadow_outputs: name -> [events without an error, ...]; None if the shadow failed on all events.
            shadow_latency_ms: the shadow's, also for events on which it failed.
            errors: row of an event -> the shadow's error; all rows if `shadow_outputs` is None.

        Raises:
            UnsupportedOutputError: a comparison can't hold an output.
        """
        rows = len(event_ids)
        if not rows:
            return []
        starts = self._starts(event_ids, keys, event_times, primary)
        failed = errors or {}
        if shadow_outputs is None and len(failed) < rows:
            raise UnsupportedOutputError(
                f"a comparison needs the shadow's outputs or an error for each event: found neither for {rows - len(failed)} "
                f"of {rows}"
            )
        latencies = _double_piece(shadow_latency_ms, rows)
        if not failed:
            assert shadow_outputs is not None
            ends: Sequence[bytes] = interleave(
                [self._shadow, VALUE, *output_pieces(shadow_outputs, rows), NULL, latencies], rows
            )
        else:
            ends = self._ends(shadow_outputs, failed, latencies, rows)
        return list(map(bytes.__add__, starts, ends))

    def _starts(
        self,
        event_ids: Sequence[str],
        keys: Sequence[bytes | None],
        event_times: Ints,
        primary: PrimaryRows,
    ) -> Sequence[bytes]:
        """The first part of each row, up to the primary's latency."""
        rows = len(event_ids)
        return interleave(
            [
                self._head,
                *text_pieces(event_ids),
                *nullable_pieces(keys),
                *long_pieces(event_times.reshape(rows, 1)),
                self._pipeline,
                primary.models.piece(_primary),
                *output_pieces(primary.outputs, rows),
                _double_piece(primary.latency_ms, rows),
            ],
            rows,
        )

    def _ends(self, outputs: Outputs | None, errors: Mapping[int, str], latencies: Piece, rows: int) -> Sequence[bytes]:
        """The second part of each row, if the shadow failed on some events."""
        good = [row for row in range(rows) if row not in errors]
        # A model's error may have characters that UTF-8 can't encode. They become `?`.
        told = {row: error[:_MAX_ERROR_LENGTH].encode("utf-8", "replace").decode() for row, error in errors.items()}
        middles = {row: NULL + VALUE + text(error) for row, error in told.items()}
        if good:
            assert outputs is not None
            answers = interleave([VALUE, *output_pieces(outputs, len(good)), NULL], len(good))
            middles |= dict(zip(good, answers, strict=True))
        return interleave([self._shadow, Packed.of([middles[row] for row in range(rows)]), latencies], rows)


def _primary(model: Model) -> bytes:
    return text(model[0]) + varint(model[1])


def _double_piece(values: Latency, rows: int) -> Piece:
    if isinstance(values, np.ndarray):
        # `fixed_pieces` puts a union's branch before each value. This field has no union, so the byte is cut off.
        (tagged,) = fixed_pieces(values.astype("<f8").reshape(rows, 1), b"\0")
        assert isinstance(tagged, np.ndarray)
        return tagged[:, 1:]
    return np.array(values, "<f8").tobytes()


class Pair(NamedTuple):
    """The two model versions of a comparison."""

    primary: Variant
    shadow: Variant


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Comparisons as columns, with one entry per row."""

    rows: npt.NDArray[np.int64]  # index of each in the decoded values, ascending
    ids: list[str]
    event_times: Ints  # ms since the epoch
    pairs: list[Pair]  # the pairs that occur ...
    pair: npt.NDArray[np.uint16]  # ... and each row's index in them
    primary: list[dict[str, Any]]  # outputs by name
    shadow: list[dict[str, Any] | None]  # None: the shadow failed
    primary_ms: npt.NDArray[np.float64]
    shadow_ms: npt.NDArray[np.float64]

    def of_pairs(self, known: Container[Pair]) -> tuple["Comparisons", list[Pair]]:
        """Split off comparisons of unknown pairs. Returns the others, and the pair of each that is split off."""
        good = np.array([pair in known for pair in self.pairs], np.bool_)
        if good.all():
            return self, []
        keep = good[self.pair]
        kept = np.flatnonzero(keep).tolist()
        places = good.cumsum() - 1  # new indices of the pairs that stay
        comparisons = Comparisons(
            rows=self.rows[keep],
            ids=[self.ids[row] for row in kept],
            event_times=self.event_times[keep],
            pairs=[pair for pair, is_good in zip(self.pairs, good, strict=True) if is_good],
            pair=places[self.pair[keep]].astype(np.uint16),
            primary=[self.primary[row] for row in kept],
            shadow=[self.shadow[row] for row in kept],
            primary_ms=self.primary_ms[keep],
            shadow_ms=self.shadow_ms[keep],
        )
        return comparisons, [self.pairs[place] for place in self.pair[~keep].tolist()]


class ComparisonDecoder:
    """Decodes comparisons with the schemas that they were written with."""

    def __init__(self, store: SchemaStore) -> None:
        self._datums = DatumsOf(store, _SCHEMA, "no comparison: ")

    def decode(self, values: Sequence[bytes | None]) -> tuple[Comparisons, dict[int, str]]:
        """Return the comparisons, and index -> error for each value that is not one. Raises only SchemaUnavailable."""
        data: list[dict[str, Any]] = []
        rows: list[int] = []
        bad: dict[int, str] = {}
        for row, value in enumerate(values):
            try:
                data.append(self._datums.one(value or b""))
                rows.append(row)
            except (NotWireFormat, UnknownSchema, BadSchemaError) as error:
                bad[row] = str(error)
        return _columns(data, np.array(rows, np.int64)), bad


def compared_output(
    named: str | None, primary: Mapping[str, Any], shadow: Mapping[str, Any], *, item: int | None = None
) -> str | None:
    """The output that is compared: the one that `comparison.output` names, or the best that both models have.

    Without a name, a number with a fraction is best, because it may be a probability. Then comes another number, then the rest:
    arrays and texts. If `comparison.item` is set, an array of numbers is best. Of equally good ones, it is the first by name.

    Args:
        named: `comparison.output`.
        primary: the primary's outputs for an event.
        shadow: the shadow's for the same event.
        item: `comparison.item`.
    """
    if named is not None:
        return named
    common = primary.keys() & shadow.keys()
    return min(
        common, key=lambda name: (max(_rank(name, outputs, item) for outputs in (primary, shadow)), name), default=None
    )


def _rank(name: str, outputs: Mapping[str, Any], item: int | None) -> int:
    """How well an output serves as a score: 0 is best."""
    # The score of the best class (`top: 1`) belongs to another class in each event.
    if name.endswith("_scores") and name.removesuffix("_scores") in outputs:
        return 3
    match outputs[name]:
        case [float() | int(), *_] if item is not None:
            return 0
        case float():
            return 1
        case int():  # also true and false
            return 2
    return 3


def _columns(data: list[dict[str, Any]], rows: npt.NDArray[np.int64]) -> Comparisons:
    places: dict[Pair, int] = {}
    pair = np.empty(len(data), np.uint16)
    for row, datum in enumerate(data):
        pair[row] = places.setdefault(_pair(datum), len(places))

    def column(side: str, name: str) -> list[Any]:
        return [datum[side][name] for datum in data]

    return Comparisons(
        rows=rows,
        ids=[datum["event_id"] for datum in data],
        event_times=np.array([datum["event_time"] for datum in data], np.int64),
        pairs=list(places),
        pair=pair,
        primary=column("primary", "outputs"),
        shadow=column("shadow", "outputs"),
        primary_ms=np.array(column("primary", "latency_ms"), np.float64),
        shadow_ms=np.array(column("shadow", "latency_ms"), np.float64),
    )


def _pair(datum: dict[str, Any]) -> Pair:
    primary, shadow = datum["primary"], datum["shadow"]
    return Pair(
        Variant(primary["model"], primary["version"], "primary"),
        Variant(shadow["model"], shadow["version"], shadow["variant"]),
    )
