"""Looks at sample events: which paths they have, and what values are there."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np

from millstream.consumers.scaffold.quoting import quoted
from millstream.inference.casts import Cast, EventType
from millstream.inference.conversions import as_texts
from millstream.schemas.arrays import Mask
from millstream.schemas.column import column_of
from millstream.schemas.errors import BadPathError
from millstream.schemas.mixed import text_of_value
from millstream.schemas.paths import Every, Step, parse_path, text_of
from millstream.schemas.times import parse_iso8601

MAX_DEPTH = 8  # records and lists within each other that are looked at
MAX_DISTINCT = 1000  # different texts of a path that are remembered
LONG_TEXT = 40  # characters on average, from which a text is prose rather than a category
FEW_TEXTS = 10  # different texts, up to which even a sample in which each stands once shows a vocabulary
MAX_FILE_NAME = 50  # characters of a vocabulary file's name in a hint, without its ending
MAX_HINTED = 6  # entries of a vocabulary that a hint lists
_INNER = re.compile(r"[.\[]")  # where a path goes on within an object or a list
_LARGEST = 10**308  # a double holds smaller numbers
_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_WHOLE = re.compile(r"-?[0-9]+", re.ASCII)
_DOUBLE_DIGITS = 15  # that a double holds in any case
_CODE_DIGITS = 4  # that all values have, from which digits are a code rather than a number
_FIRST_TIME = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
_LAST_TIME = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
_UNITS = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000}


@dataclass(slots=True)
class Found:
    """What the events have at a path."""

    path: str
    # Of values that aren't null: bool, int, float, text, large, odd.
    kinds: Counter[str] = field(default_factory=Counter)
    events: int = 0  # with a value that isn't null; a list may be empty
    distinct: Counter[Any] = field(default_factory=Counter)  # values, up to MAX_DISTINCT different ones
    lengths: Counter[int] = field(default_factory=Counter)  # items per event, of a list
    is_list: bool = False
    with_nulls: int = 0  # events in which some items of the list are null or absent

    @property
    def kind(self) -> str:
        """The type of most values: `number`, `int`, `bool`, `text`, `large` or `odd`; `mixed` if none is most of them."""
        [(group, count)] = self._groups().most_common(1) or [("mixed", 0)]
        if count * 2 <= self.kinds.total():
            return "mixed"
        return "int" if group == "number" and not self.kinds["float"] else group

    @property
    def differing(self) -> Mapping[str, int]:
        """The values of other types than `kind`: type -> how many; empty if `kind` is mixed."""
        own = "number" if self.kind == "int" else self.kind
        return {} if own == "mixed" else {name: count for name, count in self._groups().items() if name != own}

    @property
    def values(self) -> list[Any]:
        """The different values of the type `kind`, up to MAX_DISTINCT."""
        own = {"int", "float"} if self.is_numeric else {self.kind}
        return [value for value in self.distinct if self.kind == "mixed" or _kind_of(value) in own]

    def refused_by_any(self, to: EventType) -> list[Any] | None:
        """The different values of other types than most of which `type: any` makes no `to`; None: these are most or all."""
        if not (self.differing or self.kind == "mixed") or self.kinds["odd"]:
            return None
        if [*self.differing] == ["large"]:  # with most others numbers, doubles hold them as they are
            return None
        if self.kind == "text" and to in ("number", "int") and not self.is_numeric_text:
            return None
        own = {"int", "float"} if self.is_numeric else {self.kind}
        others = [value for value in self.distinct if _kind_of(value) not in own]
        texts = column_of([*map(text_of_value, others)], "string")  # as JSON without a schema is read
        wrong = Cast("any", to).convert(texts, lambda: np.empty(0, np.int64)).wrong
        refused = [] if wrong is None else [value for value, is_wrong in zip(others, wrong, strict=True) if is_wrong]
        return refused if 2 * len(refused) <= len(others) else None

    def _groups(self) -> Counter[str]:
        groups: Counter[str] = Counter()
        for kind, count in self.kinds.items():
            groups["number" if kind in {"int", "float"} else kind] += count
        return groups

    @property
    def is_numeric(self) -> bool:
        """Whether all values are numbers."""
        return self.kind in {"int", "number"}

    @property
    def is_whole(self) -> bool:
        """Whether a tensor of ints takes all values as they are: booleans, and whole numbers, also as texts of digits."""
        if self.kind == "text":
            return all(_WHOLE.fullmatch(text.strip()) for text in self.values)
        return self.kind == "bool" or (self.is_numeric and all(float(value).is_integer() for value in self.values))

    @property
    def is_numeric_text(self) -> bool:
        """Whether most values are texts that a worker can cast to numbers, and no codes."""
        return self._text_form()[0] == "number" and not self.is_code

    @property
    def is_code(self) -> bool:
        """Whether the values are digits that look like a code, such as a zip code.

        Some begin with 0 or are longer than a double holds, or all are as long.
        """
        texts = [*filter(None, self.values)]
        if self.kind != "text" or not all(map(_DIGITS.fullmatch, texts)):
            return False
        lengths = {*map(len, texts)}
        same_length = len(texts) > 1 and len(lengths) == 1 and min(lengths) >= _CODE_DIGITS
        # A number of more digits than a double holds is an ID.
        return same_length or any((text[0] == "0" and len(text) > 1) or len(text) > _DOUBLE_DIGITS for text in texts)

    @property
    def shows_vocabulary(self) -> bool:
        """Whether the texts seem to be all that there are: few, or each stands twice on average."""
        return len(self.distinct) <= FEW_TEXTS or 2 * len(self.distinct) <= self.distinct.total()

    @property
    def varies(self) -> bool:
        """Whether there are several different texts that aren't empty."""
        return len([text for text in self.categories if text]) > 1

    @property
    def categories(self) -> list[str]:
        """The different texts, sorted; of other values, those that a vocabulary with `type: any` has for them."""
        return sorted(set(map(text_of_value, self.values)))

    @property
    def malformed(self) -> list[str]:
        """The different texts that are no time, or no number, although most are; empty if most are neither."""
        form, fits = self._text_form()
        return [] if form is None else [text for text, fit in zip(self.values, fits, strict=True) if not fit]

    def _text_form(self) -> tuple[Literal["iso8601", "number"] | None, Mask]:
        """The form that most texts have, if a worker can read it; and which of `values` have it."""
        if self.kind != "text":
            return None, np.zeros(0, np.bool_)
        texts = column_of(self.values, "string")
        _, are_times = parse_iso8601(as_texts(texts).packed)
        wrong = Cast("text", "number").convert(texts, lambda: np.empty(0, np.int64)).wrong
        are_numbers = np.ones(len(texts), np.bool_) if wrong is None else ~wrong
        counts = np.array([self.distinct[text] for text in self.values])
        if 2 * counts[are_times].sum() > counts.sum():
            return "iso8601", are_times
        return ("number" if 2 * counts[are_numbers].sum() > counts.sum() else None), are_numbers

    @property
    def is_prose(self) -> bool:
        """Whether the values are long texts."""
        texts = self.values
        return self.kind == "text" and sum(map(len, texts)) > LONG_TEXT * len(texts)

    @property
    def time_format(self) -> str | None:
        """`iso8601` if most texts are times; `seconds`, `milliseconds` or `microseconds` if all numbers look like times."""
        if not self.values or self.is_list:
            return None
        if self.kind == "text":
            return "iso8601" if self._text_form()[0] == "iso8601" else None
        if not self.is_numeric:
            return None
        for name, unit in _UNITS.items():
            if all(_FIRST_TIME <= value / unit <= _LAST_TIME for value in self.values):
                return name
        return None

    @property
    def is_nested(self) -> bool:
        """Whether the values lie in lists within lists: a path names an item of these, but never all of them."""
        return self.path.count("[]") > 1

    @property
    def with_first(self) -> int:
        """How many events have a value; of a list, those with a first item."""
        return self.events - self.lengths[0]

    @property
    def as_feature(self) -> str:
        """The entry in config.yaml that makes a number of a time, a text, or an item of a list. Empty for other fields."""
        if time := self.time_format or ("iso8601" if self._text_form()[0] == "iso8601" else None):
            return f"{{field: {self.first_item if self.is_list else self.path}, time: {time}, as: hour}}"
        if self.is_numeric_text:
            type_ = "text" if self.refused_by_any("number") is None else "any"
            return f"{{field: {self.first_item}, type: {type_}}}"
        if self.kind == "text" and not self.is_prose:
            return self.as_category if self.varies and (self.shows_vocabulary or self.is_code) else ""
        return f"{{field: {self.first_item}}}" if self.is_list and self.events else ""

    @property
    def as_category(self) -> str:
        """The entry in config.yaml that makes the index of a text, of a list's first one if it is a list of texts."""
        is_short = self.shows_vocabulary and not self.is_code and len(self.categories) <= MAX_HINTED
        name = "".join(character if character.isalnum() else "_" for character in self.path).strip("_")
        entries = quoted(self.categories) if is_short else f"{name[:MAX_FILE_NAME]}.txt"
        others = ", type: any" if self.kind == "mixed" else ""
        return f"{{field: {self.first_item}{others}, vocabulary: {entries}}}"

    @property
    def first_item(self) -> str:
        """The path, of the first item if it leads to a list, as YAML's flow style has it."""
        return quoted(self.path.replace("[]", "[0]"))


