"""Counts the values that stand in place of the events' own. Warns if nearly all values of a field are replaced, or many more.

A field that a producer renames looks like one that is absent. With `missing` beside it, no event is rejected, and predictions
become wrong silently. So it is for values that no entry of a vocabulary is, with `unknown`; and events without the field of their
time or cost get another time or cost. Predictions have null in place of a field of `output.include` that is absent.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, Literal, NamedTuple

from millstream.consumers.decode.named_fields import included_at
from millstream.consumers.observability.metric import Metric
from millstream.consumers.observability.metrics import (
    MISSING_COSTS,
    MISSING_EVENT_TIMES,
    MISSING_INCLUDED,
    MISSING_VALUES,
    UNKNOWN_VALUES,
    Metrics,
)
from millstream.consumers.observability.seldom import LOG_INTERVAL
from millstream.inference.conversions import Conversion, Missing
from millstream.inference.replaced import NONE_REPLACED, Replaced, Replacements, Source
from millstream.inference.repository import ModelVersion
from millstream.inference.vocabulary import Vocabulary
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.printable import printable
from millstream.schemas.lookup_columns import looked_up
from millstream.schemas.wording import first_of, shown

log = logging.getLogger(__name__)

# Events at least, from which the worker tells whether nearly all values are replaced. A field that a tenth of the events have is
# in such a window for sure.
WINDOW: Final = 200
FEWEST_VALUES: Final = 100  # of a field in a window: one of a vocabulary may be absent in most events, a list empty
NEARLY_ALL: Final = 0.99  # of the values of a window
MOST: Final = 0.9  # fewer than this, and the field is there again
# A backlog of several partitions mixes the events before a change with those after it. So no window may have only the latter.
ENOUGH_BEFORE: Final = 1_000  # values that tell how many of a field are usually replaced
SELDOM: Final = 0.01  # of the values before
OFTEN: Final = 0.25  # of the values of a window
_METRICS: Mapping[str, Metric] = {
    "missing": MISSING_VALUES,
    "unknown": UNKNOWN_VALUES,
    "event_time": MISSING_EVENT_TIMES,
    "cost": MISSING_COSTS,
    "include": MISSING_INCLUDED,
}
MIN_JOINED: Final = 2  # fields of look-ups that share a warning
MAX_NAMED: Final = 5  # of them that it names
_RENAMED: Final = "millstream docs models#a-field-that-is-renamed"


class Replaceable(NamedTuple):
    """A field whose values may be replaced, in words."""

    field: str  # the path, or the field of a look-up
    instead: str  # what stands in place of the values, and why
    advice: str
    labels: tuple[str, ...]  # of the metric

    def text(self, source: Source, replaced: Replaced, of: str, before: str = "") -> str:
        """Says what was replaced. `of`: how many values there were, such as `the last 1,000`; `before`: what was usual."""
        found = f"{replaced.number:,} of {of}"
        if source.option != "unknown":
            return f"{self.field} was absent or null in {found} events{before}; {self.instead}. {self.advice}"
        examples = ", ".join(map(shown, replaced.examples))
        return (
            f"{self.field}: {found} values are no entry of the vocabulary{before}, such as {examples}; {self.instead}. "
            f"{self.advice}"
        )


def replaceable_in(model: ModelVersion) -> dict[Source, Replaceable]:
    """What the model's mapping replaces."""
    found: dict[Source, Replaceable] = {}
    for entry in model.signature.inputs:
        place = entry.mapped_at or model.place_at(entry.line)
        for column, conversion in entry.converted_fields:
            for option, instead, advice in _options(column, conversion):
                gets = f"{instead} instead"
                if option == "missing" and entry.max_length is not None and conversion.splitter is None:
                    gets = f"{instead} instead of an item, and no items instead of a list"
                reason = f"the model gets {gets}, as `{option}` says in {place}"
                words = Replaceable(_named(column, conversion), reason, advice, (model.name, column))
                found.setdefault(Source(column, option, conversion.fallback), words)
    return found


def _named(column: str, conversion: Conversion) -> str:
    """As the subject of a sentence. Not as `with_fallback` names it: most events lack one of "amount or price"."""
    return column if conversion.fallback is None else f"{column} (with the fallback {conversion.fallback})"


def replaceable_own(pipeline: Pipeline) -> dict[Source, Replaceable]:
    """What Millstream itself replaces, of the fields that the pipeline file names."""
    found: dict[Source, Replaceable] = {}
    if (field := pipeline.input.event_time) is not None:
        instead = "the record's timestamp is the event's time instead"
        found[Source(field, "event_time")] = _own(field, instead, pipeline.at("input", "event_time"))
    if (field := pipeline.batch.cost) is not None:
        instead = "the event's cost is 0 instead, so that `batch.max_cost` doesn't limit it"
        found[Source(field, "cost")] = _own(field, instead, pipeline.at("batch", "cost"))
    return found


def replaceable_included(pipeline: Pipeline, model: ModelVersion) -> dict[Source, Replaceable]:
    """The fields of `output.include` that nothing else reads: other uses reject the event or report the field."""
    others = {pipeline.input.event_id, pipeline.input.event_time, pipeline.batch.cost, *model.signature.fields}
    instead = "their predictions have null in its place"
    return {
        Source(field, "include"): _own(field, instead, pipeline.at(*included_at(pipeline, field)), (field,))
        for field in pipeline.output.include
        if field not in others
    }


