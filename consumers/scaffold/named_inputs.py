"""Inputs whose names say what fills them: a part of a time, an item of a list, a mask, the tokens of a text. Pure."""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from millstream.consumers.scaffold.element import MISSING, differing_times, element, is_index, lacking, malformed
from millstream.consumers.scaffold.guesses import DEFAULT_MAX_LENGTH, FieldGuess, InputGuess
from millstream.consumers.scaffold.model_file import ModelInput
from millstream.consumers.scaffold.open_inputs import fits, related
from millstream.consumers.scaffold.own_fields import is_id, squeezed
from millstream.consumers.scaffold.survey import Found
from millstream.inference.mapping import PLACEHOLDER
from millstream.schemas.wording import first_of

MAX_TEXTS = 5  # fields that are named as possible ones
_TIME_PARTS = {
    **{name: name for name in ("hour", "weekday", "day", "month")},
    "hourofday": "hour",
    "dayofweek": "weekday",
    "dayofmonth": "day",
}
"""Names of inputs, without case and separators -> the part of a time that they have, see `inference.times`."""
_NUMBERED = re.compile(r"(.*[^\d_])_?(\d{1,3})")
_TOKENS = {"inputids", "tokenids", "tokens"}  # names of inputs, without case and separators
_TOKENIZER = "tokenizer.json"
_TOKEN_TYPES = {"tokentypeids", "segmentids"}


def by_name(
    entry: ModelInput,
    inputs: Sequence[ModelInput],
    found: Sequence[Found],
    free: Sequence[Found],
    events: int,
    preferred: Sequence[str],
) -> InputGuess | None:
    """The guess for an input that no field has the name of; None: its name says nothing.

    Args:
        entry: the input.
        inputs: all inputs of the model.
        found: all fields of the events.
        free: those that fill nothing yet.
        events: how many there are.
        preferred: paths of the event's ID and time.
    """
    return (
        _part_of_time(entry, found, events, preferred)
        or _item(entry, inputs, free, events)
        or _mask(entry, inputs)
        or _tokens(entry, free, events)
    )


def _part_of_time(
    entry: ModelInput, found: Sequence[Found], events: int, preferred: Sequence[str]
) -> InputGuess | None:
    """An input that is called as a part of a time, such as hour: it comes from the event's time, else from another one."""
    part = _TIME_PARTS.get(squeezed(entry.tensor))
    times = [one for one in found if one.time_format and not is_id(one.path)]  # IDs of ten digits look like seconds
    if part is None or not times or entry.dtype in {"string", "bool"} or width_of(entry) != 1:
        return None
    one = min(times, key=lambda time: time.path not in preferred)
    options: dict[str, Any] = {"field": one.path, "time": one.time_format, "as": part}
    why = [f"the input is called as a part of a time, and this field has times; its {part} is that of UTC"]
    if one.events < events:
        options["missing"] = MISSING[entry.dtype]
        why.append(lacking(one, options["missing"], events))
    why += [differing_times(one)] if one.differing else []
    why += malformed(one)
    return InputGuess(entry.tensor, entry.dtype, [FieldGuess(options, "; ".join(why))], shape_of(entry))


def _item(entry: ModelInput, inputs: Sequence[ModelInput], free: Sequence[Found], events: int) -> InputGuess | None:
    """An input that is called as a list with a number behind it, such as usage_0: it is an item of the list.

    The numbers of all inputs of this name must be those of the list's items, counted from 0 or from 1.
    """
    own = _NUMBERED.fullmatch(entry.tensor)
    if own is None or width_of(entry) != 1:
        return None
    numbered = [match for each in inputs if (match := _NUMBERED.fullmatch(each.tensor)) and match[1] == own[1]]
    numbers = sorted(int(match[2]) for match in numbered)
    lists = [one for one in free if one.is_list and fits(one, entry.dtype) and related(own[1], one)]
    if len(lists) != 1 or numbers[0] > 1 or numbers != [*range(numbers[0], numbers[0] + max(lists[0].lengths))]:
        return None
    [items], item = lists, int(own[2]) - numbers[0]
    path = items.path.replace("[]", f"[{item}]")
    there = sum(count for length, count in items.lengths.items() if length > item)
    guess = element(replace(items, path=path, events=there, is_list=False), entry.dtype, events)
    why = [f"the input's name is that of the list, with a number: this is item {item} of the list, counted from 0"]
    why += [guess.why] if guess.why else []
    options = guess.options
    if items.with_nulls and "missing" not in options:
        options |= {"missing": MISSING[entry.dtype]}
        why.append(f"in {items.with_nulls} of {events} events, items of the list are null, perhaps this one")
    return InputGuess(entry.tensor, entry.dtype, [FieldGuess(options, "; ".join(why))], shape_of(entry))


def _mask(entry: ModelInput, inputs: Sequence[ModelInput]) -> InputGuess | None:
    """An input that is called a mask, and varies in length as another one does."""
    of_items = [each for each in inputs if each.tensor != entry.tensor and each.shape == (None,)]
    if "mask" not in squeezed(entry.tensor) or entry.shape != (None,) or not of_items or entry.dtype == "string":
        return None
    why = "the input is called a mask, so it gets 1 for each item of an event, and 0 for the padding behind them"
    return InputGuess(entry.tensor, entry.dtype, [], {"mask": True}, True, why)


def _tokens(entry: ModelInput, found: Sequence[Found], events: int) -> InputGuess | None:
    """An input that is called as transformers call the tokens of a text, or their types."""
    name = squeezed(entry.tensor)
    if entry.shape != (None,) or not is_index(entry.dtype) or name not in _TOKENS | _TOKEN_TYPES:
        return None
    if name in _TOKEN_TYPES:
        why = "the input is called as the types of tokens are: 1 for the tokens of a second text"
        return InputGuess(entry.tensor, entry.dtype, [], {"token_types": True}, True, why)
    why = f"the input is called as tokens are: put the model's {_TOKENIZER}, of Hugging Face's `tokenizers`, beside the model"
    texts = [one for one in found if one.kind == "text" and not one.is_list and not one.time_format]
    texts = [one for one in texts if one.is_prose] or texts
    field: dict[str, Any] = {"field": texts[0].path if len(texts) == 1 else PLACEHOLDER, "tokenizer": _TOKENIZER}
    if len(texts) > 1:
        why += f". These fields have texts: {first_of([one.path for one in texts], MAX_TEXTS)}"
    elif texts and texts[0].events < events:
        field["missing"] = MISSING["string"]
        why += f"; {lacking(texts[0], field['missing'], events)}"
    options = {"max_length": entry.max_length or DEFAULT_MAX_LENGTH}
    return InputGuess(entry.tensor, entry.dtype, [FieldGuess(field)], options, True, why)


def width_of(entry: ModelInput) -> int | None:
    """Elements per event; None: they vary."""
    return None if None in entry.shape else prod(size or 1 for size in entry.shape)


def shape_of(entry: ModelInput) -> dict[str, Any]:
    """The option `shape` of an input of one element; empty if it needs none."""
    return {"shape": [size or 1 for size in entry.shape]} if len(entry.shape) != 1 else {}
