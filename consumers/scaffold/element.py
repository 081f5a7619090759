"""Guesses how a field of the events fills one element of a tensor, and says what speaks against it. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from millstream.consumers.scaffold.guesses import FieldGuess
from millstream.consumers.scaffold.survey import Found
from millstream.inference.mapping import PLACEHOLDER
from millstream.inference.tensor_inputs import CAST_TO
from millstream.schemas.wording import counted

MISSING = {"float16": "nan", "float32": "nan", "float64": "nan", "int32": 0, "int64": 0, "bool": False, "string": ""}
"""Tensor's type -> the guess for values that are missing."""


VOCABULARY_OF_SAMPLE = "the vocabulary is what the sample has; it must be the one of the training, in its order"


_KINDS = {
    "large": "whole numbers of more than 64 bits",
    "odd": "numbers beyond a double, or texts that are not Unicode",
}


def is_index(dtype: str) -> bool:
    """Whether elements of this type may be the indices of a vocabulary."""
    return dtype in {"int32", "int64"}


def element(one: Found, dtype: str, events: int) -> FieldGuess:
    """How a field fills an element of this type. If several ways are as likely, a placeholder and the ways."""
    if why_open := _why_open(one, dtype, events):
        return FieldGuess({"field": PLACEHOLDER}, why_open)
    options: dict[str, Any] = {"field": one.path}
    why: list[str] = []
    if cast := type_of(one, dtype):
        options |= cast
    elif dtype == "string":
        pass
    elif one.time_format == "iso8601":
        options |= {"time": "iso8601", "as": "hour"}
        why.append("a time becomes its hour; weekday, day, month, epoch and age are possible, too")
    elif one.kind == "text":
        options["vocabulary"] = one.categories
        why.append(f"{VOCABULARY_OF_SAMPLE}; `unknown` can name the index of other values")
    why += doubts(one, dtype, is_category="vocabulary" in options)
    if one.events < events:
        options |= {} if "vocabulary" in options else {"missing": MISSING[dtype]}
        why.append(lacking(one, options.get("missing"), events))
    return FieldGuess(options, "; ".join(why))


def _why_open(one: Found, dtype: str, events: int) -> str:
    """Why the sample doesn't show how the field fills the element, and what to write; empty if it does."""
    path = one.path
    if not one.events:
        return (
            f"{path} has the input's name, but no event has a value there: write {{field: {one.first_item}, missing: VALUE}} "
            "with the value that the training had there, or name another field"
        )
    if one.kind == "mixed" and dtype != "string" and one.refused_by_any(CAST_TO[dtype]) != []:
        return (
            f"{path} has values of several types, and none is that of most: write {{field: {one.first_item}, type: any}} for "
            f"numbers and texts of numbers{'' if dtype == 'bool' else f', or {one.as_category}'}"
        )
    if dtype in {"string", "bool"} or one.kind != "text" or one.time_format or one.is_numeric_text:
        return ""
    if one.is_code:
        return (
            f"{path} has digits that look like a code, such as {one.values[0]!r}: write {one.as_category} with the entries "
            f"of the training, in its order; or {{field: {one.first_item}, type: text}} if the model was trained on the number "
            "(digits that begin with 0 are then no number)"
        )
    if not one.shows_vocabulary:
        return (
            f"{path} has {counted(len(one.distinct), 'different text')} in {counted(events, 'event')}, so the sample doesn't "
            f"show the vocabulary: write {one.as_category}, and put the entries of the training into this file beside "
            "config.yaml, one per line, in its order"
        )
    return ""


def lacking(one: Found, missing: object, events: int) -> str:
    """How many events lack the field, and what `missing` gives the model for them; None: it isn't guessed."""
    lacks = events - one.events
    said = f"{lacks} of {events} events lack it; "
    if one.is_list and one.with_nulls:
        too = f", and {lacks} lack the whole list" if lacks else ""
        said = f"{one.with_nulls} of {events} events lack it in some items{too}; "
    if missing is None:
        return said + "`missing` can name the index for these"
    if missing == "nan":
        return said + "nan is right only for a model that takes missing values"
    given = "an empty text" if missing == "" else str(missing).lower()
    return said + f"`missing` gives the model {given} for these: write what the training had there"


def type_of(one: Found, dtype: str) -> dict[str, Any]:
    """The option `type` that casts the values to the tensor's type; empty if they need no cast."""
    if one.refused_by_any(CAST_TO[dtype]) is not None or (dtype == "string" and one.kind != "text"):
        return {"type": "any"}
    if dtype == "string":
        return {}
    if one.is_numeric_text or (one.kind == "text" and dtype == "bool"):
        return {"type": "text"}
    if one.kind == "bool" and dtype != "bool":
        return {"type": "boolean"}
    if one.kind == "number" and dtype in {"int32", "int64"}:
        return {"type": "number"}
    return {"type": "int"} if one.kind == "int" and dtype == "bool" else {}


