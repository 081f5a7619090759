"""Leaves out events of other pipelines (`input.filter`), before anything else of them is read."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.consumers.errors import PlanError
from millstream.inference.casts import Cast
from millstream.inference.combined.routing import Condition
from millstream.inference.conversions import as_numbers
from millstream.pipeline.conditions import ParsedCondition
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.column import Column, StringColumn
from millstream.schemas.decoded import Decoded, Decoder
from millstream.schemas.decoding import open_decoder
from millstream.schemas.dtypes import Dtype
from millstream.schemas.errors import ContradictingPaths, SchemaUnavailable
from millstream.schemas.ids import ids_of
from millstream.schemas.json.mismatch import NO_LISTS
from millstream.schemas.packed import Packed
from millstream.schemas.store import Schema, SchemaStore
from millstream.schemas.table import Table
from millstream.schemas.wording import shown

log = logging.getLogger(__name__)

MANY = 1000  # events in a row, from which on a filter that none of them passes looks wrong
RARE = 10  # times as many events in a row as ever before look wrong, too
MAX_EXAMPLES = 5  # values that the warning about it names
_OF_TEXT = Cast("text", "number")
_TYPES = ("int32", "int64", "float32", "float64", "boolean", "string", "mixed")


class Split(NamedTuple):
    """Values that a filter has read."""

    passed: Ints  # rows of the values that pass, ascending
    others: Ints  # rows of those that don't, ascending
    read: Decoded  # the fields of the conditions, and the values in which they can't be read


class EventFilter(NamedTuple):
    """Conditions that must all hold for an event."""

    conditions: tuple[ParsedCondition, ...]
    decoder: Decoder  # of the conditions' fields

    def split(self, values: Packed) -> Split:
        """Read the fields, and tell for which values all conditions hold. Raises SchemaUnavailable, as decoders do."""
        read = self.decoder.decode(values)
        held = [(rows, self._holds(table)) for table, rows in read.parts]
        passed, others = ([rows[mask == wanted] for rows, mask in held] for wanted in (True, False))
        return Split(np.sort(np.concatenate(passed)), np.sort(np.concatenate(others)), read)

    def examples(self, read: Decoded) -> str:
        """Some of the values of the conditions' fields, in a sentence."""
        table = read.table
        return "; ".join(f"the events have in `{field}`: {_examples(table[field])}" for field in table.columns)

    def _holds(self, table: Table) -> Mask:
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

    def __init__(self, decoder: Decoder, event_filter: EventFilter) -> None:
        """Args:
        decoder: of the events that pass.
        event_filter: decides which these are.
        """
        self._decoder = decoder
        self._filter = event_filter
        self._skipped = 0  # events since the last one that passed
        self._usual = 0  # most events between two that passed
        self._is_told = False  # whether the warning about those is written

    @property
    def columns(self) -> Mapping[str, Dtype]:
        """See Decoder: those of the events that pass."""
        return self._decoder.columns

    def decode(self, values: Sequence[bytes]) -> Decoded:
        """See Decoder."""
        packed = Packed.of(values)
        passed, others, read = self._filter.split(packed)
        self._doubt(read, passed, others)
        try:
            decoded = self._decoder.decode(packed if len(passed) == len(packed) else packed.take(passed))
        except SchemaUnavailable as error:
            error.row = int(passed[error.row])
            raise
        # No filter compares lists, so the advice on them is of no use here.
        bad = [record._replace(error=record.error.replace(NO_LISTS, "")) for record in read.bad]
        return replace(Decoded.concat([(passed, decoded)], bad), filtered=others)

    def _doubt(self, read: Decoded, passed: Ints, others: Ints) -> None:
        """Warn if none of many events passes: nothing else tells of a wrong condition, or of a producer's new names."""
        if len(passed):
            between = np.diff(others.searchsorted(passed), prepend=-self._skipped)
            self._usual = max(self._usual, int(between.max()))
            self._skipped, self._is_told = int(len(others) - others.searchsorted(passed[-1])), False
        else:
            self._skipped += len(others)
        if self._is_told or self._skipped < max(MANY, RARE * self._usual):
            return
        self._is_told = True
        log.warning(
            "input.filter: none of the last %d events passes %s; %s. All are skipped. If that is wrong, correct the filter. "
            "`millstream docs filter` says how to predict what it has left out",
            self._skipped,
            self._filter,
            self._filter.examples(read),
        )


def filtered_decoder(pipeline: Pipeline, decoder: Decoder, store: SchemaStore, reader: Schema | None) -> Decoder:
    """The decoder behind the filter of the pipeline file, if it has one.

    Args:
        pipeline: the pipeline file's settings.
        decoder: of the events.
        store: where the schemas of events are.
        reader: the schema of the events; None: JSON without one.

    Raises:
        PlanError: no filter can be made of the fields.
    """
    conditions = pipeline.input.filter
    if not conditions:
        return decoder
    try:
        of_filter = open_decoder(pipeline.input.format, store, reader, types_of(conditions))
        return FilteredDecoder(decoder, open_filter(conditions, of_filter))
    except (ContradictingPaths, ValueError) as error:
        raise PlanError(f"{pipeline.at('input', 'filter')}: {error}") from None


def open_filter(conditions: tuple[ParsedCondition, ...], decoder: Decoder) -> EventFilter:
    """The filter, given the decoder of its fields. Raises ValueError: a field has no values that its condition can compare."""
    for parsed in conditions:
        found = decoder.columns[parsed.field]
        if found not in _TYPES:
            raise ValueError(
                f"expected a field with a text, a number, or true or false, found `{parsed.field}`, which is {found}. Name "
                "another field."
            )
        if found == "boolean" and isinstance(parsed.compared[0], float):
            raise ValueError(
                f"`{parsed.text}`: expected true or false, because `{parsed.field}` is a boolean, found a number. Write "
                f"`{parsed.field} == true`."
            )
    return EventFilter(conditions, decoder)


def types_of(conditions: Sequence[ParsedCondition]) -> dict[str, str]:
    """The fields of the conditions, with the type of each in JSON without a schema: it may differ between events."""
    return dict.fromkeys((parsed.field for parsed in conditions), "mixed")


def _texts(column: Column) -> npt.NDArray[np.object_]:
    """The values as texts, as routes compare them; empty for a null."""
    texts = np.array([*ids_of(column), ""], np.object_)[:-1]
    return texts if column.valid is None else np.where(column.valid, texts, "")


def _numbers(column: Column) -> npt.NDArray[np.float64]:
    """The values as numbers, also those of texts; NaN for a null, and for a text that is no number."""
    wrong: Mask | None = None
    if isinstance(column, StringColumn):
        column, wrong, _ = _OF_TEXT.convert(column, lambda: np.empty(0, np.int64))
    numbers = as_numbers(column)
    is_number = np.ones(len(numbers), np.bool_) if numbers.valid is None else numbers.valid
    if wrong is not None:
        is_number = is_number & ~wrong
    return np.where(is_number, numbers.values, np.nan)


def _examples(column: Column) -> str:
    """Some of the values, for a message."""
    found = dict.fromkeys(_texts(column).tolist())
    some = [shown(text) if text else "nothing" for text in list(found)[:MAX_EXAMPLES]]
    return ", ".join([*some, "..."] if len(found) > MAX_EXAMPLES else some)
