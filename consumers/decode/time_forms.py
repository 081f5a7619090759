"""Says how each place that reads a field of times states their form: a text, or a number of a unit."""

from millstream.inference.times import Format


def written(form: Format, *, as_event_time: bool, in_mapping: bool, included_as: str) -> str:
    """The options to write so that all places read a field in one form.

    Args:
        form: of the times.
        as_event_time: whether `input.event_time` names the field.
        in_mapping: whether the mapping reads it as a time.
        included_as: the field as a key of `output.include`; empty: it isn't there with a type.
    """
    options = [f"`event_time_format: {form}` under `input`"] if as_event_time else []
    if in_mapping:
        options.append(f"`time: {form}` wherever the mapping names the field")
    if included_as:
        options.append(f"`{included_as}: {'text' if form == 'iso8601' else 'number'}` under `output.include`")
    *others, last = options
    return f"{', '.join(others)} and {last}" if others else last


def read_as_time(field: str) -> str:
    """How a mapping makes a number of a field of times as text. `field`: as in YAML."""
    return (
        "`time: iso8601` beside the field, without `type`, makes a number of a time, such as its hour: "
        f"`{{field: {field}, time: iso8601, as: hour}}`"
    )
