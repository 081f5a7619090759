"""Makes a tensor's input of its entry in config.yaml."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isnan, nan
from pathlib import Path
from typing import Any

from millstream.inference.casts import Cast, EventType
from millstream.inference.config_sections import FieldOptions, InputMapping, as_number
from millstream.inference.conversions import PLAIN, Conversion, Converter, Missing
from millstream.inference.entries import file_beside, read_entries
from millstream.inference.errors import ModelConfigError
from millstream.inference.signature import FLOATS, LARGEST_FLOAT16, TensorInput
from millstream.inference.times import Time
from millstream.inference.tokenizer import Tokenizer
from millstream.inference.vocabulary import Vocabulary
from millstream.schemas.lookup_columns import column_of
from millstream.schemas.wording import shown

Place = Callable[..., str]
"""Returns the place of an option, given keys and numbers of list items, for the beginning of a message."""

CAST_TO: dict[str, EventType] = {
    **dict.fromkeys(FLOATS, "number"),
    **dict.fromkeys(("int32", "int64"), "int"),
    "bool": "boolean",
    "string": "text",
}
"""Tensor's type -> what a cast makes."""
_INTS = ("int32", "int64")
_NAN = ("nan", ".nan", ".NaN", "NaN")


def listed(names: Any) -> str:
    """The names for a message, sorted."""
    return ", ".join(str(name) for name in sorted(names)) or "none"


def tensor_input(
    entry: InputMapping, max_length: int | None, place: Place, folder: Path, says: str = ""
) -> TensorInput:
    """Create an input.

    Args:
        entry: what the files say.
        max_length: the one that all inputs of variable length share.
        place: places of the entry's options, for the beginning of messages.
        folder: the model's.
        says: the end of messages.

    Raises:
        ModelConfigError: options contradict each other, or a file that they name can't be read.
    """
    if entry.mask:
        return TensorInput(entry.tensor, (), True, entry.dtype, (max_length or 0,), max_length, mask=True)
    if entry.token_types:
        return _token_types(entry, max_length, place)
    made = _array_input(entry, place, folder) if entry.field is not None else _scalar_input(entry, place, folder)
    if made.array and not made.shape:
        raise ModelConfigError(
            f"{place()}: tensor `{entry.tensor}` is filled by the array field `{entry.field}`: give its `shape`, such as "
            f"[32]. If the field is one value and no array, write `fields: [{entry.field}]` in place of `field`{says}."
        )
    if not made.array and made.width != len(made.fields):
        raise ModelConfigError(
            f"{place()}: tensor `{entry.tensor}` has shape {list(made.shape)}, {made.width} values an event, but "
            f"{len(made.fields)} fields are listed for it ({', '.join(made.fields)}){says}."
        )
    return made


def _token_types(entry: InputMapping, max_length: int | None, place: Place) -> TensorInput:
    if entry.dtype not in _INTS:
        raise ModelConfigError(
            f"{place('dtype')}: `token_types` are 0 and 1: expected one of the dtypes {', '.join(_INTS)}, found {entry.dtype}. "
            f"Change the dtype."
        )
    return TensorInput(entry.tensor, (), True, entry.dtype, (max_length or 0,), max_length, token_types=True)


def _array_input(entry: InputMapping, place: Place, folder: Path) -> TensorInput:
    assert entry.field is not None
    shape = tuple(entry.shape) if entry.max_length is None else (entry.max_length,)
    conversion = _conversion(entry, entry, place, folder)
    fields, conversions = [entry.field], [conversion]
    if entry.pair is not None:
        fields.append(entry.pair)
        conversions.append(replace(conversion, fallback=None))
    return TensorInput(
        entry.tensor,
        tuple(column_of(entry.lookup, field) for field in fields),
        True,
        entry.dtype,
        shape,
        entry.max_length,
        entry.pad if entry.pad is not None else _no_pad(entry),
        conversions=() if conversion == PLAIN else tuple(conversions),
        pads=entry.max_length is None and entry.pad is not None,
        truncates=entry.truncate,
    )


def _no_pad(entry: InputMapping) -> float | str:
    return "" if entry.dtype == "string" and entry.max_length is not None else 0


def _scalar_input(entry: InputMapping, place: Place, folder: Path) -> TensorInput:
    fields = entry.fields or []
    conversions = tuple(
        _conversion(entry, options, lambda *loc, at=index: place("fields", at, *loc), folder)
        for index, options in enumerate(fields)
    )
    return TensorInput(
        entry.tensor,
        tuple(column_of(options.lookup, options.field) for options in fields),
        False,
        entry.dtype,
        tuple(entry.shape) or (len(fields),),
        conversions=() if all(conversion == PLAIN for conversion in conversions) else conversions,
    )


