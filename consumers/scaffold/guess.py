"""Guesses which event fields fill a model's inputs, and says what was guessed. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millstream.consumers.scaffold.element import (
    MISSING,
    VOCABULARY_OF_SAMPLE,
    doubts,
    element,
    is_index,
    lacking,
    type_of,
)
from millstream.consumers.scaffold.envelope import content_first
from millstream.consumers.scaffold.guesses import DEFAULT_MAX_LENGTH, OPEN, FieldGuess, InputGuess
from millstream.consumers.scaffold.model_file import ModelFile, ModelInput
from millstream.consumers.scaffold.named_inputs import by_name, shape_of, width_of
from millstream.consumers.scaffold.open_inputs import fits, likely, related, with_hints
from millstream.consumers.scaffold.own_fields import last_name, squeezed
from millstream.consumers.scaffold.survey import Found
from millstream.consumers.scaffold.texts import entry_text
from millstream.inference.executors.axes import SEVERAL_PER_ITEM
from millstream.inference.mapping import PLACEHOLDER
from millstream.schemas.wording import counted, first_of

MAX_FIELDS = 2000  # that fill an input; a larger one is filled by a list
NO_LIST = (
    "no list of the sample fits: name one that has as many items as the others in each event. For the mask of another input, "
    "write `mask: true` in place of `max_length` and `field`"
)
NOT_NAMED = "no list has the input's name"
MAX_LISTS = 5  # that are named as possible ones
MAX_LEFT = 10  # fields that fill nothing, and are named as possible ones
MAX_OPEN = 8  # elements of an input that the user must fill, one by one


def inputs_of(model: ModelFile, found: Mapping[str, Found], events: int, taken: Sequence[str]) -> list[InputGuess]:
    """A guess for each input. `taken`: paths that are the event's ID or time."""
    found = content_first(found)
    free = {path: one for path, one in found.items() if path not in taken and not one.is_nested}
    inputs = model.inputs or [ModelInput(PLACEHOLDER, "float32", (None,))]
    named = {entry.tensor: _named(entry.tensor, list(free.values())) for entry in inputs}
    guessed: dict[str, InputGuess] = {}
    for entry in sorted(inputs, key=lambda entry: entry.dtype != "bool"):  # other inputs take booleans, too
        of_others = {one.path for tensor, one in named.items() if one is not None and tensor != entry.tensor}
        left = {path: one for path, one in free.items() if path not in of_others}
        part = None
        if named[entry.tensor] is None:
            part = by_name(entry, inputs, list(found.values()), list(left.values()), events, taken)
        one = part or _input(entry, left, events, stated=bool(model.inputs))
        guessed[entry.tensor] = one
        for used in () if part else one.fields:  # a field seldom fills two inputs, but each part of a time may
            free.pop(used.options["field"], None)
    in_order = [guessed[entry.tensor] for entry in inputs]
    return with_hints(_side_by_side(in_order, found), list(found.values()), list(free.values()), events)


def _side_by_side(guessed: Sequence[InputGuess], found: Mapping[str, Found]) -> list[InputGuess]:
    """The guesses for inputs of variable length, which share one `max_length`, and have as many items in each event."""
    varying = [one for one in guessed if "max_length" in one.options and "tokenizer" not in one.fields[0].options]
    lists = [one for one in varying if one.fields != [OPEN]]
    if not lists:
        return [*guessed]
    first = next((one for one in lists if NOT_NAMED not in one.why), lists[0])
    lengths = found[first.fields[0].options["field"]].lengths
    fitting = [one for one in lists if found[one.fields[0].options["field"]].lengths == lengths]
    shared = {"max_length": max(one.options["max_length"] for one in fitting)}
    made = []
    for one in guessed:
        if one in lists and one not in fitting:
            path = one.fields[0].options["field"]
            why = NO_LIST
            if _array_of(path) == _array_of(first.fields[0].options["field"]):
                why = f"some items lack {path}, which seems to be the one: write it with `missing`, so that it has as many items"
            made.append(InputGuess(one.tensor, one.dtype, [OPEN], shared, True, why))
        else:
            made.append(replace(one, options=one.options | shared) if "max_length" in one.options else one)
    return made


def _array_of(path: str) -> str:
    """The path to the array whose items a path leads into."""
    return path.rpartition("[]")[0]


def _input(entry: ModelInput, found: Mapping[str, Found], events: int, *, stated: bool) -> InputGuess:
    width = width_of(entry)
    if width == 1:
        return _scalar(entry, found, events)
    if width is None and len(entry.shape) > 1:
        options = {"max_length": entry.max_length or DEFAULT_MAX_LENGTH}
        return InputGuess(entry.tensor, entry.dtype, [OPEN], options, True, SEVERAL_PER_ITEM)
    guess = _list(entry, width, found, events, stated=stated)
    return guess or _padded_list(entry, found, events) or _scalars(entry, width, found, events, stated=stated)


