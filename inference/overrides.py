"""Puts the fields that a pipeline file maps to an input in the place of those in config.yaml."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from millstream.inference.config_file import message_of
from millstream.inference.config_sections import CONVERSIONS, SECTIONS, FieldOptions, InputMapping
from millstream.inference.errors import ModelConfigError
from millstream.inference.tensor_inputs import Place

FieldSpec = str | Mapping[str, Any]
"""An event field's path, or a mapping with `field` and the options of an entry of `fields` in config.yaml."""
Fields = Mapping[str, FieldSpec | Sequence[FieldSpec]]
"""Tensor -> the event's field that fills it (an array), or fields (scalars)."""


def overridden(entry: InputMapping, given: FieldSpec | Sequence[FieldSpec], place: Place) -> InputMapping:
    """The input with these fields. Each keeps the options that config.yaml has in its place, unless it states others.

    A field that states one kind of conversion loses another that config.yaml has. Without `from`, it is the event's; without
    `fallback`, it has none.

    Args:
        entry: the input in config.yaml.
        given: its fields in the pipeline file.
        place: places within `given`.

    Raises:
        ModelConfigError: an option is unknown, has a wrong value, or contradicts another.
    """
    try:
        return InputMapping.model_validate(_merged(entry, given))
    except ValidationError as error:
        at = at_override(place)
        problems = [
            f"{at(*detail['loc'])}: {message_of(detail, ('inputs', 0, *detail['loc']), SECTIONS)}"
            for detail in error.errors(include_url=False)
        ]
    # Raised outside of `except`, so that the traceback doesn't show pydantic's error too.
    raise ModelConfigError("\n".join(problems))


def at_override(place: Place) -> Place:
    """The places of an input's options in the pipeline file, where a list of fields has no key `fields`."""

    def at(*loc: str | int) -> str:
        return place(*(loc[1:] if loc[:1] == ("fields",) else loc))

    return at


def _merged(entry: InputMapping, given: FieldSpec | Sequence[FieldSpec]) -> dict[str, Any]:
    written = entry.model_dump(by_alias=True, exclude_unset=True)
    before = written.pop("fields", None) or []
    written.pop("field", None)
    if isinstance(given, str | Mapping):
        return _over(written, _mapping(given))
    for name, option in FieldOptions.model_fields.items():
        written.pop(option.alias or name, None)
    fields = [_over(before[at] if at < len(before) else {}, _mapping(spec)) for at, spec in enumerate(given)]
    return {**written, "fields": fields}


def _over(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Options before, with those that are given in their place."""
    kinds = [options for options in CONVERSIONS.values() if not given.keys().isdisjoint(options)]
    lost = {name for options in CONVERSIONS.values() if kinds and options not in kinds for name in options}
    lost |= {"from", "fallback"}  # say where the other field was; `given` names a field, and where it is
    return {name: value for name, value in before.items() if name not in lost} | dict(given)


def _mapping(spec: FieldSpec) -> dict[str, Any]:
    return {"field": spec} if isinstance(spec, str) else dict(spec)
