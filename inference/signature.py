"""A model's signature: its inputs with the event fields that fill them, and its outputs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from millstream.inference.conversions import PLAIN, Conversion, Splitter
from millstream.inference.errors import ModelConfigError
from millstream.inference.fallbacks import with_fallback
from millstream.inference.ragged import Ragged
from millstream.inference.times import Time
from millstream.schemas.dtypes import Dtype, ListOf
from millstream.schemas.lookup_columns import looked_up
from millstream.schemas.paths import Every, parse_path, text_of

DTYPES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "bool": np.dtype(np.bool_),
    "string": np.dtype(object),
}
"""Tensor element types that event fields can fill: name in config.yaml -> numpy's type."""

FLOATS = ("float16", "float32", "float64")
LARGEST_FLOAT16 = 65504.0

_FILLED_BY = {
    **dict.fromkeys(FLOATS, ("int32", "int64", "float32", "float64", "boolean")),
    **dict.fromkeys(("int32", "int64"), ("int32", "int64")),
    "bool": ("boolean",),
    "string": ("string",),
}
"""Tensor's type -> the fields' types that fill it without changing their meaning (precision may narrow)."""

_LEAVES = {
    **dict.fromkeys(FLOATS, "float64"),
    **dict.fromkeys(("int32", "int64"), "int64"),
    "bool": "boolean",
    "string": "string",
}
"""Tensor's type -> the field's type in JSON without a schema."""

_BOTH_TAKE = {
    frozenset(("float64", "int64")): "int64",
    frozenset(("float64", "boolean")): "boolean",
    frozenset(("float64", "scalar")): "int64",
    frozenset(("int64", "scalar")): "int64",
    frozenset(("string", "scalar")): "string",
    frozenset(("mixed", "scalar")): "mixed",
}
"""The types that two tensors want of one field -> the type that both take."""


@dataclass(frozen=True, slots=True)
class TensorInput:
    """One input tensor and the event fields that fill it."""

    tensor: str
    fields: tuple[str, ...]  # paths of scalar fields, one column each; or of the one array field
    array: bool  # True: the one field is an array
    dtype: str  # a key of DTYPES
    shape: tuple[int, ...]  # of one event; for variable length, of the longest event
    max_length: int | None = None  # most items of an event; None: fixed length
    pad: float | str = 0  # the padding behind an event's own items, for variable length or with `pads`
    mask: bool = False  # not filled by a field: 1 for each item of the event's inputs of variable length, 0 for padding
    token_types: bool = False  # not filled by a field: which of a tokenizer's texts each token is of, 0 or 1
    # The place in the pipeline file that names the fields; empty: config.yaml names them.
    mapped_at: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)  # of config.yaml, where the entry begins; 0: not known
    conversions: tuple[Conversion, ...] = ()  # of each field; empty: the fields' values are taken as they are
    pads: bool = False  # whether shorter arrays of a fixed length are padded
    truncates: bool = False  # whether longer arrays lose their last items

    @property
    def width(self) -> int:
        """The number of elements of one event."""
        return prod(self.shape)

    @property
    def converted_fields(self) -> Iterable[tuple[str, Conversion]]:
        """Each field with its conversion."""
        return zip(self.fields, self.conversions or repeat(PLAIN), strict=False)

    @property
    def reads(self) -> Iterator[tuple[str, Conversion]]:
        """Each path that is read, of a field or of its fallback, with the conversion of its values."""
        for path, conversion in self.converted_fields:
            yield path, conversion
            if conversion.fallback is not None:
                yield conversion.fallback, conversion

    @property
    def sources(self) -> list[str]:
        """What fills the elements, in words: each field, with its fallback."""
        return [with_fallback(path, conversion.fallback) for path, conversion in self.converted_fields]

    @property
    def splitter(self) -> Splitter | None:
        """What makes the array of fields that are none; None: the field is an array."""
        return self.conversions[0].splitter if self.conversions else None

    def leaf(self, conversion: Conversion) -> str:
        """The type of a field in JSON without a schema; for an array field, the type of its items."""
        return _LEAVES[self.dtype] if conversion.reader is None else conversion.reader.leaf