def _conversion(entry: InputMapping, options: FieldOptions, place: Place, folder: Path) -> Conversion:
    """The conversion of one field. `options`: the field's own; they are the entry's for an array field."""
    made = _one_path(entry, options, place, folder)
    return made if options.fallback is None else replace(made, fallback=column_of(options.lookup, options.fallback))


def _one_path(entry: InputMapping, options: FieldOptions, place: Place, folder: Path) -> Conversion:
    """The conversion without the fallback."""
    if options.tokenizer is not None:
        return Conversion(splitter=_tokenizer(entry, options.tokenizer, options.missing, place, folder))
    if options.vocabulary is not None:
        entries = read_entries(options.vocabulary, folder, place("vocabulary"), empty_text=True)
        _check_index(options.missing, entries, place("missing"))
        _need_number(entry.dtype, place("vocabulary"), "a vocabulary makes an index of a value")
        source = str(folder / options.vocabulary) if isinstance(options.vocabulary, str) else place("vocabulary")
        missing = _missing(options.missing, entry.dtype, place("missing"))
        if options.unknown == "missing" and missing is None:
            raise ModelConfigError(
                f"{place('unknown')}: `unknown: missing` makes other values missing ones: expected `missing` beside it, such as "
                "`missing: nan`, found none."
            )
        leaf = "scalar" if options.type is None else "mixed"
        return Conversion(Vocabulary(entries, options.unknown, source, leaf), missing)
    missing = _missing(options.missing, entry.dtype, place("missing"))
    if options.time is not None or options.part is not None:
        return Conversion(_time(entry.dtype, options, place), missing)
    if options.type is not None:
        return Conversion(_cast(entry.dtype, options.type, place("type")), missing)
    return PLAIN if missing is None else Conversion(missing=missing)


def _cast(dtype: str, of: EventType, place: str) -> Converter:
    if dtype == "string" and of not in ("text", "any"):
        raise ModelConfigError(
            f"{place}: expected text or any for a tensor of type string, found {of}. Use a `vocabulary`, or another dtype."
        )
    return Cast(of, CAST_TO[dtype])


def _time(dtype: str, options: FieldOptions, place: Place) -> Converter:
    option = "time" if options.time is not None else "as"
    _need_number(dtype, place(option), f"`{option}` makes a number of a time")
    return Time(options.time or "", options.part or "epoch", dtype in _INTS)


def _check_index(missing: object, entries: Sequence[str], place: str) -> None:
    """Check that `missing` is no entry of the vocabulary, which many would write. Raises ModelConfigError."""
    if missing != "reject" and missing in entries:
        raise ModelConfigError(
            f"{place}: expected reject or the index that stands in place of a missing value, found {shown(missing)}. Write "
            f"{entries.index(str(missing))}, the index of this entry."
        )


def _need_number(dtype: str, place: str, why: str) -> None:
    if dtype not in FLOATS + _INTS:
        raise ModelConfigError(
            f"{place}: {why}: expected one of the dtypes {', '.join(FLOATS + _INTS)}, found {dtype}. Change the dtype."
        )


def _tokenizer(entry: InputMapping, name: str, missing: object, place: Place, folder: Path) -> Tokenizer:
    if entry.max_length is None or entry.dtype not in _INTS:
        raise ModelConfigError(
            f"{place('tokenizer')}: a tokenizer makes a list of token IDs: expected `field`, `max_length` and one of the dtypes "
            f"{', '.join(_INTS)} beside it, found dtype {entry.dtype}{'' if entry.max_length else ' and no `max_length`'}."
        )
    if not isinstance(missing, str):
        raise ModelConfigError(
            f"{place('missing')}: expected reject or the text that stands in place of a missing one, found {shown(missing)}."
        )
    path = file_beside(name, folder, place("tokenizer"))
    return Tokenizer.load(path, entry.max_length, None if missing == "reject" else missing, place("tokenizer"))


def _missing(value: Any, dtype: str, place: str) -> Missing | None:
    """The element in place of a null; None: the event is rejected."""
    if value == "reject":
        return None
    if dtype in FLOATS and value in _NAN:
        return nan
    fits: bool
    if dtype in FLOATS:
        value = as_number(value)
        expected, fits = "nan or a number", isinstance(value, int | float) and not isinstance(value, bool)
        if dtype == "float16":
            expected, fits = f"{expected} up to {LARGEST_FLOAT16:.0f}", fits and abs(value) <= LARGEST_FLOAT16
    elif dtype in _INTS:
        most = 2 ** (31 if dtype == "int32" else 63)
        expected, fits = f"a whole number of {dtype}", type(value) is int and -most <= value < most
    elif dtype == "bool":
        expected, fits = "true or false", isinstance(value, bool)
    else:
        expected, fits = "a text", isinstance(value, str)
    if not fits or (isinstance(value, float) and isnan(value)):
        raise ModelConfigError(f"{place}: expected reject or {expected}, found {shown(value)}.")
    return value  # type: ignore[no-any-return]