def doubts(one: Found, dtype: str, *, is_category: bool) -> Iterator[str]:
    """What speaks against the field as it is."""
    if dtype == "string" and one.kind != "text":
        yield "its values become texts, as JSON writes them"
        return
    if dtype == "float32" and any(isinstance(value, int) and float(np.float32(value)) != value for value in one.values):
        yield "float32 doesn't hold all of its whole numbers exactly, so it may be an ID rather than a feature"
    if dtype != "string" and not is_category and (version := like_a_version(one)):
        yield f"its texts are read as numbers, such as {version!r} as {float(version):g}; for versions, write {one.as_category}"
    if one.time_format and one.is_numeric:
        yield f"its values look like times: `time: {one.time_format}, as: hour` makes the hour of each"
    if one.differing and is_category:
        yield from _no_entries(one)
    elif [*one.differing] == ["large"] and dtype.startswith("float"):
        pass  # doubles hold them, nearly
    elif (refused := one.refused_by_any(CAST_TO[dtype])) is not None:
        yield _taken_by_any(one, refused)
    elif one.differing:
        yield differing_times(one) if dtype != "string" and one.time_format == "iso8601" else differing(one)
    if dtype != "string":
        yield from malformed(one)


def like_a_version(one: Found) -> str:
    """A text such as 1.10 beside 1.2: numbers have no last zeros, or all as many digits behind the point. Empty: none."""
    if not one.is_numeric_text or one.time_format:
        return ""
    broken = sorted(text for text in {*one.values} - {*one.malformed} if "." in text)
    digits = {len(text.partition(".")[2]) for text in broken}
    return next((text for text in broken if text.endswith("0")), "") if len(digits) > 1 else ""


def malformed(one: Found) -> Iterator[str]:
    """Which texts are no time, or no number, although most are, and what becomes of their events."""
    if not (texts := one.malformed):
        return
    count = sum(one.distinct[text] for text in texts)
    form, instead = (
        ("times in ISO 8601 with separators", "")
        if one.time_format
        else ("numbers", "; a `vocabulary` takes any texts")
    )
    yield (
        f"{count} of {one.kinds['text']} texts are no {form}, such as {texts[0]!r:.60}: these events become dead letters "
        f"(`unfit`){instead}"
    )


def differing(one: Found) -> str:
    """How many values have another type than most, and what becomes of their events."""
    return (
        f"{_rejected(one)}, unless `type: any` stands beside the field, which takes numbers and texts of numbers; beside a "
        "`vocabulary`, it takes any"
    )


def _no_entries(one: Found) -> Iterator[str]:
    """What becomes of the values that the vocabulary of the sample's texts has no entries for, because they are no texts."""
    total = one.kinds.total()
    if whole := one.kinds["int"]:
        yield f'{whole} of {total} values are whole numbers: the vocabulary needs their texts, such as "7"'
    if refused := total - whole - one.kinds["text"]:
        yield (
            f"{refused} of {total} values are neither texts nor whole numbers: these events become dead letters "
            '(`undecodable`), unless `type: any` stands beside the vocabulary, and it has their texts, such as "true"'
        )


def differing_times(one: Found) -> str:
    """The same for a field that is read as a time."""
    return (
        f"{_rejected(one)}; a time has one form in all events, and no option takes both: let the producer send one form "
        "(`millstream docs models#times`)"
    )


def _rejected(one: Found) -> str:
    return f"{others(one)}: these events become dead letters (`undecodable`)"


def others(one: Found) -> str:
    """How many values have another type than most, and which."""
    count, kinds = sum(one.differing.values()), " or ".join(_KINDS.get(kind, kind) for kind in sorted(one.differing))
    return f"{count} of {one.kinds.total()} values are {kinds}, the others {one.kind}"


def _taken_by_any(one: Found, refused: Sequence[Any]) -> str:
    """Why the field has `type: any`. `refused`: values that it doesn't take."""
    found = others(one) if one.differing else "its values are of several types, and none is that of most"
    if not refused:
        return f"{found}: `type: any` takes all of them"
    count = sum(one.distinct[value] for value in refused)
    return (
        f"{found}: `type: any` takes all of them but {count}, such as {refused[0]!r:.60}; events with these become dead letters "
        "(`unfit`)"
    )
