"""`millstream rollout`: shows and changes a pipeline's rollout, whose state is on its control topic. No worker needs to run.

`start` also reads the model repository, and `status` what autopilot has published on `rollout.evaluations`.
"""

import argparse
import getpass
import json
import os
import time
import uuid
from typing import Final

from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.cli.rollout_figures import (
    evaluated_text,
    evaluations_of,
    figure_lines,
    figures_as_json,
    figures_of,
    idle_lines,
    idle_of,
    mode_lines,
    needed_benefits,
    verdict_table,
)
from millstream.consumers.cli.rollout_start import entry_of
from millstream.consumers.cli.rollout_wait import wait
from millstream.consumers.cli.rollout_words import (
    as_json,
    change_line,
    file_notes,
    history_table,
    print_table,
    seen_as_json,
    status_lines,
    step_lines,
    without_rollout,
)
from millstream.consumers.control.errors import CommandRefusedError, ControlTopicError
from millstream.consumers.control.reader import ControlReader
from millstream.consumers.control.state import Seen
from millstream.consumers.control.topic import open_reader, open_writer, require_control_topic, rollout_of
from millstream.consumers.rollout.changes import Command, commanded_record, started_record
from millstream.consumers.rollout.declared import steps_of
from millstream.consumers.rollout.progress import ENDED, BadCommandError
from millstream.consumers.rollout.record import RolloutRecord
from millstream.consumers.rollout.revisions import Change, StaleRevisionError, refuse_stale
from millstream.consumers.rollout.steps import Steps
from millstream.consumers.schema_store import open_store
from millstream.pipeline.pipeline import Pipeline
from millstream.pipeline.printable import printable
from millstream.pipeline.rollout_section import Rollout
from millstream.topics.admin import Admin

_HOLDS: Final = "autopilot: hold: "
"""How the notes of an evaluation begin that autopilot has decided to hold on."""


def run(args: argparse.Namespace) -> int:
    """Show or change the rollout; `wait` returns the exit codes of `rollout_wait`."""
    pipeline = read_pipeline(args)
    rollout_of(pipeline)
    require_control_topic(Admin(pipeline.client_config()), pipeline)
    with open_reader(pipeline, open_store(pipeline)) as reader:
        seen = reader.read_to_end()
        match args.action:
            case "status":
                return _status(pipeline, reader, seen, args)
            case "history":
                return _history(seen, args)
            case "wait":
                return wait(pipeline, reader, args)
        return _change(pipeline, reader, args)


def _status(pipeline: Pipeline, reader: ControlReader, seen: list[Seen], args: argparse.Namespace) -> int:
    record, now = reader.record, clock()
    published = evaluations_of(pipeline, open_store(pipeline))
    found = None if record is None else figures_of(published, record, now)
    says = idle_of(published, now) if record is None or record.state in ENDED else None
    needed = needed_benefits(pipeline)
    if args.json:
        evaluation = {} if found is None else {"evaluation": figures_as_json(found, needed)}
        said = {} if says is None else {"autopilot": {"at": says.now, "notes": list(says.notes)}}
        print(json.dumps(as_json(pipeline, record, reader.problem) | evaluation | said))
        return 0
    lines = without_rollout(pipeline) if record is None else status_lines(pipeline, record, now, seen)
    problem = [f"problem   {reader.problem}"] if reader.problem else []
    print("\n".join([*(lines if not reader.unknown else []), *problem]))
    if record is not None and found is not None:
        for line in figure_lines(found, record, now):
            print(line)
        if not isinstance(found, str):
            print_table(verdict_table(found, needed))
    current = says if record is None or record.state in ENDED else found
    for line in (*idle_lines(says, now), *mode_lines(pipeline, current, record)):
        print(line)
    return 0


def _history(seen: list[Seen], args: argparse.Namespace) -> int:
    if args.json:
        for own in seen:
            print(json.dumps(seen_as_json(own)))
    else:
        print_table(history_table(seen))
    return 0


