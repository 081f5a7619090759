"""Leaves out events of other pipelines (`input.filter`), before anything else of them is read."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.consumers.errors import PlanError
from millstream.consumers.problems import Problems
from millstream.inference.casts import Cast
from millstream.inference.combined.routing import Condition
from millstream.inference.conversions import as_numbers
from millstream.pipeline.conditions import ParsedCondition
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.column import Column
from millstream.schemas.decoded import Decoded, Decoder
from millstream.schemas.decoding import open_decoder
from millstream.schemas.dtypes import Dtype
from millstream.schemas.errors import ContradictingPaths, SchemaUnavailable
from millstream.schemas.ids import ids_of
from millstream.schemas.packed import Packed
from millstream.schemas.store import Schema, SchemaStore
from millstream.schemas.table import Table
from millstream.schemas.wording import shown

log = logging.getLogger(__name__)

MANY = 1000  # events, from which on a filter that no event has passed looks wrong
MAX_EXAMPLES = 5  # values that the warning about it names
_NUMBER = Cast("any", "number")
_TYPES = ("int32", "int64", "float32", "float64", "boolean", "string", "mixed")


class EventFilter(NamedTuple):
    """Conditions that must all hold for an event."""

    conditions: tuple[ParsedCondition, ...]

    def holds(self, table: Table) -> Mask:
        """For each event, whether all conditions hold. `table`: has their fields."""
        held: Mask = np.ones(len(table), np.bool_)
        for parsed in self.conditions:
            constants = parsed.compared
            read = _texts if isinstance(constants[0], str) else _numbers
            values = {parsed.field: read(table[parsed.field])}
            held &= Condition(parsed.field, parsed.operator, constants).holds(values)
        return held

    def __str__(self) -> str:
        return " and ".join(f"`{parsed.text}`" for parsed in self.conditions)


class FilteredDecoder:
    """A decoder of the events that pass a filter. Values that even the filter can't read stay bad records."""

    def __init__(self, decoder: Decoder, event_filter: EventFilter, of_filter: Decoder) -> None:
        """Args:
        decoder: of the events that pass.
        event_filter: decides which these are.
        of_filter: reads the fields of the conditions.
        """
        self._decoder = decoder
        self._filter = event_filter
        self._of_filter = of_filter
        self._seen = 0  # events, until one passes
        self._is_plausible = False  # whether an event has passed, or the warning that none does is written

    @property
    def columns(self) -> Mapping[str, Dtype]:
        """See Decoder: those of the events that pass."""
        return self._decoder.columns

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """See Decoder."""
        packed = Packed.of(values)
        read = self._of_filter.decode(packed)
        held = [self._filter.holds(table) for table, _ in read.parts]
        passed = _rows([rows[mask] for (_, rows), mask in zip(read.parts, held, strict=True)])
        others = _rows([rows[~mask] for (_, rows), mask in zip(read.parts, held, strict=True)])
        self._doubt(read, len(passed), len(others))
        try:
            decoded = self._decoder.decode(packed if len(passed) == len(packed) else packed.take(passed))
        except SchemaUnavailable as error:
            error.row = int(passed[error.row])
            raise
        return replace(Decoded.concat([(passed, decoded)], read.bad), filtered=others)

    def _doubt(self, read: Decoded, passed: int, others: int) -> None:
        """Warn once if none of many events passes: nothing else would tell of a condition that is written wrong."""
        self._is_plausible = self._is_plausible or passed > 0
        self._seen += others
        if self._is_plausible or self._seen < MANY:
            return
        self._is_plausible = True
        log.warning(
            "input.filter: none of the first %d events passes %s. %s. All are skipped. If that is wrong, stop the workers, "
            "correct the filter, and set the group's offsets back (`millstream docs filter`)",
            self._seen,
            self._filter,
            "; ".join(f"They have in `{field}`: {_examples(read.table[field])}" for field in read.table.columns),
        )


def filtered_decoder(pipeline: Pipeline, decoder: Decoder, store: SchemaStore, reader: Schema | None) -> Decoder:
    """The decoder behind the filter of the pipeline file, if it has one.

    Args:
        pipeline: the pipeline file's settings.
        decoder: of the events.
        store: where the schemas of events are.
        reader: the schema of the events; None: JSON without one.

    Raises:
        PlanError: no filter can be made of the fields: a line for each.
    """
    conditions = pipeline.input.filter
    if not conditions:
        return decoder
    place = pipeline.at("input", "filter")
    types = {parsed.field: "mixed" for parsed in conditions}
    try:
        of_filter = open_decoder(pipeline.input.format, store, reader, types)
    except ContradictingPaths as error:
        raise PlanError(f"{place}: {error}") from None
    problems = Problems()
    for field, found in of_filter.columns.items():
        with problems:
            if found not in _TYPES:
                raise PlanError(
                    f"{place}: expected a text, a number, or true or false, and field `{field}` of schema "
                    f"`{pipeline.input.schema_name}` is {found}. Name another field."
                )
    problems.raise_all()
    return FilteredDecoder(decoder, EventFilter(conditions), of_filter)


def _rows(parts: Sequence[Ints]) -> Ints:
    return np.sort(np.concatenate(parts))


def _texts(column: Column) -> npt.NDArray[np.object_]:
    """The values as texts, as routes compare them; empty for a null."""
    texts = np.array([*ids_of(column), ""], np.object_)[:-1]
    return texts if column.valid is None else np.where(column.valid, texts, "")


def _numbers(column: Column) -> npt.NDArray[np.float64]:
    """The values as numbers; NaN for a null, and for a value that is none."""
    converted = _NUMBER.convert(column, lambda: np.empty(0, np.int64))
    valid = converted.column.valid
    is_number = np.ones(len(column), np.bool_) if valid is None else valid
    if converted.wrong is not None:
        is_number = is_number & ~converted.wrong
    return np.where(is_number, as_numbers(converted.column).values, np.nan)


def _examples(column: Column) -> str:
    """Some of the values, for a message."""
    found = dict.fromkeys(_texts(column).tolist())
    some = [shown(text) if text else "nothing" for text in list(found)[:MAX_EXAMPLES]]
    return ", ".join([*some, "..."] if len(found) > MAX_EXAMPLES else some)