@dataclass(frozen=True, slots=True)
class TensorOutput:
    """One output tensor and what the prediction has of it."""

    tensor: str
    name: str
    classes: tuple[str, ...] = ()  # names of the classes; empty: they have none
    top: int | None = None  # how many of the best classes; None: all scores
    threshold: float | None = None  # the score from which on the answer is true, or the second class
    at: str = field(default="", compare=False)  # where config.yaml names it, for messages; empty: not known

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it may have in the prediction, see `outputs.named`."""
        if self.top is not None:
            return self.name, scores_name(self.name)
        if self.classes and self.threshold is None:
            return self.name, *(class_name(self.name, each) for each in self.classes)
        return (self.name,)

    @property
    def sure_names(self) -> tuple[str, ...]:
        """Those of `names` that each prediction has. Indices of classes become one output, and scores one for each class."""
        return self.names if not self.classes or self.top is not None or self.threshold is not None else ()


def class_name(output: str, of: str) -> str:
    """The name of the output that has the score of one class."""
    return f"{output}.{of}"


def scores_name(output: str) -> str:
    """The name of the output that has the scores of the best classes."""
    return f"{output}_scores"


@dataclass(frozen=True, slots=True)
class Signature:
    """All inputs and outputs of a model."""

    inputs: tuple[TensorInput, ...]
    outputs: tuple[TensorOutput, ...]

    @property
    def fields(self) -> list[str]:
        """The columns that the model needs, each once: of event fields, and of look-ups (see `schemas.lookup_columns`)."""
        return list(dict.fromkeys(path for entry in self.inputs for path, _ in entry.reads))

    @property
    def paths(self) -> dict[str, str]:
        """The event fields that the model needs -> their types in JSON without a schema, see `Reader.leaf`."""
        return _paths(self.inputs)

    def with_time_formats(self, format_of: Callable[[str], str | None]) -> "Signature":
        """The signature with the formats of times that the schema states; `format_of` returns a field's, or None."""
        return replace(self, inputs=tuple(_with_time_formats(entry, format_of) for entry in self.inputs))

    def without_lookups(self) -> "Signature":
        """The signature without the inputs that a look-up fills, or fills in part."""
        inputs = tuple(entry for entry in self.inputs if not any(map(looked_up, entry.fields)))
        return replace(self, inputs=inputs)

    @property
    def output_tensors(self) -> list[str]:
        """The output tensors that the prediction needs, each once."""
        return list(dict.fromkeys(output.tensor for output in self.outputs))

    @property
    def max_length(self) -> int | None:
        """The most items of an event, for inputs of variable length; None: there are none."""
        return next((entry.max_length for entry in self.inputs if entry.max_length is not None), None)

    def at(self, length: int) -> list[TensorInput]:
        """The inputs for events of this length."""
        return [
            replace(entry, shape=(length,), max_length=None) if entry.max_length else entry for entry in self.inputs
        ]


def merged_paths(signatures: Sequence[Signature]) -> dict[str, str]:
    """The event fields that the models need -> their types in JSON without a schema."""
    return _paths(entry for signature in signatures for entry in signature.inputs)


def lookup_columns(signatures: Sequence[Signature]) -> dict[str, str]:
    """The columns of look-ups that the models need (see `schemas.lookup_columns`) -> the types of their values.

    The types are those that the values would have in an event of JSON without a schema.
    """
    return _paths((entry for signature in signatures for entry in signature.inputs), in_lookups=True)


def _paths(inputs: Iterable[TensorInput], *, in_lookups: bool = False) -> dict[str, str]:
    paths: dict[str, str] = {}
    for entry in inputs:
        for path, conversion in entry.reads:
            if (looked_up(path) is not None) is not in_lookups:
                continue
            leaf = entry.leaf(conversion)
            # If no type fits both, `check_fields` reports the tensor that the first one doesn't fill.
            paths[path] = both_take(paths.get(path, leaf), leaf) or paths[path]
    return paths


def both_take(first: str, second: str) -> str | None:
    """The type of a field, in JSON without a schema, that fills two tensors which want these types; None: there is none."""
    return first if first == second else _BOTH_TAKE.get(frozenset((first, second)))


def _with_time_formats(entry: TensorInput, format_of: Callable[[str], str | None]) -> TensorInput:
    conversions = []
    for path, conversion in entry.converted_fields:
        time = conversion.converter
        if isinstance(time, Time) and not time.format and (found := format_of(path)):
            conversions.append(replace(conversion, converter=replace(time, format=found)))
        else:
            conversions.append(conversion)
    return replace(entry, conversions=tuple(conversions)) if entry.conversions else entry


def blank(inputs: Sequence[TensorInput], events: int) -> dict[str, Any]:
    """Inputs of zeros and empty strings. Those of variable length have the greatest length, and are ragged."""
    filled = [entry for entry in inputs if entry.max_length is None or not entry.mask]
    return {entry.tensor: _blank(entry, events) for entry in filled}