def _own(field: str, instead: str, place: str, labels: tuple[str, ...] = ()) -> Replaceable:
    return Replaceable(
        field, instead, f"If the producer renamed it, write its new name ({place}; `{_RENAMED}`).", labels
    )


def _options(column: str, conversion: Conversion) -> Iterator[tuple[Literal["missing", "unknown"], str, str]]:
    """The options that replace values: each with what the model gets, and what to do if it gets nothing else."""
    if conversion.is_mapped and (missing := conversion.in_place_of_null) is not None:
        advice = "If the store renamed it, write its new name in the mapping."
        if looked_up(column) is None:
            advice = f"If the producer renamed it, write its new name in the mapping (`{_RENAMED}`)."
        yield "missing", _written(missing), advice
    vocabulary = conversion.converter
    if isinstance(vocabulary, Vocabulary) and vocabulary.unknown is not None:
        listed = f"If it is not the one that the model was trained with, correct {vocabulary.source}."
        instead = f"the index {vocabulary.unknown}"
        if vocabulary.unknown == "missing" and conversion.missing is not None:
            instead = _written(conversion.missing)
        yield "unknown", instead, listed


def _written(missing: Missing) -> str:
    """As in config.yaml."""
    return f'"{missing}"' if isinstance(missing, str) else str(missing).lower()


@dataclass(slots=True)
class _Watched:
    """How many values of a source were replaced so far, and what was said of it."""

    number: int = 0
    of: int = 0
    is_new: bool = True  # no window had enough of its values
    is_replaced: bool = False  # nearly all were replaced, since the last window with others
    has_risen: bool = False  # more than usual were replaced, since the last window in which few were
    said: float = -inf  # when it was warned of

    def judge(self, number: int, of: int, now: float) -> str | None:
        """Take note of a window of which `number` of `of` values were replaced.

        Returns None if there is nothing to say, else what was usual before, to be said behind the window's number.
        """
        usual, self.number, self.of = (self.number, self.of), self.number + number, self.of + of
        if of < FEWEST_VALUES:
            return None
        was_new, self.is_new = self.is_new, False
        self.is_replaced &= number >= MOST * of
        self.has_risen &= number >= SELDOM * of
        is_due = now - self.said >= LOG_INTERVAL
        if number >= NEARLY_ALL * of:
            # A field that only few events have is no change: the first window with enough values must have none.
            self.is_replaced |= was_new and number < of
            if self.is_replaced or not is_due:
                return None
            self.is_replaced, before = True, ""
        elif self.has_risen or not is_due or number < OFTEN * of or not _is_seldom(*usual):
            return None
        else:
            before = f", before in {usual[0]:,} of {usual[1]:,}"
        self.has_risen, self.said = True, now
        return before


def _is_seldom(number: int, of: int) -> bool:
    return of >= ENOUGH_BEFORE and number < SELDOM * of


class ReplacedValues:
    """Counts what is replaced. One thread calls it."""

    def __init__(
        self, sources: Mapping[Source, Replaceable], metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Args:
        sources: what may be replaced.
        metrics: where to count.
        clock: seconds.
        """
        self._sources = sources
        self._metrics = metrics
        self._clock = clock
        self._window = Replacements()
        self._watched = {source: _Watched() for source in sources}
        for source in sources:
            self._count(source, 0)

    def note(self, new: Replacements) -> None:
        """Note what was replaced in some events."""
        for source, replaced in new.sources.items():
            if replaced.number:
                self._count(source, replaced.number)
        if new.events >= WINDOW:  # the few events before may be those before a change
            self._end_window()
        self._window = self._window + new if self._window.events else new
        if self._window.events >= WINDOW:
            self._end_window()

    def _count(self, source: Source, values: int) -> None:
        self._metrics.count(_METRICS[source.option], values, *self._sources[source].labels)

    def _end_window(self) -> None:
        window, self._window = self._window, Replacements()
        if not window.events:
            return
        warnings: dict[Source, str] = {}
        for source, watched in self._watched.items():
            replaced, of = window.sources.get(source, NONE_REPLACED), window.out_of(source)
            before = watched.judge(replaced.number, of, self._clock())
            if before is not None:
                text = self._sources[source].text(source, replaced, f"the last {of:,}", before)
                warnings[source] = printable(text)
        _warn(warnings)


def _warn(warnings: Mapping[Source, str]) -> None:
    """Warn of several fields of look-ups in one line: while the store is away, all of them are absent."""
    of_lookups = [each.field for each in warnings if each.option == "missing" and looked_up(each.field) is not None]
    for source, warning in warnings.items():
        if len(of_lookups) < MIN_JOINED or source.field not in of_lookups:
            log.warning("%s", warning)
    if len(of_lookups) >= MIN_JOINED:
        log.warning(
            "%s were absent or null in nearly all of the last events; the model gets what `missing` says instead. Unless the "
            "store is away, look whether it renamed them, or lacks the entries",
            printable(first_of(of_lookups, MAX_NAMED)),
        )
