"""Leaves out events of other pipelines (`input.filter`), before anything else of them is read."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from millstream.consumers.decode.named_fields import VALUE_TYPES
from millstream.consumers.errors import PlanError
from millstream.inference.casts import Cast
from millstream.inference.combined.routing import Condition
from millstream.inference.conversions import as_numbers
from millstream.pipeline.conditions import ParsedCondition, joined
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.arrays import Ints, Mask
from millstream.schemas.column import Column, StringColumn
from millstream.schemas.decoded import BadRecord, Decoder, rows_named
from millstream.schemas.decoding import open_decoder
from millstream.schemas.errors import BadFieldError
from millstream.schemas.ids import ids_of
from millstream.schemas.json.mismatch import NO_LISTS
from millstream.schemas.packed import Packed
from millstream.schemas.store import Schema, SchemaStore
from millstream.schemas.wording import shown
from millstream.schemas.written_numbers import number_of

log = logging.getLogger(__name__)

MANY = 1000  # events of a window, at least: what passes is looked at in windows
RARE = 0.01  # a lower share of events that pass looks wrong at the start
DROP = 25  # later, so many times fewer than usual do
MAX_EXAMPLES = 5  # values that the warning about it names
_OF_TEXT = Cast("text", "number")


class Split(NamedTuple):
    """Values that a filter has looked at."""

    values: Packed
    passed: Ints  # rows of the values that pass, ascending
    left_out: Ints  # rows of those that don't, ascending
    bad: list[BadRecord]  # those of which this can't be told, ascending by row


class EventFilter:
    """Conditions that must all hold for an event.

    They are looked at in their order. So a field is read only in events for which the conditions before it hold. In events of
    other kinds, it may be anything.
    """

    def __init__(self, conditions: Sequence[ParsedCondition], decoders: Mapping[str, Decoder]) -> None:
        """Args:
        conditions: on fields of the event.
        decoders: of each field.
        """
        self._steps = [(each.field, Condition(each.field, each.operator, each.compared)) for each in conditions]
        self._decoders = decoders
        self._text = joined(conditions)
        self._seen = self._passed = 0  # events in the present window
        self._usual: float | None = None  # the share that passed in former windows; None: hardly any event did
        self._is_told = False  # whether the warning about this window, or one before it, is written

    def split(self, values: Packed) -> Split:
        """Read the fields, and tell for which values all conditions hold. Raises SchemaUnavailable, as decoders do."""
        rows, bad = np.arange(len(values)), list[BadRecord]()
        for field, condition in self._steps:
            with rows_named(rows):
                read = self._decoders[field].decode(values if len(rows) == len(values) else values.take(rows))
            # No filter compares lists, so the advice on them is of no use here.
            bad += [BadRecord(int(rows[row]), why, error.replace(NO_LISTS, "")) for row, why, error in read.bad]
            held = [part[_holds(condition, table[field])] for table, part in read.parts]
            rows = rows[np.sort(np.concatenate(held))]
        others = np.ones(len(values), np.bool_)
        others[rows] = False
        others[[record.row for record in bad]] = False
        return Split(values, rows, np.flatnonzero(others), sorted(bad))

    def examples(self, values: Packed) -> str:
        """Some of what values have in the conditions' fields, in a sentence."""
        tables = {field: decoder.decode(values).table for field, decoder in self._decoders.items()}
        return "; ".join(f"the events have in `{field}`: {_examples(table[field])}" for field, table in tables.items())

    def note(self, split: Split) -> None:
        """Warn if hardly any event passes: nothing else tells of a wrong condition, or of a producer's new names."""
        self._passed += len(split.passed)
        self._seen += len(split.passed) + len(split.left_out)
        if self._seen < MANY:
            return
        share, passed, seen = self._passed / self._seen, self._passed, self._seen
        self._seen = self._passed = 0
        is_odd = share < (RARE if self._usual is None else self._usual / DROP)
        if not is_odd:
            self._usual = share if self._usual is None else (self._usual + share) / 2
        elif not self._is_told:
            before = "" if self._usual is None else f", and before it were {self._usual:.0%}"
            log.warning(
                "input.filter: %d of the last %d events pass %s%s; %s. The others are skipped. If that is wrong, correct the "
                "filter. `millstream docs filter` says how to predict what it has left out",
                *(passed, seen, self, before, self.examples(split.values.take(split.left_out))),
            )
        self._is_told = is_odd

    def __str__(self) -> str:
        return self._text


def filter_of(pipeline: Pipeline, store: SchemaStore, reader: Schema | None) -> EventFilter | None:
    """The filter of the pipeline file; None: it has none.

    Args:
        pipeline: the pipeline file's settings.
        store: where the schemas of events are.
        reader: the schema of the events; None: JSON without one.

    Raises:
        PlanError: no filter can be made of the fields.
    """
    conditions = pipeline.input.filter
    if not conditions:
        return None
    try:
        return open_filter(conditions, partial(open_decoder, pipeline.input.format, store, reader))
    except (BadFieldError, ValueError) as error:
        raise PlanError(f"{pipeline.at('input', 'filter')}: {error}") from None


def open_filter(
    conditions: Sequence[ParsedCondition], open_types: Callable[[Mapping[str, str]], Decoder]
) -> EventFilter:
    """The filter.

    Args:
        conditions: on fields of the event.
        open_types: opens the decoder of fields, given their types in JSON without a schema.

    Raises:
        ValueError: a field has no values that its condition can compare.
        BadFieldError: there is no such field, or no column of it.
    """
    types = dict.fromkeys((parsed.field for parsed in conditions), "mixed")  # another one in each event
    open_types(types)  # all together, because it finds paths that contradict each other
    decoders = {field: open_types({field: type_}) for field, type_ in types.items()}
    for parsed in conditions:
        found = decoders[parsed.field].columns[parsed.field]
        if found not in VALUE_TYPES:
            raise ValueError(
                f"expected a field with a text, a number, or true or false, found `{parsed.field}`, which is {found}. Name "
                "another field."
            )
        if found == "boolean" and not {*parsed.compared} <= {"true", "false"}:
            raise ValueError(f"`{parsed.text}`: expected true or false, because `{parsed.field}` is a boolean.")
        if found not in ("boolean", "string", "mixed") and any(map(_is_no_number, parsed.compared)):
            raise ValueError(f"`{parsed.text}`: expected a number, because `{parsed.field}` is {found}.")
    return EventFilter(conditions, decoders)


def _is_no_number(constant: str | float) -> bool:
    return isinstance(constant, str) and number_of(constant) is None


def _holds(condition: Condition, column: Column) -> Mask:
    as_values = _texts if isinstance(condition.constants[0], str) else _numbers
    return condition.holds({condition.tensor: as_values(column)})


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
