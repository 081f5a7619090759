"""The counts that a worker logs at its end, and that `millstream run` adds up."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from shlex import quote
from typing import TYPE_CHECKING, Self

from prometheus_client.parser import text_string_to_metric_families

from millstream.consumers.observability import metrics as m

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from millstream.inference.replaced import Replacements


_PLAIN = {
    "events read": m.RECORDS_READ,
    "predicted": m.PREDICTIONS,
    "tombstones": m.TOMBSTONES,
    "compared by shadows": m.COMPARISONS,
    "comparisons with an error of the shadow": m.SHADOW_FAILED,
    "missing event times": m.MISSING_EVENT_TIMES,
    "missing costs": m.MISSING_COSTS,
}
"""Counts without reasons."""
_BY_REASON = {"dead letters": m.DEAD_LETTERS, "skipped": m.SKIPPED, "not compared by shadows": m.SHADOW_SKIPPED}
_BY_FIELD = {
    "missing included fields": m.MISSING_INCLUDED,
    "missing values filled": m.MISSING_VALUES,
    "values outside a vocabulary": m.UNKNOWN_VALUES,
}
"""Counts with a field in place of a reason."""
_OF_OPTION = {"missing": "missing values filled", "unknown": "values outside a vocabulary"}
"""What the options of a model's input count."""
_UNDONE = "read again or left to other workers"
"""Events whose result was not written: an abort or a rebalance dropped it, or the worker ended before it."""
_LEFT = "not finished"
"""The same of a worker that also read events below the group's offset: no worker reads these again."""
_RESULTS = ("predicted", "dead letters", "skipped")
_ORDER = (
    "events read",
    *_RESULTS,
    _UNDONE,
    _LEFT,
    "tombstones",
    "compared by shadows",
    "comparisons with an error of the shadow",
    "not compared by shadows",
    "missing event times",
    "missing costs",
    *_BY_FIELD,
)
_ONE = {
    "events read": "event read",
    "dead letters": "dead letter",
    "tombstones": "tombstone",
    "comparisons with an error of the shadow": "comparison with an error of the shadow",
    "missing event times": "missing event time",
    "missing costs": "missing cost",
    "missing values filled": "missing value filled",
    "missing included fields": "missing included field",
    "values outside a vocabulary": "value outside a vocabulary",
}
"""The words for a single one."""
_OF_ONE = {one: several for several, one in _ONE.items()}
_ALWAYS = _ORDER[:2]  # shown if they are 0, too
_START = "totals: "
_LOGGED = f"millstream: {_START}"  # as the command's log writes it, behind the time and the level
_COUNT = re.compile(
    r"(\d[\d,]*) ({})(?: \(([^)]*)\))?".format("|".join(sorted((*_ORDER, *_OF_ONE), key=len, reverse=True)))
)
_ALL = re.compile(rf"(?:{_COUNT.pattern})(?:, (?:{_COUNT.pattern}))*")
_REASON = re.compile(r"(\d[\d,]*) ([^\s,()]+)")
_NO_REASON = re.compile(r"[\s,()]")  # characters that paths may have, but a reason may not
_MAX_REASONS = 12  # that a line names
_OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of one worker, or of several."""

    counts: Counter[tuple[str, str]] = field(
        default_factory=Counter
    )  # (a word of `_ORDER`, the reason or "") -> events

    @classmethod
    def of_metrics(cls, text: str, *, predicts: bool = True, read_below: bool = False) -> Self:
        """Args:
        text: a worker's metrics, in Prometheus's text format.
        predicts: it is not one that only runs a shadow.
        read_below: it ended because it had read events below the group's offset.
        """
        exact: defaultdict[tuple[str, str], float] = defaultdict(float)
        words = {metric.name: word for word, metric in (_PLAIN | _BY_REASON | _BY_FIELD).items()}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if (word := words.get(sample.name)) is not None:
                    exact[word, _reason(word, sample.labels)] += sample.value
        exact["events read", ""] -= exact["tombstones", ""]  # the metric counts records, and a tombstone is no event
        exact["compared by shadows", ""] -= exact["not compared by shadows", "undelivered"]
        if predicts:
            results = sum(count for (word, _), count in exact.items() if word in _RESULTS)
            exact[_LEFT if read_below else _UNDONE, ""] = max(exact["events read", ""] - results, 0)
        return cls(Counter({key: round(count) for key, count in exact.items()}))  # those of shadows are estimates

    @classmethod
    def of_line(cls, line: str) -> Self | None:
        """From a log line that ends with `str(totals)`; None if it is another line."""
        _, found, text = line.partition(_LOGGED)
        if not found or not _ALL.fullmatch(text.strip()):
            return None
        counts: Counter[tuple[str, str]] = Counter()
        for count, written, reasons in _COUNT.findall(text):
            word = _OF_ONE.get(written, written)
            by_reason = {(word, reason): _number(part) for part, reason in _REASON.findall(reasons)}
            counts.update(by_reason or {(word, ""): _number(count)})
        return cls(counts)

    @classmethod
    def of_model_inputs(cls, replaced: Replacements) -> Self:
        """The values that the model got in place of the events' own."""
        counts: Counter[tuple[str, str]] = Counter()
        for source, values in replaced.sources.items():
            if (word := _OF_OPTION.get(source.option)) is not None:
                counts[word, _reason(word, {"field": source.field})] += values.number
        return cls(counts)

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.counts + other.counts)

    def __str__(self) -> str:
        return _START + ", ".join(filter(None, map(self._part, _ORDER)))

    def replaced(self) -> list[str]:
        """The counts of values that the model got in place of the events' own, as in the line."""
        return [part for word in _OF_OPTION.values() if (part := self._part(word))]

    def _part(self, word: str) -> str:
        reasons = Counter({reason: count for (of, reason), count in self.counts.items() if of == word and count})
        return counted_by_reason(word, reasons) if reasons or word in _ALWAYS else ""

    def advice(self, pipeline: Path) -> str | None:
        """The command that shows the dead letters, in a sentence; None: there are none. `pipeline`: its file."""
        if not any(count for (word, _), count in self.counts.items() if word == "dead letters"):
            return None
        return f"look at the dead letters: millstream dead-letters list {quote(str(pipeline))}"


def counted_by_reason(word: str, reasons: Counter[str]) -> str:
    """For example "20 dead letters (12 unfit, 8 undecodable)". The reason "" is not named."""
    ordered = [(reason, count) for reason, count in reasons.most_common() if reason]
    if len(ordered) > _MAX_REASONS:
        ordered[_MAX_REASONS - 1 :] = [(_OTHERS, sum(count for _, count in ordered[_MAX_REASONS - 1 :]))]
    named = ", ".join(f"{count:,} {reason}" for reason, count in ordered)
    counted = f"1 {_ONE.get(word, word)}" if reasons.total() == 1 else f"{reasons.total():,} {word}"
    return f"{counted}{f' ({named})' if named else ''}"


def _reason(word: str, labels: Mapping[str, str]) -> str:
    if word in _BY_FIELD:
        return _NO_REASON.sub("_", labels["field"])
    return labels["reason"] if word in _BY_REASON else ""


def _number(text: str) -> int:
    """1,234 as an integer."""
    return int(text.replace(",", ""))


def total(several: Iterable[Totals]) -> Totals:
    """The sum."""
    return reduce(add, several, Totals())