def survey(events: Sequence[Mapping[str, Any]]) -> dict[str, Found]:
    """Every path of the events to a value or to a list of values, in the order in which the fullest event has them.

    Values of lists within lists are at a path with several `[]`, see `Found.is_nested`.
    """
    found: dict[str, Found] = {}
    empty: Counter[str] = Counter()  # path of a list -> events in which it is empty
    for event in sorted(events, key=lambda event: sum(value != [] for _, value in _values((), event, 0)), reverse=True):
        seen: set[str] = set()
        for steps, value in _values((), event, 0):
            if not _is_path(steps):
                continue
            if value == []:
                empty[text_of(steps)] += 1
                continue
            one = found.setdefault(text_of(steps), Found(text_of(steps)))
            if isinstance(value, list):
                one.is_list = True
                one.lengths[len(value)] += 1
                one.with_nulls += None in value
            for each in value if isinstance(value, list) else [value]:
                if each is not None:
                    _note(one, each)
            if value is not None and one.path not in seen:
                one.events += 1
                seen.add(one.path)
    _count_empty(found, empty)
    inner = {path[: at.start()] for path in found for at in _INNER.finditer(path)}
    # Where some events have null in place of an object, the fields in it say what it holds.
    return {path: one for path, one in found.items() if one.events or path not in inner}


