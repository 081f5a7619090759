"""Guesses which event fields fill a model's inputs, and says what was guessed. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from millstream.consumers.scaffold.model_file import ModelFile, ModelInput
from millstream.consumers.scaffold.survey import Found
from millstream.inference.mapping import PLACEHOLDER
from millstream.schemas.wording import counted

ID_NAMES = ("event_id", "id", "uuid", "key")  # in order of preference; and names that end in _id
MAX_HINTS = 5  # fields that are named as possible ones
MAX_FIELDS = 2000  # that fill an input; a larger one is filled by a list
TIME_NAMES = (
    "event_time",
    "timestamp",
    "ts",
    "time",
    "occurred_at",
    "created_at",
)  # and names that end in _at or _time
_TIME_PARTS = {
    **{name: name for name in ("hour", "weekday", "day", "month")},
    "hourofday": "hour",
    "dayofweek": "weekday",
    "dayofmonth": "day",
}
"""Names of inputs, without case and separators -> the part of a time that they have, see `inference.times`."""
_MISSING = {"float16": "nan", "float32": "nan", "float64": "nan", "int32": 0, "int64": 0, "bool": False, "string": ""}
"""Tensor's type -> the guess for values that are missing."""
_TOLD = {
    "nan": "; nan is right only for a model that takes missing values",
    None: "; `missing` can name the index for these",
}


@dataclass(frozen=True, slots=True)
class FieldGuess:
    """An event field that fills an element of an input."""

    options: dict[str, Any]  # as in config.yaml; the first is `field`
    why: str = ""  # what was guessed; empty: nothing


@dataclass(frozen=True, slots=True)
class InputGuess:
    """How an input is filled."""

    tensor: str
    dtype: str
    fields: list[FieldGuess]
    options: dict[str, Any] = field(default_factory=dict)  # shape, max_length
    is_list: bool = False  # one list field fills it
    why: str = ""


def event_id_of(found: Mapping[str, Found], events: int) -> FieldGuess | None:
    """The field that identifies an event: all events have it, and all values differ."""
    fitting = [
        one
        for one in found.values()
        if one.kind in {"text", "int"} and not one.is_list and one.events == events == len(one.distinct)
    ]
    best = min((one for one in fitting if _is_id(one.path)), key=lambda one: _rank(one.path, ID_NAMES), default=None)
    if best is None:
        return None
    why = "it is in the only event" if events == 1 else f"all {events} events have it, and all differ"
    return FieldGuess({"field": best.path}, _why(best, why))


def event_time_of(found: Mapping[str, Found]) -> FieldGuess | None:
    """The field that says when an event happened: by its name, or the only one of which all values are times as text."""
    fitting = [one for one in found.values() if one.time_format and _is_time(one.path)]
    texts = [
        one for one in found.values() if one.time_format == "iso8601" and not one.is_list and not any(_malformed(one))
    ]
    best = min(fitting, key=lambda one: _rank(one.path, TIME_NAMES), default=texts[0] if len(texts) == 1 else None)
    if best is None:
        return None
    only = "" if fitting else ", and no other field's do"
    return FieldGuess(
        {"field": best.path, "format": best.time_format}, _why(best, f"its values look like {best.time_format}{only}")
    )


def _why(one: Found, why: str) -> str:
    differing = [_differing(one)] if one.differing else []
    return "; ".join([why, *differing, *(_malformed(one) if one.time_format else ())])


def inputs_of(model: ModelFile, found: Mapping[str, Found], events: int, taken: Sequence[str]) -> list[InputGuess]:
    """A guess for each input. `taken`: paths that are the event's ID or time."""
    free = {path: one for path, one in found.items() if path not in taken and not one.is_nested}
    inputs = model.inputs or [ModelInput(PLACEHOLDER, "float32", (None,))]
    named = {entry.tensor: _named(entry.tensor, list(free.values())) for entry in inputs}
    guessed: list[InputGuess] = []
    for entry in inputs:
        of_others = {one.path for tensor, one in named.items() if one is not None and tensor != entry.tensor}
        left = {path: found for path, found in free.items() if path not in of_others}
        part = None if named[entry.tensor] else _part_of_time(entry, list(found.values()), events, taken)
        one = part or _input(entry, left, events, stated=bool(model.inputs))
        one = _with_more(one, list(found.values()))
        guessed.append(one)
        for used in () if part else one.fields:  # a field seldom fills two inputs, but each part of a time may
            free.pop(used.options["field"], None)
    return guessed


def _input(entry: ModelInput, found: Mapping[str, Found], events: int, *, stated: bool) -> InputGuess:
    width = _width(entry)
    if width == 1:
        return _scalar(entry, found, events)
    guess = _list(entry, width, found)
    return guess or _scalars(entry, width, found, events, stated=stated)


def _width(entry: ModelInput) -> int | None:
    """Elements per event; None: they vary."""
    return None if None in entry.shape else prod(size or 1 for size in entry.shape)


