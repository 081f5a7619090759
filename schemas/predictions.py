"""Encodes predictions, a whole micro-batch at a time, as Avro in the wire format or as JSON.

docs/wire-format.md describes them for readers.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from millstream.schemas.arrays import Ints
from millstream.schemas.avro.varint import varint
from millstream.schemas.avro.write import fixed_pieces, long_pieces, text, text_pieces
from millstream.schemas.included import included_pieces, json_values
from millstream.schemas.interleave import Piece, interleave
from millstream.schemas.json_floats import json_floats
from millstream.schemas.packed import Packed, Texts
from millstream.schemas.rollout_choices import avro_choice, json_choice
from millstream.schemas.row_models import Model, RowModels
from millstream.schemas.table import Table
from millstream.schemas.wire import frame

# The branches of an output's union in prediction-v1, as varints.
_FLOAT, _DOUBLE, _LONG, _BOOLEAN, _STRING, _ARRAY = (varint(place) for place in range(6))
_MIN_RUN = 8  # mean length of runs of equal times, from which it is faster to encode each time once
_GAP = b"\0"  # no byte of JSON: in texts, it is escaped
_PLACEHOLDER = msgspec.Raw(_GAP)
_JSON = msgspec.json.Encoder()
MAX_MODELS = 1024  # models whose encoded identity is kept

Outputs = Mapping[str, npt.NDArray[Any]]


class UnsupportedOutputError(ValueError):
    """A model's output has a dtype or shape that a prediction can't hold.

    Raised by the encoders of predictions. The model is at fault, not the event: the caller fails the batch as it does
    for any model that answers wrongly, and a version whose warm-up raises it is not put to work.
    """


class PredictionRows(Protocol):
    """Encodes predictions."""

    def encode(
        self,
        event_ids: Sequence[str],
        event_times: Ints,
        ingest_times: Ints,
        prediction_times: Ints,
        outputs: Outputs,
        event: Table | None = None,
        *,
        models: RowModels,
    ) -> Sequence[bytes]:
        """Return one value per event, in the order of the events.

        Args:
            event_ids: the event IDs.
            event_times: milliseconds since the epoch (UTC), like the other times.
            ingest_times: when the events were read.
            prediction_times: when their results were ready.
            outputs: name -> [events, ...].
            event: the fields that predictions include; None: they include none.
            models: which model made each prediction.

        Raises:
            UnsupportedOutputError: a prediction can't hold an output.
        """
        ...


class PredictionEncoder:
    """Encodes predictions as Avro in the wire format.

    The schema with the ID `schema_id` is prediction-v3 for pipelines with a rollout. Otherwise it is prediction-v2 if they
    include fields of their events, and prediction-v1 if not.
    """

    def __init__(self, schema_id: int, *, pipeline: str, variant: str, rollout: bool = False) -> None:
        """Args:
        schema_id: of the predictions' schema.
        pipeline: the pipeline's name.
        variant: of all predictions whose models have none of their own.
        rollout: whether the schema is prediction-v3.
        """
        self._head = frame(schema_id)
        self._variant = variant
        self._rollout = rollout
        before = text(pipeline)

        @lru_cache(MAX_MODELS)
        def origin(model: Model, variant: str) -> bytes:
            return before + text(model[0]) + varint(model[1]) + text(variant)

        self._origin = origin

    def encode(
        self,
        event_ids: Sequence[str],
        event_times: Ints,
        ingest_times: Ints,
        prediction_times: Ints,
        outputs: Outputs,
        event: Table | None = None,
        *,
        models: RowModels,
    ) -> Packed:
        """See PredictionRows."""
        rows = len(event_ids)
        if not rows:
            return Packed.of([])
        pieces: list[Piece] = [
            self._head,
            *text_pieces(event_ids),
            *_time_pieces(event_times, varint, _varints),
            models.variant_piece(self._origin, self._variant),
            *_time_pieces(ingest_times, varint, _varints),
            *_time_pieces(prediction_times, varint, _varints),
        ]
        pieces += output_pieces(outputs, rows)
        if event is not None:
            pieces += included_pieces(event)
        if self._rollout:
            pieces += [] if event is not None else [varint(0)]  # an empty map
            pieces.append(models.choice_piece(avro_choice))
        return interleave(pieces, rows)


def _time_pieces(times: Ints, one: Callable[[int], bytes], many: Callable[[Ints], list[Piece]]) -> list[Piece]:
    """The pieces of one time per row. Events that were read or predicted together have the same time, which is encoded once."""
    changes = np.flatnonzero(times[1:] != times[:-1]) + 1
    if not len(changes):
        return [one(int(times[0]))]
    if len(changes) * _MIN_RUN > len(times):
        return many(times)
    starts = np.concatenate([[0], changes])
    runs = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(times)))  # the run of each row
    return [
        piece if isinstance(piece, bytes) else piece.take(runs) if isinstance(piece, Packed) else piece[runs]
        for piece in many(times[starts])
    ]


def _varints(times: Ints) -> list[Piece]:
    return long_pieces(times.reshape(-1, 1))


class JsonPredictionEncoder:
    """Encodes predictions as JSON objects with the fields of the Avro schema, times in milliseconds.

    JSON has no NaN and no infinity. They become the strings "NaN", "Infinity" and "-Infinity".
    """

    def __init__(self, *, pipeline: str, variant: str, rollout: bool = False) -> None:
        """Args: as of `PredictionEncoder`."""
        self._pipeline = pipeline
        self._variant = variant
        self._rollout = rollout

    def encode(
        self,
        event_ids: Sequence[str],
        event_times: Ints,
        ingest_times: Ints,
        prediction_times: Ints,
        outputs: Outputs,
        event: Table | None = None,
        *,
        models: RowModels,
    ) -> Packed:
        """See PredictionRows."""
        rows = len(event_ids)
        if not rows:
            return Packed.of([])
        columns = [_json_column(_plain(name, values, rows)) for name, values in outputs.items()]
        included = {} if event is None else {name: json_values(column) for name, column in event.columns.items()}
        event_time, ingest_time, prediction_time = (
            _time_pieces(times, _JSON.encode, _json_numbers) for times in (event_times, ingest_times, prediction_times)
        )
        origin = models.variant_piece(_json_origin, self._variant)
        values = [_json_texts(event_ids), event_time, [origin], ingest_time, prediction_time]
        values += [[_json_lines(column)] for column in (*columns, *included.values())]
        if self._rollout:
            values.append([models.choice_piece(json_choice)])
        first, *others = self._template(outputs, None if event is None else included).split(_GAP)
        pieces: list[Piece] = [first]
        for value, between in zip(values, others, strict=True):
            pieces += *value, between
        return interleave(pieces, rows)

    def _template(self, outputs: Collection[str], included: Collection[str] | None) -> bytes:
        """The JSON that is the same in all records of a batch, with gaps for the values that differ."""
        record = {
            "event_id": _PLACEHOLDER,
            "event_time": _PLACEHOLDER,
            "pipeline": self._pipeline,
            "model": _PLACEHOLDER,  # and its version and variant, see `_json_origin`
            "ingest_time": _PLACEHOLDER,
            "prediction_time": _PLACEHOLDER,
            "outputs": dict.fromkeys(outputs, _PLACEHOLDER),
        }
        if included is not None:
            record["event"] = dict.fromkeys(included, _PLACEHOLDER)
        if self._rollout:
            record["rollout"] = _PLACEHOLDER
        return _JSON.encode(record)


@lru_cache(MAX_MODELS)
def _json_origin(model: Model, variant: str) -> bytes:
    """The value of the field `model`, and the fields `version` and `variant` after it."""
    name, version = model
    return _JSON.encode(name) + b',"version":' + _JSON.encode(version) + b',"variant":' + _JSON.encode(variant)


def output_pieces(outputs: Outputs, rows: int) -> list[Piece]:
    """The pieces of the map `outputs`, for predictions and comparisons. Raises UnsupportedOutputError."""
    # An Avro map is a block of entries with its count before it, then an empty block.
    pieces: list[Piece] = [varint(len(outputs))] if outputs else []
    for name, values in outputs.items():
        pieces += _entry(name, _plain(name, values, rows))
    return [*pieces, varint(0)]


def _plain(name: str, values: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """The output in one of the five dtypes of the schema: <f4, <f8, int64, bool, or object (of str)."""
    if values.ndim == 0 or values.shape[0] != rows:
        raise UnsupportedOutputError(
            f"output {name!r}: expected one row per event, that is shape [{rows}, ...], found {list(values.shape)}. "
            "Keep the batch axis first in the model."
        )
    match values.dtype.kind, values.dtype.itemsize:
        case "f", 2 | 4:
            return values.astype("<f4", copy=False)
        case "f", 8:
            return values.astype("<f8", copy=False)
        case ("i", _) | ("u", 1 | 2 | 4):
            return values.astype(np.int64, copy=False)
        case "b", _:
            return values
        case "O" | "U" | "T", _:
            return _checked_text(name, values.astype(object, copy=False))
    raise UnsupportedOutputError(
        f"output {name!r}: expected float16, float32, float64, an integer that fits in 64 bits with sign, bool or str, "
        f"found {values.dtype}. Cast it in the model."
    )


def _checked_text(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    try:
        "".join(values.reshape(-1).tolist()).encode()
    except (TypeError, UnicodeEncodeError) as fault:
        raise UnsupportedOutputError(
            f"output {name!r}: expected every item to be a str of valid Unicode, found otherwise: {fault}. "
            "Return such text from the model."
        ) from None
    return values


def _entry(name: str, values: npt.NDArray[Any]) -> list[Piece]:
    """One entry of the map `outputs`: its name, the union's branch, the value."""
    rows, items = len(values), math.prod(values.shape[1:])
    pieces = _item_pieces(values.reshape(rows, items))
    if _is_scalar(values):
        return [text(name), *pieces]
    # An Avro array is laid out like a map: count, items, then an empty block.
    count = varint(items) if items else b""
    return [text(name) + _ARRAY + count, *pieces, varint(0)]