def _count_empty(found: Mapping[str, Found], empty: Mapping[str, int]) -> None:
    """Count the empty lists as values. They don't show what their items are, but other events do."""
    for one in found.values():
        if one.is_list and (count := empty.get(one.path[: one.path.find("[]") + 2], 0)):
            one.events += count
            one.lengths[0] += count


def _note(found: Found, value: Any) -> None:
    kind = _kind_of(value)
    found.kinds[kind] += 1
    if kind == "odd":
        return
    if value in found.distinct or len(found.distinct) < MAX_DISTINCT:
        found.distinct[value] += 1


def _kind_of(value: Any) -> str:
    """`large`: a whole number of more than 64 bits, which only a column of doubles can hold; `odd`: no column can."""
    match value:
        case bool():
            return "bool"
        case int():
            if -(2**63) <= value < 2**63:
                return "int"
            return "large" if abs(value) < _LARGEST else "odd"
        case float():
            return "float"
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a character
        return "odd"
    return "text"


def _values(steps: tuple[Step, ...], value: Any, depth: int) -> Iterator[tuple[tuple[Step, ...], Any]]:
    """The values within a value, each with its path. A list of simple values is one value."""
    if depth >= MAX_DEPTH and isinstance(value, Mapping | list):
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _values((*steps, name), inner, depth + 1)
    elif isinstance(value, list):
        yield from _of_items(steps, value, depth)
    elif steps:
        yield steps, value


def _of_items(steps: tuple[Step, ...], items: list[Any], depth: int) -> Iterator[tuple[tuple[Step, ...], Any]]:
    if not any(isinstance(item, Mapping | list) for item in items):
        yield (*steps, Every.ITEM), items
        return
    gathered: dict[tuple[Step, ...], list[Any]] = {}
    for item in items:
        if item is None:  # says nothing of what the others hold
            continue
        for inner, value in _values((*steps, Every.ITEM), item, depth + 1):
            gathered.setdefault(inner, []).extend(value if isinstance(value, list) else [value])
    for inner, values in gathered.items():
        is_nested = inner[len(steps) + 1 :].count(Every.ITEM) > 0
        yield inner, values if is_nested else values + [None] * (len(items) - len(values))


def _is_path(steps: Sequence[Step]) -> bool:
    """Whether a path can have these steps: some keys have no form in a path."""
    try:
        parse_path(text_of(steps))
    except BadPathError:
        return False
    return True