def _blank(entry: TensorInput, events: int) -> npt.NDArray[Any] | Ragged:
    value = "" if entry.dtype == "string" else int(entry.mask)
    array = np.full((events, *entry.shape), value, DTYPES[entry.dtype])
    return (
        array if entry.max_length is None else Ragged.of_lengths(array.reshape(-1), np.full(events, entry.max_length))
    )


def check_fields(signature: Signature, columns: Mapping[str, Dtype], place: str, schema_name: str) -> None:
    """Check that the event's fields can fill the tensors. `schema_name`: empty for JSON without a schema.

    Raises:
        ModelConfigError: fields don't exist, or don't fit their tensors: a line for each.
    """
    problems = []
    for entry in signature.inputs:
        for name, conversion in entry.reads:
            found = columns.get(name)
            there = "no such field" if found is None else _misfit(entry, conversion, found)
            if there:
                source, have, end = _source(name, schema_name)
                advice = _advice(entry, name, found)
                problems.append(
                    f"{entry.mapped_at or place}: tensor `{entry.tensor}` takes {_expected(entry, conversion)} from {source}, "
                    f"but {have} {there}. {advice}{end}."
                )
        problems += _fallbacks_of_other_types(entry, columns, entry.mapped_at or place)
    if problems:
        raise ModelConfigError("\n".join(problems))


def _fallbacks_of_other_types(entry: TensorInput, columns: Mapping[str, Dtype], place: str) -> Iterator[str]:
    """A message for each fallback that has texts where its field has numbers, or the reverse: one column can't hold both."""
    for name, conversion in entry.converted_fields:
        both = [columns.get(path) for path in (name, conversion.fallback or name)]
        fit = all(found is not None and not _misfit(entry, conversion, found) for found in both)
        if fit and len({_item(found) in ("string", "mixed") for found in both}) > 1:
            yield (
                f"{place}: tensor `{entry.tensor}` takes field `{name}` and its fallback `{conversion.fallback}`: expected texts "
                f"in both or numbers in both, found {both[0]} and {both[1]}. Name another fallback, or leave it out."
            )


def _item(found: Dtype | None) -> Dtype | None:
    return found.items if isinstance(found, ListOf) else found


def _source(name: str, schema_name: str) -> tuple[str, str, str]:
    """Words for a message: the field, what has it, and the end of the advice."""
    if (found := looked_up(name)) is not None:
        return f"field `{found.field}` of look-up `{found.lookup}`", "the feature store has", ""
    if schema_name:
        return f"the event's field `{name}`", f"schema `{schema_name}` has", ", or change the schema"
    return f"the event's field `{name}`", "the events have", ""


def _advice(entry: TensorInput, field: str, found: Dtype | None) -> str:
    kind = _item(found)
    if kind == "mixed":
        return f"Write `{{field: {field}, type: any}}`"
    if kind == "binary":
        return "No tensor takes bytes or decimals: let the producer send a double, or a text for `type: text`. Name another field"
    is_list = isinstance(found, ListOf) and not entry.array and looked_up(field) is None
    item = f": `{_first_item(field)}` is the first item of the list" if is_list else ""
    if entry.mapped_at:
        return f"Name another field{item}"
    return f"Change the mapping in the model's config.yaml (or `model.inputs` in the pipeline file){item}"


def _first_item(path: str) -> str:
    """The path to the first item of the list that a path leads to."""
    steps = parse_path(path).steps
    return text_of([0 if step is Every.ITEM else step for step in (steps if Every.ITEM in steps else (*steps, 0))])


def _expected(entry: TensorInput, conversion: Conversion) -> str:
    if conversion.splitter is not None:
        return conversion.splitter.expected
    item = entry.dtype if conversion.converter is None else conversion.converter.expected
    count = f"up to {entry.max_length}" if entry.max_length else f"{entry.width}"
    return f"an array of {count} x {item}" if entry.array else item


def _misfit(entry: TensorInput, conversion: Conversion, found: Dtype) -> str:
    """What is there in place of what the tensor takes; empty if it fits."""
    takes = _FILLED_BY[entry.dtype] if conversion.reader is None else conversion.reader.takes
    if not entry.array or conversion.splitter is not None:
        return "" if found in takes else f"{_in_words(found)} there"
    if not isinstance(found, ListOf):
        return f"{_in_words(found)} there"
    return "" if found.items in takes else f"an array of {_in_words(found.items)} there"


def _in_words(found: Dtype) -> str:
    return "values of several types" if found == "mixed" else str(found)