def _scalar(entry: ModelInput, found: Mapping[str, Found], events: int) -> InputGuess:
    """An input of one element, which most exports name after its column."""
    single = [one for one in found.values() if not one.is_list]
    named = _named(entry.tensor, single)
    guess = OPEN if named is None else element(named, entry.dtype, events)
    if named is not None and (others := _also_named(named, single)):
        guess = _beside(named, others, guess)
    return InputGuess(entry.tensor, entry.dtype, [guess], shape_of(entry))


def _list(
    entry: ModelInput, width: int | None, found: Mapping[str, Found], events: int, *, stated: bool
) -> InputGuess | None:
    """An input that one list field fills: that of its name, or the only one that fits."""
    fitting = [one for one in found.values() if one.is_list and _items_fit(one, entry.dtype)]
    fitting = [one for one in fitting if width is None or set(one.lengths) == {width}]
    alike = [one for one in fitting if related(entry.tensor, one)]
    named = _named(entry.tensor, fitting) or (alike[0] if len(alike) == 1 else None)
    rivals = [one for one in _also_named(named, fitting) if one.events == named.events] if named else []
    chosen = [named, *rivals] if named else fitting
    if not chosen or (len(chosen) > 1 and not stated):
        return None
    longest = max(max(one.lengths) for one in chosen)
    options: dict[str, Any] = {"shape": [size or 1 for size in entry.shape]}
    if width is None:
        options = {"max_length": entry.max_length or 1 << longest.bit_length()}
    if len(chosen) > 1:
        paths = ", ".join(one.path if fits(one, entry.dtype) else f"{one.path} with a `vocabulary`" for one in chosen)
        how = "have the input's name" if named else "fit, and none has the input's name"
        why = f"several lists {how}: write one of {paths}"
        return InputGuess(entry.tensor, entry.dtype, [OPEN], options, True, why)
    reasons = [] if named or not stated else [f"{NOT_NAMED}, and only this one fits"]
    if width is None:
        takes = f", and the model takes up to {entry.max_length:,}" if entry.max_length else ""
        reasons.append(f"the longest list of the sample has {counted(longest, 'item')}{takes}")
    return _filled_by(chosen[0], entry, options, reasons, events)


def _items_fit(one: Found, dtype: str) -> bool:
    """Whether the items of a list may fill elements of this type: as they are, or texts as indices of a vocabulary."""
    if fits(one, dtype) or not is_index(dtype):
        return fits(one, dtype)
    return one.kind == "text" and one.varies and one.shows_vocabulary and not one.is_code


def _filled_by(one: Found, entry: ModelInput, options: dict[str, Any], reasons: list[str], events: int) -> InputGuess:
    """The guess that this list fills the input."""
    field: dict[str, Any] = {"field": one.path}
    if fits(one, entry.dtype):
        options = type_of(one, entry.dtype) | options
    else:
        field["vocabulary"] = one.categories
        reasons = [*reasons, f"{VOCABULARY_OF_SAMPLE}, which may begin with an entry for padding"]
    reasons = [*reasons, *doubts(one, entry.dtype, is_category="vocabulary" in field)]
    if one.with_nulls or one.events < events:
        field |= {} if "vocabulary" in field else {"missing": MISSING[entry.dtype]}
        said = lacking(one, field.get("missing"), events)
        if "max_length" in options and not one.with_nulls:
            said = f"{events - one.events} of {events} events lack it; with `missing`, they have no items"
        reasons = [*reasons, said]
    return InputGuess(entry.tensor, entry.dtype, [FieldGuess(field)], options, True, "; ".join(reasons))


def _padded_list(entry: ModelInput, found: Mapping[str, Found], events: int) -> InputGuess | None:
    """An input of fixed length that a list of varying length fills: that of its name, or the only one.

    None if there are as many fields that could, or, beside a list with another name, more fields than it has items.
    """
    width = width_of(entry)
    if width is None or entry.shape != (width,) or entry.dtype in {"string", "bool"}:
        return None
    fields = sum(not one.is_list and fits(one, entry.dtype) for one in found.values())
    if fields >= width:
        return None
    lists = [one for one in found.values() if one.is_list and _items_fit(one, entry.dtype) and one.lengths]
    lists = [one for one in lists if 1 < max(one.lengths) <= width]
    named = _named(entry.tensor, lists)
    if named is None and len(lists) == 1 and (longest := max(lists[0].lengths)) >= fields:
        # Few elements that no list of the sample fills may well be single fields, of which the sample lacks some.
        named = lists[0] if longest == width or width > fields + MAX_OPEN else None
    if named is None:
        return None
    of_sample = counted(max(named.lengths), "item")
    reasons = [
        f"the model takes {width:,} items, and the longest list of the sample has {of_sample}: zeros stand behind them. For a "
        f"model with a mask, write `max_length: {width}` in place of `shape` and `pad`, `mask: true` at its input, and "
        f"`length_buckets: [{width}]` at the end of this file"
    ]
    return _filled_by(named, entry, {"shape": [width], "pad": 0}, reasons, events)


