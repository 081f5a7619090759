"""Templates of keys, such as `customer:{customer.id}`: texts, and paths of event fields in braces.

The values of fields are copied into the key as they are. No value is read as a template.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from millstream.inference.errors import FeatureStoreError
from millstream.inference.feature_store.interface import Keys
from millstream.schemas.arrays import Mask
from millstream.schemas.column import Column
from millstream.schemas.errors import BadPathError
from millstream.schemas.ids import ids_of
from millstream.schemas.paths import Every, parse_path
from millstream.schemas.table import Table
from millstream.schemas.wording import shown


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """A template: a text, then for each path the event's value and the text behind it."""

    head: bytes
    paths: tuple[str, ...]  # at least one
    tails: tuple[bytes, ...]  # the text behind each value; only the last may be empty

    def keys(self, events: Table) -> Keys:
        """The key of each event. A key is None if one of its values is null.

        With several values, a value must not contain the text behind it: otherwise the keys of two entities could be the same,
        and an event could get the features of an entity that is not its own.
        """
        columns = [events[path] for path in self.paths]
        texts = [values_as_bytes(column) for column in columns]
        wrong: dict[int, str] = {}
        for path, values, tail in zip(self.paths[:-1], texts, self.tails, strict=False):
            for row, value in enumerate(values):
                if (value + tail).find(tail) != len(value):
                    wrong.setdefault(row, _ambiguous(path, value, tail))
        keys: list[bytes | None]
        if len(texts) == 1:
            head, tail = self.head, self.tails[0]
            keys = [b"%b%b%b" % (head, value, tail) for value in texts[0]]
        else:
            keys = [self._joined(values) for values in zip(*texts, strict=True)]
        for row in np.flatnonzero(~_all_valid(columns)).tolist():
            keys[row] = None
            wrong.pop(row, None)
        return Keys(keys, wrong)

    def blank(self) -> bytes:
        """The key of empty values."""
        return self._joined([b""] * len(self.paths))

    def _joined(self, values: Sequence[bytes]) -> bytes:
        return self.head + b"".join(part for pair in zip(values, self.tails, strict=True) for part in pair)


def values_as_bytes(column: Column) -> Sequence[bytes]:
    """Each value as the bytes of its text; anything for a null."""
    return list(ids_of(column).utf8)


def _all_valid(columns: Sequence[Column]) -> Mask:
    valid = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        if column.valid is not None:
            valid &= column.valid
    return valid


def _ambiguous(path: str, value: bytes, tail: bytes) -> str:
    return (
        f"field `{path}` is {shown(value.decode(errors='replace'))}, but in the key of a look-up it can't contain "
        f"{shown(tail.decode())}, which stands behind it there"
    )


def parse_template(text: str, place: str) -> KeyTemplate:
    """Read a template. `{{` and `}}` stand for single braces.

    Args:
        text: such as `customer:{customer.id}`.
        place: of the option, for messages.

    Raises:
        FeatureStoreError: a brace is alone, a path is malformed, no path is there, or nothing separates two of them.
    """
    texts, paths = [""], list[str]()
    for kind, part in _parts(text, place):
        if kind == "path":
            paths.append(_checked_path(part, place))
            texts.append("")
        else:
            texts[-1] += part
    if not paths:
        raise FeatureStoreError(
            f"{place}: expected the path of an event field in braces, found none in {shown(text)}. Write for example: "
            f'"customer:{{customer.id}}"'
        )
    if not all(texts[1:-1]):
        raise FeatureStoreError(
            f"{place}: expected a text between two fields, found none in {shown(text)}: the keys of two entities could be the "
            f"same. Write for example: {{customer}}:{{product}}"
        )
    head, *tails = (each.encode() for each in texts)
    return KeyTemplate(head, tuple(paths), tuple(tails))


def _parts(text: str, place: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        if text[at : at + 2] in ("{{", "}}"):
            yield "text", text[at]
            at += 2
        elif text[at] == "{":
            end = text.find("}", at)
            if end < 0:
                raise FeatureStoreError(
                    f"{place}: expected a closing brace for the one at character {at + 1}, found none."
                )
            yield "path", text[at + 1 : end]
            at = end + 1
        elif text[at] == "}":
            raise FeatureStoreError(
                f"{place}: expected an opening brace for the closing one at character {at + 1}, found none. Write }}}} for a "
                f"brace that is part of the key."
            )
        else:
            yield "text", text[at]
            at += 1


def _checked_path(path: str, place: str) -> str:
    try:
        steps = parse_path(path).steps
    except BadPathError as error:
        raise FeatureStoreError(f"{place}: {error}.") from None
    if Every.ITEM in steps:
        raise FeatureStoreError(
            f"{place}: expected a path to one value, found `{path}`. Name an item, such as `[0]`, in place of `[]`."
        )
    return path