def _scalar(entry: ModelInput, found: Mapping[str, Found], events: int) -> InputGuess:
    """An input of one element, which most exports name after its column."""
    named = _named(entry.tensor, [one for one in found.values() if not one.is_list])
    # A field that most events lack is hardly the one that a model needs.
    usual = [one for one in found.values() if 2 * one.events >= events]
    fitting = [one for one in usual if not one.is_list and _fits(one, entry.dtype)]
    varying = [
        one for one in fitting if len(one.distinct) > 1
    ]  # one that never changes, such as a version, is no feature
    one = named or next(iter(varying or fitting), None)
    shape = {"shape": [size or 1 for size in entry.shape]} if len(entry.shape) != 1 else {}
    if one is None:
        return InputGuess(entry.tensor, entry.dtype, [FieldGuess({"field": PLACEHOLDER})], shape)
    guess = _field(one, entry.dtype, events)
    why = guess.why if named else "; ".join(filter(None, ["no field has the input's name", guess.why]))
    return InputGuess(entry.tensor, entry.dtype, [FieldGuess(guess.options, why)], shape)


def _part_of_time(
    entry: ModelInput, found: Sequence[Found], events: int, preferred: Sequence[str]
) -> InputGuess | None:
    """An input that is called as a part of a time, such as hour: it comes from the event's time, else from another one."""
    part = _TIME_PARTS.get(_plain(entry.tensor))
    times = [one for one in found if one.time_format and not one.is_list]
    if part is None or not times or entry.dtype in {"string", "bool"} or _width(entry) != 1:
        return None
    one = min(times, key=lambda time: time.path not in preferred)
    options: dict[str, Any] = {"field": one.path, "time": one.time_format, "as": part}
    why = [f"the input is called as a part of a time, and this field has times; its {part} is that of UTC"]
    if one.events < events:
        options["missing"] = _MISSING[entry.dtype]
        why.append(f"{events - one.events} of {events} events lack it")
    shape = {"shape": [size or 1 for size in entry.shape]} if len(entry.shape) != 1 else {}
    return InputGuess(entry.tensor, entry.dtype, [FieldGuess(options, "; ".join(why))], shape)


def _list(entry: ModelInput, width: int | None, found: Mapping[str, Found]) -> InputGuess | None:
    """An input that one list field fills."""
    fitting = [one for one in found.values() if one.is_list and _fits(one, entry.dtype)]
    fitting = [one for one in fitting if width is None or set(one.lengths) == {width}]
    one = _named(entry.tensor, fitting) or (fitting[0] if fitting else None)
    if one is None:
        return None
    options: dict[str, Any] = _type(one, entry.dtype)
    fields = [FieldGuess({"field": one.path})]
    if width is not None:
        options |= {"shape": [size or 1 for size in entry.shape]}
        return InputGuess(entry.tensor, entry.dtype, fields, options, True)
    longest = max(one.lengths)
    options["max_length"] = 1 << longest.bit_length()
    why = f"the longest list of the sample has {counted(longest, 'item')}"
    return InputGuess(entry.tensor, entry.dtype, fields, options, True, why)


def _scalars(
    entry: ModelInput, width: int | None, found: Mapping[str, Found], events: int, *, stated: bool
) -> InputGuess:
    """An input that several fields fill."""
    if width is not None and width > MAX_FIELDS:
        todo = FieldGuess(
            {"field": PLACEHOLDER}, f"the input has {width:,} elements: name a list of the event that has as many"
        )
        return InputGuess(entry.tensor, entry.dtype, [todo], {"shape": [size or 1 for size in entry.shape]}, True)
    fitting = [one for one in found.values() if not one.is_list and _fits(one, entry.dtype)]
    chosen = fitting[:width]
    fields = [_field(one, entry.dtype, events) for one in chosen]
    fields += [FieldGuess({"field": PLACEHOLDER})] * ((width or 0) - len(fields))
    left = [one.path for one in fitting[len(chosen) :]]
    why = "the fields must stand in the order in which the model was trained"
    if left:
        why += f"; these fields fit, too: {', '.join(left)}"
    if not stated:
        why = f"the file doesn't say which inputs the model has; {why}"
    return InputGuess(entry.tensor, entry.dtype, fields, {}, False, why)


def _with_more(guess: InputGuess, found: Sequence[Found]) -> InputGuess:
    """Say at the first of the placeholders what else the events have for them, if fields ran out."""
    first = next((at for at, one in enumerate(guess.fields) if one == FieldGuess({"field": PLACEHOLDER})), None)
    if first is None or guess.is_list:
        return guess
    left = len(guess.fields) - first
    why = (
        f"the sample has too few fields that fit as they are: {left} {'is' if left == 1 else 'are'} left to fill in"
        if len(guess.fields) > 1
        else "no field of the sample fits as it is: name the one that fills this input"
    )
    if more := [one.as_feature for one in found if one.as_feature and _fits_cast(one, guess.dtype)]:
        why += f". With options, these fit, too: {', '.join(more[:MAX_HINTS])}"
    fields = [*guess.fields]
    fields[first] = FieldGuess({"field": PLACEHOLDER}, why)
    return replace(guess, fields=fields)