def _scalars(
    entry: ModelInput, width: int | None, found: Mapping[str, Found], events: int, *, stated: bool
) -> InputGuess:
    """An input that several fields fill."""
    if width is None and stated:
        options = {"max_length": entry.max_length or DEFAULT_MAX_LENGTH}
        return InputGuess(entry.tensor, entry.dtype, [OPEN], options, True, NO_LIST)
    if width is not None and width > MAX_FIELDS:
        todo = FieldGuess(
            {"field": PLACEHOLDER}, f"the input has {width:,} elements: name a list of the event that has as many"
        )
        return InputGuess(entry.tensor, entry.dtype, [todo], {"shape": [size or 1 for size in entry.shape]}, True)
    fitting = [one for one in found.values() if not one.is_list and fits(one, entry.dtype)]
    if width is not None and width > len(fitting) + MAX_OPEN:
        lists = [one.path for one in found.values() if one.is_list and one.events and fits(one, entry.dtype)]
        others = (
            f". Lists of other lengths, with `pad: 0` and `truncate: true`: {', '.join(lists[:MAX_LISTS])}"
            if lists
            else ""
        )
        why = (
            f"the input has {width:,} elements, and the sample has {counted(len(fitting), 'field')} that fit: name a list of the "
            f"event that has as many items, or write `fields: [...]` in place of `field` and `shape`{others}. If this is the "
            f"mask of another input, write `mask: true` in place of both, and there `max_length: {width}` in place of `shape`"
        )
        return InputGuess(entry.tensor, entry.dtype, [OPEN], {"shape": [size or 1 for size in entry.shape]}, True, why)
    usual = likely(entry.dtype, list(found.values()), events)
    if width is not None and len(usual) < width:  # also what few events have, unless these are the keys of a map
        # A text that never changes, such as a version "1.0", is hardly a feature.
        possible = [one for one in fitting if one.kind != "text" or len(one.distinct) > 1 or events == 1]
        common = [one for one in possible if 2 * one.events >= events]
        usual = possible if len(possible) <= width + MAX_LEFT else common
    chosen = usual[:width]
    fields = [element(one, entry.dtype, events) for one in chosen]
    fields += [OPEN] * ((width or 0) - len(fields))
    left = sorted((one for one in fitting if one not in chosen), key=lambda one: -one.events)
    why = "the fields must stand in the order in which the model was trained"
    if left:
        entries = [entry_text(element(one, entry.dtype, events).options) for one in left]
        why += f"; these fields fit, too: {first_of(entries, MAX_LEFT)}"
    if not stated:
        why = f"the file doesn't say which inputs the model has; {why}"
    return InputGuess(entry.tensor, entry.dtype, fields, {}, False, why)


def _beside(named: Found, others: Sequence[Found], guess: FieldGuess) -> FieldGuess:
    """The guess that a field fills the input, if other fields have its name, too. If as many events have one, it is left open."""
    if any(one.events == named.events for one in others):
        paths = ", ".join(sorted(one.path for one in (named, *others)))
        return FieldGuess(
            OPEN.options, f"several fields have the input's name: write the one of the training, of {paths}"
        )
    why = f"most events have this field; these have the input's name, too: {', '.join(one.path for one in others)}"
    return replace(guess, why="; ".join(filter(None, [why, guess.why])))


def _also_named(named: Found, found: Sequence[Found]) -> list[Found]:
    """The other fields with the last name of a field that lies in an object: nothing shows which one is meant."""
    last = squeezed(last_name(named.path))
    if squeezed(named.path) == last:
        return []
    return [one for one in found if one.path != named.path and squeezed(last_name(one.path)) == last]


def _named(name: str, found: Sequence[Found]) -> Found | None:
    """The field with the input's name: first exactly, then without regard to case and separators.

    Of several, it is the one that most events have: in a change event, `after.amount` rather than `before.amount`. A list of one
    field of objects may also have the name of the array: `legs[].km` that of `legs`.
    """
    own = squeezed(name)
    ways: list[Callable[[str], bool]] = [
        lambda path: name == path,
        lambda path: name == last_name(path),
        lambda path: own in (squeezed(path), squeezed(last_name(path))),
    ]
    named = ([one for one in found if is_named(one.path)] for is_named in ways)
    if (alike := next(filter(None, named), None)) is not None:
        return max(alike, key=lambda one: one.events)
    of_array = [one for one in found if one.is_list and squeezed(last_name(_array_of(one.path))) == own]
    return of_array[0] if len(of_array) == 1 else None
