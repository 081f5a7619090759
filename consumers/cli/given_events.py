"""The events of a file, as a worker would read their records."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from millstream.consumers.cli.event_file import (
    csv_lines,
    json_lines,
    json_row,
    opened,
    place,
    refuse_spread,
    text_lines,
)
from millstream.consumers.cli.produce import check_csv, encoder
from millstream.pipeline.pipeline import Pipeline
from millstream.schemas.rows import RowError


class Given(NamedTuple):
    """An event of the file, or a dead letter's."""

    where: str
    value: bytes | RowError  # as a worker would read it, or why there is no such value
    row: Mapping[str, Any] | None  # the event as an object; None: it isn't known as one


def given_events(pipeline: Pipeline, file_name: str, *, csv: bool, beside: str | None = None) -> Iterator[Given]:
    """The events of a file of JSON lines or CSV.

    Args:
        pipeline: says how its events are encoded.
        file_name: the file; - is standard input.
        csv: whether it is CSV.
        beside: a column that isn't part of the event, unless the schema has it, such as a label.

    Raises:
        WorkerError: the file can't be read, or is CSV without a schema.
    """
    name = place(file_name)
    with opened(file_name, csv=csv) as file:
        if pipeline.input.format == "json" and not csv:
            # As they are, so that a line that isn't JSON is rejected as the worker would reject it.
            for at, (number, text) in enumerate(text_lines(file)):
                if at == 0:
                    refuse_spread(file_name, number, text)
                yield given_json(f"{name}:{number}", text.encode(errors="surrogateescape"))
            return
        definition, encode = encoder(pipeline)
        if csv:
            check_csv(pipeline, definition)
        fields = {field["name"] for field in definition["fields"]} if isinstance(definition, dict) else set()
        for line in csv_lines(file, definition) if csv else json_lines(file, file_name):
            where = f"{name}:{line.number}"
            if isinstance(line.row, str):
                yield Given(where, RowError(line.row), None)
                continue
            row = {key: value for key, value in line.row.items() if key != beside or key in fields}
            try:
                yield Given(where, encode(row), line.row)
            except RowError as error:
                yield Given(where, error, line.row)


def given_json(where: str, value: bytes) -> Given:
    """An event that is JSON."""
    row = json_row(value.decode(errors="surrogateescape"), in_file=False)
    return Given(where, value, None if isinstance(row, str) else row)
