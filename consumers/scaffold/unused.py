"""Says which fields of the events fill no input, with the options that make features of them."""

from collections.abc import Collection, Iterator, Mapping

from millstream.consumers.scaffold.element import others
from millstream.consumers.scaffold.own_fields import is_id
from millstream.consumers.scaffold.survey import MAX_DISTINCT, Found
from millstream.schemas.wording import counted

MAX_LISTED = 20


def unused(found: Mapping[str, Found], used: Collection[str], events: int) -> Iterator[str]:
    """One line for people per field that is not in `used`, up to MAX_LISTED."""
    left = [one for path, one in found.items() if path not in used and not _is_empty_parent(one, found)]
    left.sort(key=lambda one: 2 * one.events < events)  # what few events have comes last, such as the keys of a map
    for one in left[:MAX_LISTED]:
        hints = "; ".join(_hints(one, events))
        yield f"{one.path}: {hints}" if hints else one.path
    if len(left) > MAX_LISTED:
        yield f"and {len(left) - MAX_LISTED} more"


def _is_empty_parent(one: Found, found: Mapping[str, Found]) -> bool:
    """Whether it is the path of a list or an object that some events have as null: the paths in it are listed, and tell more."""
    return not one.events and any(path.startswith((f"{one.path}.", f"{one.path}[]")) for path in found)


def _hints(one: Found, events: int) -> Iterator[str]:
    if one.as_feature:
        yield f"{_what(one)}: {one.as_feature}"
    elif one.kind == "text":
        yield _why_no_feature(one)
    elif one.events:
        yield _as_it_is(one)
    if not one.events:
        yield "no event has a value there"
    elif one.with_first < events:
        yield f"{events - one.with_first} of {events} events lack it, so a feature needs `missing:`"


def _what(one: Found) -> str:
    """What a field has that is no feature as it is."""
    if one.time_format:
        return "its values look like times; as a feature"
    if "[]." in one.path or one.is_nested:
        return "a value of each item in a list; the first one's as a feature"
    if one.is_list:
        least, most = min(one.lengths), max(one.lengths)
        items = counted(most, "item") if least == most else f"{least} to {most} items"
        return f"a list of {items}; the first one as a feature"
    if one.is_numeric_text:
        return "text with numbers; as a feature"
    return "digits that look like a code; as a feature" if one.is_code else "text; as a feature"


def _as_it_is(one: Found) -> str:
    """How a field of other values than texts fills an element."""
    entry = f"{{field: {one.first_item}"
    if one.kind == "odd":
        return "no tensor takes its values: numbers beyond a double, or texts that are not Unicode"
    if one.kind == "large":
        return f"whole numbers of more than 64 bits; as a number of a tensor of floats: {entry}}}"
    if one.kind == "mixed" or one.differing:
        return _of_several_types(one, entry)
    if one.kind == "bool":
        return f"true or false, which a tensor of bools takes as it is; as a number: {entry}, type: boolean}}"
    if is_id(one.path):
        return f"a number that is called like an ID, which is hardly a feature. If the model knows it: {entry}}}"
    return f"a number, which fits as it is: {entry}}}"


def _of_several_types(one: Found, entry: str) -> str:
    """As `_as_it_is`, for values of several types."""
    types = others(one) if one.differing else "values of several types"
    if one.differing and one.refused_by_any("number") is None:
        return f"{types}; for the others as a feature: {entry}}}"
    return f"{types}; as a feature: {entry}, type: any}}"


def _why_no_feature(one: Found) -> str:
    """Why no feature is proposed for a field of texts, and what one could do."""
    if one.is_prose:
        return "long texts; a model of texts gets them as tokens: `millstream docs models#texts-as-tokens`"
    if not one.varies:
        return "the sample has only one text there. If there are others, take more events with `--limit`"
    more = " or more" if len(one.distinct) == MAX_DISTINCT else ""
    return (
        f"{len(one.distinct):,}{more} different texts in {counted(one.distinct.total(), 'value')}, too many to guess a "
        f"vocabulary from. If the model knows them as categories, list all of them in a file beside it: {one.as_category}"
    )
