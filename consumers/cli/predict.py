"""`millstream predict`: runs events through a pipeline's mapping and model without Kafka, and shows features and outputs."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from itertools import islice, starmap
from typing import Any

from millstream.consumers.cli.event_advice import advice_on
from millstream.consumers.cli.event_file import is_csv, place
from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.cli.given_events import Given, given_events, given_json
from millstream.consumers.cli.selected_letters import events, open_reader
from millstream.consumers.cli.usage.dead_letters import SELECTING
from millstream.consumers.errors import WorkerError
from millstream.consumers.events import Rejection
from millstream.consumers.observability.metrics import FILTERED
from millstream.consumers.observability.totals import Totals, counted_by_reason
from millstream.consumers.resilience.limited_retry import LimitedRetry
from millstream.consumers.scaffold.missing_fields import MissingFields
from millstream.consumers.worker.offline import Answer, answers
from millstream.consumers.worker.plan import Plan, make_plan
from millstream.inference.errors import InferenceError
from millstream.inference.replaced import Replacements
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.printable import printable, printable_json
from millstream.pipeline.sections import OnError
from millstream.schemas.errors import SchemaError
from millstream.schemas.json.mismatch import LONE_SURROGATE
from millstream.schemas.json_floats import json_float
from millstream.schemas.lookup_columns import looked_up
from millstream.schemas.paths import parse_path, value_at
from millstream.schemas.wording import counted, first_of
from millstream.topics.dead_letters import Unread

TOGETHER = 1000  # events that are decoded in one call
MAX_HINTS = 5  # about different errors
MAX_FILTERED = 200  # events that are searched for the values that a filter compares
MAX_SHOWN_ITEMS = 8  # items of a list for people; `--json` has all

UNREAD = ("undecodable", "unknown_schema")  # reasons of events that even a filter may be unable to read
NO_EVENT = "no_event"  # the reason of a row that is no event of the schema; no dead letter has it


def run(args: argparse.Namespace) -> int:
    """Print what comes of each event. Returns 1 if an event that passes the filter gets no prediction, or if none passes."""
    if (named := [name for name in SELECTING if getattr(args, name)]) and not args.dead_letters:
        option = f"--{named[0].replace('_', '-')}"
        args.parser.error(f"{option} selects dead letters. Add --dead-letters, or leave {option} out.")
    if args.dead_letters and args.file != "-":
        args.parser.error(f"--dead-letters takes its events from Kafka, so it takes no file, found {args.file}.")
    with redirect_stdout(sys.stderr):  # what a Python model prints is no answer
        plan = make_plan(read_pipeline(args))
    if args.dead_letters:
        return _of_dead_letters(plan, args)
    given = given_events(plan.pipeline, args.file, csv=is_csv(args))
    return _tell(plan, given, args)


def _of_dead_letters(plan: Plan, args: argparse.Namespace) -> int:
    unread = list[Unread]()
    with open_reader(plan.pipeline, plan.store) as reader:
        letters = events(reader, args, unread)
        given = (given_json(str(position), value) for position, value in letters)
        return _tell(plan, given, args) or (1 if unread else 0)


def _tell(plan: Plan, values: Iterator[Given], args: argparse.Namespace) -> int:
    print_one = _print_json if args.json else _print_text
    told = _Told(plan)
    retry = LimitedRetry(args.timeout, _say)
    while some := list(islice(values, told.left(args.limit))):
        printed = 0
        try:
            for given, answer in _answered(plan, some, retry, told.replaced.append):
                print_one(given.where, answer)
                told.note(given, answer)
                printed += 1
        except (WorkerError, InferenceError, SchemaError, MemoryError, KeyboardInterrupt):
            first = some[min(printed, len(some) - 1)].where  # Ctrl-C may come behind the last one
            _say(f"{told.counts()}; {first} and all events after it were not run")
            raise
    if not told.predicted and not told.reasons:
        _say("No dead letter with an event is selected." if args.dead_letters else f"{place(args.file)} has no events.")
        return 0
    for line in told.lines():
        _say(line)
    return 0 if told.predicted and not set(told.reasons) - {FILTERED} else 1


class _Told:
    """What came of the events so far, for the lines below them."""

    def __init__(self, plan: Plan) -> None:
        self.predicted, self.reasons = 0, Counter[str]()
        self.replaced: list[Replacements] = []
        self._plan = plan
        self._missing = _missing_fields(plan)
        self._filtered: list[Mapping[str, Any]] = []  # the first ones
        self._hints: dict[tuple[str, str], str] = {}  # of each error, the first one; each once

    def note(self, given: Given, answer: Answer) -> None:
        """Take an event into account."""
        why = answer.rejection
        if why is not None and why.reason == FILTERED:
            self.reasons[FILTERED] += 1
            if given.row is not None and len(self._filtered) < MAX_FILTERED:
                self._filtered.append(given.row)
            return
        if given.row is not None:
            self._missing.note(given.row)
        if why is None:
            self.predicted += 1
            return
        self.reasons[why.reason] += 1
        advice = advice_on(self._plan.pipeline, self._plan.model.signature, why.reason, why.error, given.row)
        hint = f"{why.reason}: {advice}"
        if advice and hint not in self._hints.values():
            # One error has other hints for events with other fields.
            self._hints.setdefault((why.reason, why.error), hint)

    def left(self, limit: int | None) -> int:
        """How many events to take next. `limit`: of those that pass the filter; None: all."""
        passed = self.predicted + self.reasons.total() - self.reasons[FILTERED]
        return TOGETHER if limit is None else min(limit - passed, TOGETHER)

    def counts(self) -> str:
        """How many events were predicted, and what would become of the others."""
        return _counts(self._plan.pipeline.on_error, self.predicted, self.reasons)

    def lines(self) -> Iterator[str]:
        """Warnings, counts and advice."""
        replaced = sum(self.replaced, Replacements())
        yield from _warnings(self._plan, self._missing, replaced)
        if FILTERED in self.reasons and not self.predicted and not set(self.reasons) - {FILTERED, *UNREAD}:
            yield _none_passes(self._plan.pipeline, self._filtered)
        yield ", ".join((self.counts(), *Totals.of_model_inputs(replaced).replaced()))
        yield from _first_hints([*self._hints.values()])
        yield from _explained(self.reasons)


def _warnings(plan: Plan, missing: MissingFields, replaced: Replacements) -> Iterator[str]:
    """The fields that all events lack, and those whose values were all replaced."""
    route = plan.pipeline.models and plan.pipeline.models.route
    # Of models that a route chooses, each reads only the fields of its own events. If it lacks one, the event is rejected.
    if route is None:
        yield from missing.warnings()
    yield from _replaced(plan, replaced, () if route else missing.paths)


def _none_passes(pipeline: Pipeline, events: Sequence[Mapping[str, Any]]) -> str:
    """A warning that says what events have in the fields of the filter."""
    told = []
    for field in dict.fromkeys(condition.field for condition in pipeline.input.filter):
        values = dict.fromkeys(printable_json(value_at(event, parse_path(field).steps)) for event in events)
        told.append(f"{field}: {first_of([*values], MAX_SHOWN_ITEMS)}")
    return f"warning: no event passes input.filter. The events have in {'; in '.join(told)}"


def _first_hints(hints: Sequence[str]) -> Iterator[str]:
    """As many as people read at once, and how to see the others."""
    yield from hints[:MAX_HINTS]
    if len(hints) > MAX_HINTS:
        yield (
            f"... and advice on {counted(len(hints) - MAX_HINTS, 'more error')}. To see it, correct these first and run "
            "`millstream predict` again, or give it only the other events."
        )


def _missing_fields(plan: Plan) -> MissingFields:
    """Counts the fields that events without a schema lack: `check` finds what a schema lacks."""
    told: list[tuple[str, str]] = []
    for source, words in plan.decoder.replaceable.items():
        if source.option != "unknown" and source.fallback is None:
            told.append((source.field, words.instead))
    inputs = plan.model.signature.inputs
    for field, fallback in ((path, use.fallback) for entry in inputs for path, use in entry.converted_fields):
        if fallback is not None:
            told += (field, f"its fallback is {fallback}"), (fallback, f"it is the fallback of {field}")
    instead: dict[str, str] = {}
    for field, text in told:  # one field may be the time, the cost and a feature
        instead[field] = "; ".join(filter(None, (instead.get(field), text)))
    lists = [path for entry in inputs if entry.array for path, _ in entry.reads]
    return MissingFields(_paths(plan) if plan.reader is None else (), instead, lists)


def _replaced(plan: Plan, replaced: Replacements, told: Collection[str]) -> Iterator[str]:
    """A warning for each field whose values were all replaced. `told`: fields that have a warning already."""
    if replaced.events < 2:  # a single event may lack it by right
        return
    for source, values in replaced.sources.items():
        of = replaced.out_of(source)
        if values.number == of and of and (source.fallback is not None or source.field not in told):
            yield f"warning: {plan.decoder.replaceable[source].text(source, values, f'{of:,}')}"


def _answered(
    plan: Plan, some: Sequence[Given], retry: LimitedRetry, note: Callable[[Replacements], object]
) -> Iterator[tuple[Given, Answer]]:
    """Each event with what came of it, in order. `note`: see `answers`."""
    id_path = plan.pipeline.input.event_id
    answered = answers(plan, [given.value for given in some if isinstance(given.value, bytes)], retry, note)
    for given in some:
        if isinstance(given.value, bytes):
            answer = next(answered)
        else:  # the file's row can't be encoded, so it never becomes an event, and no worker would see it
            answer = Answer(None, rejection=Rejection(NO_EVENT, str(given.value)))
        if given.row is not None and answer.event_id is None and id_path is not None:
            answer = replace(answer, event_id=_stated_id(given.row, id_path))
        yield given, answer


def _counts(on_error: OnError, predicted: int, reasons: Counter[str]) -> str:
    """How many events a worker would predict, and what it would do with the others."""
    fates = {"dead letters": Counter[str]()}  # named even if there are none
    for reason, count in reasons.items():
        if reason == NO_EVENT:
            fate = "refused"
        elif reason in on_error.stop:
            fate = "at which a worker would stop"
        else:
            fate = "skipped" if reason in {FILTERED, *on_error.skip} else "dead letters"
        fates.setdefault(fate, Counter())[reason] = count
    return ", ".join([f"{counted(predicted, 'event')} predicted", *starmap(counted_by_reason, fates.items())])


def _say(text: str) -> None:
    """Print a message behind the events that are printed so far."""
    sys.stdout.flush()
    print(printable(text), file=sys.stderr, flush=True)


def _explained(reasons: Collection[str]) -> Iterator[str]:
    """What to do about events without a prediction, or where their reasons are explained."""
    if NO_EVENT in reasons:
        yield "no_event: correct these lines, `millstream produce` refuses them, too."
    if set(reasons) - {NO_EVENT, FILTERED}:
        yield "`millstream docs wire-format` explains the reasons."


def _stated_id(row: Mapping[str, Any], path: str) -> str | None:
    """The ID that a rejected event states, if it is one."""
    stated = value_at(row, parse_path(path).steps)
    return str(stated) if isinstance(stated, str | int) and not isinstance(stated, bool) else None


def _paths(plan: Plan) -> list[str]:
    """The paths that the pipeline and its model read, each once."""
    pipeline = plan.pipeline
    own = [pipeline.input.event_id, pipeline.input.event_time, pipeline.batch.cost, *pipeline.output.include]
    named = [*own, *plan.model.signature.fields]
    return list(dict.fromkeys(path for path in named if path is not None and looked_up(path) is None))


def _print_json(where: str, answer: Answer) -> None:
    found: dict[str, Any] = {"place": where, "event_id": answer.event_id, "features": answer.features}
    if answer.model is not None:
        found |= {"model": answer.model.name, "version": answer.model.version}
    if answer.chosen_by:
        found["chosen_by"] = answer.chosen_by
    if answer.rejection is None:
        found["outputs"] = answer.outputs
        if answer.event:
            found["event"] = answer.event
    else:
        found |= {"reason": answer.rejection.reason, "error": answer.rejection.error}
    print(printable_json(_in_json(found)))


def _in_json(value: Any) -> Any:
    """The value as programs can read it: without NaN and infinity, as in predictions, and without halves of characters."""
    match value:
        case dict():
            return {_in_json(name): _in_json(each) for name, each in value.items()}
        case list():
            return [_in_json(each) for each in value]
        case float():
            return json_float(value)
        case str():
            return LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
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
    if answer.model is not None:
        places = f" ({printable(first_of(answer.chosen_by, MAX_SHOWN_ITEMS))})" if answer.chosen_by else ""
        print(f"  => model {answer.model}{places}")
    for name, value in answer.outputs.items():
        print(f"  => {printable(name)}: {_shown(value)}")
    for name, value in answer.event.items():
        print(f"  => event, {printable(name)}: {_shown(value)}")
    if answer.rejection is not None:
        fate = "skipped" if answer.rejection.reason == FILTERED else "no prediction"
        print(f"  => {fate} ({answer.rejection.reason}): {printable(answer.rejection.error)}")


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(value) > MAX_SHOWN_ITEMS:
        return f"{printable_json(value[:MAX_SHOWN_ITEMS])[:-1]}, ...] ({len(value)} items)"
    return printable_json(value)
