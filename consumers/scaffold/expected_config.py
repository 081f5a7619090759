"""The config.yaml that fits a model's own inputs and outputs, without a sample of events."""

from collections.abc import Collection
from math import prod
from typing import Any

from millstream.consumers.scaffold.guesses import DEFAULT_MAX_LENGTH, FieldGuess, InputGuess
from millstream.consumers.scaffold.model_file import ModelFile, ModelInput
from millstream.consumers.scaffold.own_fields import squeezed
from millstream.consumers.scaffold.texts import config_text
from millstream.inference.mapping import PLACEHOLDER

_MAX_LISTED = 12  # fields of one input that are listed; a wider one is more likely filled by a list


def expected_config(model: ModelFile, fields: Collection[str]) -> str:
    """The text; empty if the file doesn't say which inputs it has. `fields`: the event's, where a schema names them."""
    if not model.inputs:
        return ""
    named = {squeezed(name): name for name in fields}
    return config_text([_input(entry, named.get(squeezed(entry.tensor))) for entry in model.inputs], model.outputs, {})


def _input(entry: ModelInput, field: str | None) -> InputGuess:
    width = None if None in entry.shape else prod(size or 1 for size in entry.shape)
    shape: dict[str, Any] = {"shape": [size or 1 for size in entry.shape]}
    if width == 1:
        options = shape if len(entry.shape) != 1 else {}
        return InputGuess(entry.tensor, entry.dtype, [_field(field, "the field that fills this input")], options)
    if width is None:
        why = "the most items that an event has"
        return InputGuess(entry.tensor, entry.dtype, [_field(field)], {"max_length": DEFAULT_MAX_LENGTH}, True, why)
    if field is None and width <= _MAX_LISTED and len(entry.shape) == 1:
        fields = [_field(None) for _ in range(width)]
        why = f"name {width} fields, in the order in which the model was trained"
        return InputGuess(entry.tensor, entry.dtype, fields, {}, False, why)
    why = f"one list field with {width} items fills this input; or write `fields:` and name {width} fields"
    return InputGuess(entry.tensor, entry.dtype, [_field(field)], shape, True, why)


def _field(name: str | None, why: str = "") -> FieldGuess:
    return FieldGuess({"field": name or PLACEHOLDER}, "" if name else why)