def _change(pipeline: Pipeline, reader: ControlReader, args: argparse.Namespace) -> int:
    if args.revision is not None:
        try:
            refuse_stale(pipeline.name, reader.record, args.revision)
        except StaleRevisionError as error:
            raise CommandRefusedError(f"{error}: millstream rollout status PIPELINE") from None
    before = reader.record
    record = _started(pipeline, reader, args) if args.action == "start" else _commanded(pipeline, reader, args)
    open_writer(pipeline, open_store(pipeline), reader).write(record)
    if args.json:
        print(json.dumps(as_json(pipeline, record, "")))
    else:
        notes = [*step_lines(pipeline, before, record), *file_notes(pipeline, record)]
        print("\n".join([change_line(record), *map(printable, notes)]))
    return 0


def _started(pipeline: Pipeline, reader: ControlReader, args: argparse.Namespace) -> RolloutRecord:
    steps, entry = entry_of(pipeline, reader.record, args)
    return started_record(steps, entry, reader.record, _change_of(args))


def _commanded(pipeline: Pipeline, reader: ControlReader, args: argparse.Namespace) -> RolloutRecord:
    current, rollout = reader.record, rollout_of(pipeline)
    if reader.unknown:
        raise ControlTopicError(
            f"topic {rollout.topic}: {reader.problem}. Start the rollout anew: millstream rollout start PIPELINE"
        )
    if current is None:
        raise CommandRefusedError(f"{args.action}: there is no rollout. Start one: millstream rollout start PIPELINE")
    command = Command(
        args.action,
        shares=dict(getattr(args, "shares", ())),
        variant=getattr(args, "variant", ""),
        keys=dict(getattr(args, "keys", ())),
        fields={(path, value): variant for path, value, variant in getattr(args, "fields", ())},
    )
    _refuse_unread(rollout, command)
    try:
        steps = steps_of(rollout, current.strategy)
        if args.action == "approve" and steps.shares and current.state in ("running", "inconclusive"):
            raise CommandRefusedError(_not_passed(pipeline, steps, current))
        return commanded_record(steps, current, command, _change_of(args))
    except BadCommandError as error:
        raise CommandRefusedError(f"{error}.") from None
    except ValueError as error:
        raise ControlTopicError(f"topic {rollout.topic}, revision {current.revision}: {error}.") from None


def _not_passed(pipeline: Pipeline, steps: Steps, current: RolloutRecord) -> str:
    """Why a step that is evaluated can't be approved, and what it lacks."""
    now = clock()
    found = figures_of(evaluations_of(pipeline, open_store(pipeline)), current, now)
    told, age = (
        (f"the step's evaluation ({found})", "")
        if isinstance(found, str)
        else ("; ".join(found.notes), f"The step was {evaluated_text(found, current, now)}. ")
    )
    if told.startswith("autopilot: ") and not told.startswith(_HOLDS):
        acts = "only advises (`rollout.mode: advise`)" if steps.mode == "advise" else "has not written its decision yet"
        return (
            f"approve: the rollout is {current.state}, and does not wait for approval, because autopilot {acts}. Its newest "
            f"evaluation says: {told.removeprefix('autopilot: ').rstrip('.')}. {age}`millstream rollout step PIPELINE` goes on "
            "to the next step."
        )
    return (
        f"approve: the rollout is {current.state}, because its step has not passed yet. A step must pass before somebody can "
        f"approve the next one. What is missing: {told.removeprefix(_HOLDS).rstrip('.')}. {age}See `millstream rollout status "
        "PIPELINE`. `millstream rollout step PIPELINE` goes on without the checks."
    )


def _refuse_unread(rollout: Rollout, command: Command) -> None:
    for (path, _), variant in command.fields.items():
        if variant and path not in rollout.override_fields:
            there = ", ".join(rollout.override_fields) or "none"
            raise CommandRefusedError(
                f"--field {path}: expected a field of `rollout.override_fields` ({there}), because workers read only those. "
                "Add it, and restart them."
            )


def _change_of(args: argparse.Namespace) -> Change:
    return Change(uuid.uuid4().hex, clock(), args.by or _user(), args.action, args.reason)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return f"user {os.getuid()}"


def clock() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