def _item_pieces(values: npt.NDArray[Any]) -> list[Piece]:
    """The items of all rows, each after its branch of the union; `values` has shape [rows, items]."""
    match values.dtype.kind:
        case "i":
            return long_pieces(values, _LONG)
        case "b":
            return fixed_pieces(values, _BOOLEAN)
        case "f":
            return fixed_pieces(values, _FLOAT if values.dtype.itemsize == 4 else _DOUBLE)
    rows, items = values.shape
    if items == 1:
        return [_STRING, *text_pieces(values[:, 0].tolist())]
    flat = [_STRING + text(value) for value in values.reshape(-1).tolist()]
    return [Packed.of([b"".join(flat[row * items : (row + 1) * items]) for row in range(rows)])]


def _is_scalar(values: npt.NDArray[Any]) -> bool:
    """Whether the output has one number (or text) per event: shape [rows] or [rows, 1]."""
    return values.shape[1:] in {(), (1,)}


def _json_texts(texts: Sequence[str]) -> list[Piece]:
    """The JSON of texts. If they have no character that JSON escapes, it is their UTF-8 between quotation marks."""
    utf8 = Texts.of(texts).utf8
    whole = np.frombuffer(utf8.whole, np.uint8)
    if whole.min(initial=0xFF) < ord(" ") or (whole == ord('"')).any() or (whole == ord("\\")).any():
        return [_json_lines(texts)]
    return [b'"', utf8, b'"']


def _json_numbers(numbers: Ints) -> list[Piece]:
    return [_json_lines(numbers.tolist())]


def _json_lines(values: Sequence[Any]) -> Packed:
    """Encode each value as JSON, in one call: msgspec's JSON has no line breaks, so these can separate the values."""
    lines = np.frombuffer(_JSON.encode_lines(values), np.uint8)
    ends = np.flatnonzero(lines == ord("\n"))
    starts = np.append(0, ends[:-1] + 1)
    return Packed(lines, starts, ends - starts)


def _json_column(values: npt.NDArray[Any]) -> list[Any]:
    """The output's value in each row, for JSON."""
    rows = len(values)
    values = json_floats(values)
    shape = (rows,) if _is_scalar(values) else (rows, math.prod(values.shape[1:]))
    column: list[Any] = values.reshape(shape).tolist()
    return column
