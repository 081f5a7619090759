"""`millstream predict`: runs events through a pipeline's mapping and model without Kafka, and shows features and outputs."""

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

from millstream.consumers.cli.arguments import add_pipeline, positive, read_pipeline
from millstream.consumers.cli.dead_letters import event_of, letter_position
from millstream.consumers.cli.event_file import add_event_file, csv_lines, is_csv, json_lines, opened, place, text_lines
from millstream.consumers.cli.produce import encoder
from millstream.consumers.errors import WorkerError
from millstream.consumers.events import Rejection
from millstream.consumers.worker.offline import Answer, answers
from millstream.consumers.worker.plan import Plan, make_plan
from millstream.pipeline.printable import printable, printable_json
from millstream.schemas.json_floats import json_float
from millstream.schemas.rows import RowError

TOGETHER = 1000  # events that are decoded in one call
MAX_SHOWN_ITEMS = 8  # items of a list for people; `--json` has all
Value = bytes | RowError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    add_event_file(parser)
    parser.add_argument("--limit", type=positive, metavar="N", help="stop after N events")
    parser.add_argument(
        "--dead-letter",
        type=letter_position,
        metavar="P@O",
        help="run the event of this dead letter, as `millstream dead-letters list` prints its position, in place of a file",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per event")


def run(args: argparse.Namespace) -> int:
    """Print what comes of each event. Returns 1 if an event gets no prediction."""
    if args.dead_letter is not None and (args.file != "-" or args.limit is not None):
        raise WorkerError("--dead-letter runs one event, so it takes no FILE and no --limit. Leave them out.")
    plan = make_plan(read_pipeline(args))
    if args.dead_letter is not None:
        return _tell(plan, iter([(str(args.dead_letter), event_of(plan.pipeline, plan.store, args.dead_letter))]), args)
    return _tell(plan, islice(_values(plan, args), args.limit), args)


def _values(plan: Plan, args: argparse.Namespace) -> Iterator[tuple[str, Value]]:
    """The place of each event in the file, and its value as a worker would read it."""
    name = place(args.file)
    with opened(args.file) as file:
        if plan.pipeline.input.format == "json" and not is_csv(args):
            # As they are, so that a line that isn't JSON is rejected as the worker would reject it.
            yield from (
                (f"{name}:{number}", text.encode(errors="surrogateescape")) for number, text in text_lines(file)
            )
            return
        definition, encode = encoder(plan.pipeline)
        for line in csv_lines(file, definition) if is_csv(args) else json_lines(file):
            try:
                if isinstance(line.row, str):
                    raise RowError(line.row)
                yield f"{name}:{line.number}", encode(line.row)
            except RowError as error:
                yield f"{name}:{line.number}", error


def _tell(plan: Plan, values: Iterator[tuple[str, Value]], args: argparse.Namespace) -> int:
    print_one = _print_json if args.json else _print_text
    predicted = rejected = 0
    while some := list(islice(values, TOGETHER)):
        answered = iter(answers(plan, [value for _, value in some if isinstance(value, bytes)]))
        for where, value in some:
            # What the file's row can't be encoded to never becomes an event, so no worker would see it.
            answer = (
                next(answered)
                if isinstance(value, bytes)
                else Answer(None, rejection=Rejection("no_event", str(value)))
            )
            print_one(where, answer)
            predicted, rejected = predicted + (answer.rejection is None), rejected + (answer.rejection is not None)
    print(f"{predicted} events predicted, {rejected} without a prediction", file=sys.stderr)
    return 1 if rejected else 0


def _print_json(where: str, answer: Answer) -> None:
    found: dict[str, Any] = {"place": where, "event_id": answer.event_id, "features": answer.features}
    if answer.rejection is None:
        found["outputs"] = answer.outputs
    else:
        found |= {"reason": answer.rejection.reason, "error": answer.rejection.error}
    print(printable_json(_in_json(found)))


def _in_json(value: Any) -> Any:
    """The value with texts in place of NaN and infinity, which JSON doesn't have; as in predictions."""
    match value:
        case dict():
            return {name: _in_json(each) for name, each in value.items()}
        case list():
            return [_in_json(each) for each in value]
        case float():
            return json_float(value)
    return value


def _print_text(where: str, answer: Answer) -> None:
    print(where if answer.event_id is None else f"{where}  event {printable(answer.event_id)}")
    for tensor, fields in answer.features.items():
        if isinstance(fields, dict):
            print(f"  {tensor}")
            for field, value in fields.items():
                print(f"    {printable(field)}: {_shown(value)}")
        else:
            print(f"  {tensor}: {_shown(fields)}")
    for name, value in answer.outputs.items():
        print(f"  => {printable(name)}: {_shown(value)}")
    if answer.rejection is not None:
        print(f"  => no prediction ({answer.rejection.reason}): {printable(answer.rejection.error)}")


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(value) > MAX_SHOWN_ITEMS:
        return f"{printable_json(value[:MAX_SHOWN_ITEMS])[:-1]}, ...] ({len(value)} items)"
    return printable_json(value)