def _fits_cast(one: Found, dtype: str) -> bool:
    return dtype not in {"string", "bool"} and bool(one.time_format or one.is_numeric or one.is_numeric_text)


def _field(one: Found, dtype: str, events: int) -> FieldGuess:
    """How a field fills an element of this type."""
    options: dict[str, Any] = {"field": one.path}
    why: list[str] = []
    if dtype == "string":
        pass
    elif one.time_format == "iso8601":
        options |= {"time": "iso8601", "as": "hour"}
        why.append("a time becomes its hour; weekday, day, month, epoch and age are possible, too")
    elif type_ := _type(one, dtype):
        options |= type_
    elif one.kind == "text":
        options["vocabulary"] = sorted(filter(None, map(str, one.values)))
        why.append(
            "the vocabulary is what the sample has; it must be the one of the training, in its order; `unknown` can name the "
            "index of other values"
        )
    why += _doubts(one)
    if dtype != "string":
        why += _malformed(one)
    if one.events < events:
        options |= {} if "vocabulary" in options else {"missing": _MISSING[dtype]}
        why.append(f"{events - one.events} of {events} events lack it" + _TOLD.get(options.get("missing"), ""))
    return FieldGuess(options, "; ".join(why))


def _type(one: Found, dtype: str) -> dict[str, Any]:
    """The option `type` that casts the values to a tensor of numbers or bools; empty if they need no cast."""
    if dtype == "string":
        return {}
    if one.is_numeric_text:
        return {"type": "text"}
    if one.kind == "bool" and dtype != "bool":
        return {"type": "boolean"}
    if one.kind == "number" and dtype in {"int32", "int64"}:
        return {"type": "number"}
    return {"type": "int"} if one.kind == "int" and dtype == "bool" else {}


def _doubts(one: Found) -> Iterator[str]:
    """What speaks against the field as it is."""
    if one.time_format and one.is_numeric:
        yield f"its values look like times: `time: {one.time_format}, as: hour` makes the hour of each"
    if one.differing:
        yield _differing(one)


def _malformed(one: Found) -> Iterator[str]:
    """Which texts are no time, or no number, although most are, and what becomes of their events."""
    if not (malformed := one.malformed):
        return
    count = sum(one.distinct[text] for text in malformed)
    form, instead = ("times in ISO 8601", "") if one.time_format else ("numbers", "; a `vocabulary` takes any texts")
    yield (
        f"{count} of {one.kinds['text']} texts are no {form}, such as {malformed[0]!r:.60}: these events become dead letters "
        f"(`unfit`){instead}"
    )


def _differing(one: Found) -> str:
    """How many values have another type than most, and what becomes of their events."""
    count, others = sum(one.differing.values()), " or ".join(sorted(one.differing))
    return (
        f"{count} of {one.kinds.total()} values are {others}, the others {one.kind}: these events become dead letters "
        "(`undecodable`), unless `type: any` stands beside the field, which takes numbers and texts of numbers, or a `vocabulary`"
    )


def _fits(one: Found, dtype: str) -> bool:
    """Whether a field may fill elements of this type, with no hint from its name."""
    if dtype == "string":
        return one.kind == "text" and not one.is_prose
    if dtype == "bool":
        return one.kind == "bool"
    # A number that looks like a time, and a name of an ID, are hardly features.
    return (
        (one.is_numeric or one.is_numeric_text or one.kind == "bool") and not one.time_format and not _is_id(one.path)
    )


def _named(name: str, found: Sequence[Found]) -> Found | None:
    """The field with the input's name: first exactly, then without regard to case and separators."""
    plain = _plain(name)
    ways: list[Callable[[str], bool]] = [
        lambda path: name in (path, _last(path)),
        lambda path: plain in (_plain(path), _plain(_last(path))),
    ]
    return next((one for is_named in ways for one in found if is_named(one.path)), None)


def _plain(text: str) -> str:
    return "".join(character for character in text.lower() if character.isalnum())


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _is_id(path: str) -> bool:
    last = _last(path).lower()
    return last in ID_NAMES or last.endswith(("_id", "uuid")) or _last(path).endswith("Id")


def _is_time(path: str) -> bool:
    last = _last(path).lower()
    return last in TIME_NAMES or last.endswith(("_at", "_time", "time", "date", "timestamp"))


def _rank(path: str, names: Sequence[str]) -> tuple[int, int]:
    """Fields at the top come first; among them, those with a usual name."""
    last = _last(path).lower()
    return path.count("."), names.index(last) if last in names else len(names)


def guesses(inputs: Sequence[InputGuess]) -> Iterator[str]:
    """Each guess in a sentence, for people."""
    for entry in inputs:
        if entry.why:
            yield f"input {entry.tensor}: {entry.why}"
        yield from (f"input {entry.tensor}, field {one.options['field']}: {one.why}" for one in entry.fields if one.why)
