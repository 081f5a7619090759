"""Says which fields could fill the elements that the guesses leave open. Pure."""

import re
from collections.abc import Sequence
from dataclasses import replace

from millstream.consumers.scaffold.element import MISSING, element, is_index
from millstream.consumers.scaffold.guesses import OPEN, FieldGuess, InputGuess
from millstream.consumers.scaffold.own_fields import is_id, last_name, squeezed
from millstream.consumers.scaffold.survey import Found
from millstream.consumers.scaffold.texts import entry_text
from millstream.schemas.wording import first_of

MAX_HINTS = 5  # fields that are named as possible ones
_LONG_NAME = 3  # characters from which a name inside another one is no chance
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_UNLIKE = 2


def with_hints(
    guessed: Sequence[InputGuess], found: Sequence[Found], free: Sequence[Found], events: int
) -> list[InputGuess]:
    """The guesses, in which the first open element of each input says what could fill it.

    A single open input of one element is filled if a single field fits.

    Args:
        guessed: for each input.
        found: all fields of the events.
        free: those that fill nothing yet, and aren't the event's ID or time.
        events: how many there are.
    """
    used = {one.options["field"] for entry in guessed for one in entry.fields}
    left = [_single(one) for one in found if one.time_format or one.path not in used]
    alone = [entry for entry in guessed if entry.fields == [OPEN] and not entry.is_list]
    made = []
    said: dict[str, str] = {}  # what could fill an input -> the first one of which it is said
    for entry in guessed:
        fitting = [*likely(entry.dtype, free, events), *_items_alike(entry, free)]
        if [entry] == alone and len(fitting) == 1 and not fitting[0].is_list:
            guess = element(fitting[0], entry.dtype, events)
            why = "; ".join(filter(None, ["no field has the input's name, and only this one fits", guess.why]))
            made.append(replace(entry, fields=[FieldGuess(guess.options, why)]))
        else:
            fitting.sort(key=lambda one: _distance(entry.tensor, one))
            made.append(_once(_hinted(entry, fitting, left, events), said))
    return made


def _once(entry: InputGuess, said: dict[str, str]) -> InputGuess:
    """The guess, which refers to an input before it if it would say the same. `said`: what -> of which input."""
    why = entry.fields[0].why if entry.fields else ""
    if not why or entry.is_list or entry.fields != [replace(OPEN, why=why)]:
        return entry
    first = said.setdefault(why, entry.tensor)
    if first == entry.tensor:
        return entry
    why = f"name the field that fills this input: those that are named at input {first} fit here, too"
    return replace(entry, fields=[replace(OPEN, why=why)])


def likely(dtype: str, free: Sequence[Found], events: int) -> list[Found]:
    """The fields that may fill an element as they are."""
    # A field that most events lack is hardly the one that a model needs.
    usual = [one for one in free if 2 * one.events >= events and not one.is_list and fits(one, dtype)]
    # One that never changes, such as a version, is no feature.
    return [one for one in usual if len(one.distinct) > 1] or usual


def _items_alike(entry: InputGuess, free: Sequence[Found]) -> list[Found]:
    """The first items of lists that fit as they are, and whose names share a word with that of the input."""
    lists = [one for one in free if one.is_list and one.events and fits(one, entry.dtype)]
    return [_single(one) for one in lists if _distance(entry.tensor, one) < _UNLIKE]


def _single(one: Found) -> Found:
    """The first item of a list, at a path of its own; another field as it is."""
    return replace(one, path=one.path.replace("[]", "[0]"), events=one.with_first) if one.is_list else one


def _hinted(entry: InputGuess, fitting: Sequence[Found], left: Sequence[Found], events: int) -> InputGuess:
    """Say at the first of the open elements what the events have for them.

    Args:
        entry: the input.
        fitting: the fields that fit as they are.
        left: those that fill nothing yet, and may fit with options.
        events: how many there are.
    """
    first = next((at for at, one in enumerate(entry.fields) if one == OPEN), None)
    if first is None or entry.is_list:
        return entry
    open_count = len(entry.fields) - first
    if len(entry.fields) > 1:
        are_left = "1 is left" if open_count == 1 else f"{open_count} are left"
        why = f"the sample has too few fields that fit as they are: {are_left} to fill in"
    elif fitting:
        entries = first_of([entry_text(element(one, entry.dtype, events).options) for one in fitting], MAX_HINTS)
        why = f"no field of the sample has the input's name: name the one that fills this input. These fit: {entries}"
        left = [one for one in left if one.path not in {each.path for each in fitting}]
    else:
        why = "no field of the sample fits as it is: name the one that fills this input"
    more = [(one, feature) for one in left if (feature := _with_options(one, entry.dtype, events))]
    more.sort(key=lambda pair: _distance(entry.tensor, pair[0]))
    if more:
        features = [feature for _, feature in more]
        why += f". With options, these fit, too: {first_of(features, MAX_HINTS)}"
        if any("vocabulary: [" in feature for feature in features[:MAX_HINTS]):
            why += ". A vocabulary must be the one of the training, in its order"
    fields = [*entry.fields]
    fields[first] = replace(OPEN, why=why)
    return replace(entry, fields=fields)


def _with_options(one: Found, dtype: str, events: int) -> str:
    """The entry in config.yaml with which a field that doesn't fit as it is fills an element; empty if none does."""
    if is_id(one.path) or dtype == "bool":
        return ""
    if dtype == "string":
        feature = one.first_item if one.is_list and one.kind == "text" else ""
        return feature if one.events == events else feature and f"{{field: {feature}, missing: ''}}"
    if one.events < events and one.as_feature:
        # 0 would be the index of the vocabulary's first entry.
        missing = "INDEX" if "vocabulary: " in one.as_feature and is_index(dtype) else MISSING[dtype]
        return f"{one.as_feature[:-1]}, missing: {missing}}}"
    return one.as_feature


def related(tensor: str, one: Found) -> bool:
    """Whether the names of an input and of a field share a part."""
    own, path, last = squeezed(tensor), squeezed(one.path), squeezed(last_name(one.path))
    pairs = ((own, path), (path, own), (last, own))
    return any(len(part) >= _LONG_NAME and part in whole for part, whole in pairs)


def _distance(tensor: str, one: Found) -> int:
    """How far the names of an input and of a field are apart: 0, 1 or _UNLIKE."""
    if related(tensor, one):
        return 0
    return 1 if _words(tensor) & _words(last_name(one.path)) else _UNLIKE


def _words(name: str) -> set[str]:
    """The words of a name that are no chance, such as `first` and `temp` of `first_temp` and of `firstTemp`."""
    return {word.lower() for word in _WORD.findall(name) if len(word) >= _LONG_NAME}


def fits(one: Found, dtype: str) -> bool:
    """Whether a field may fill elements of this type, with no hint from its name."""
    if dtype == "string":
        return one.kind == "text" and not one.is_prose
    if dtype == "bool":
        return one.kind == "bool"
    # A number that looks like a time, and a name of an ID, are hardly features.
    if one.time_format or is_id(one.path) or (is_index(dtype) and not one.is_whole):
        return False
    return one.is_numeric or one.is_numeric_text or one.kind == "bool"
