"""`millstream`: finds the command, runs it, and turns an error into a clear message and an exit code."""

import argparse
import errno
import gc
import importlib
import io
import logging
import os
import sys
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from millstream.consumers.cli.early_signals import SUPERVISED, command_of, raise_on_ctrl_c
from millstream.consumers.cli.extras import needs_comparison
from millstream.consumers.cli.log_lines import log_as_json
from millstream.consumers.cli.parser import Parser, meant
from millstream.consumers.cli.say import say, with_pipeline
from millstream.consumers.errors import (
    NEEDS_CHANGE,
    EventRefused,
    OffsetsForgotten,
    OffsetsPastEnd,
    PlanError,
    WorkerError,
    WorkersStopped,
    ran_short,
)
from millstream.inference.errors import InferenceError, ModelConfigError
from millstream.pipeline.errors import PipelineError
from millstream.schemas.errors import SchemaError
from millstream.schemas.failures import failure_of
from millstream.schemas.native import choose_native
from millstream.topics.errors import TopicsError

DONE, FAILED, WRONG_USE = 0, 1, 2
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

COMMANDS = {
    "init": "create a folder with a working pipeline",
    "check": "check a pipeline's file, schemas, model and topics without running it",
    "predict": "run events through the mapping and the model without Kafka, and show features and outputs",
    "profile": "measure the model at several batch sizes, and recommend the settings of its batches",
    "optimize": "write a faster version of an ONNX model beside it, and compare the two",
    "models": "list, show, fetch, diff and warm up the versions of a pipeline's model",
    "broker": "run a Kafka broker on this machine, to try things out",
    "topics": "create or show a pipeline's topics",
    "run": "run as many workers as the load needs",
    "work": "run a worker",
    "produce": "write feature events from JSON lines or CSV to the input topic",
    "tail": "print predictions, or another of the pipeline's topics",
    "dead-letters": "list, show and replay the events that could not be processed",
    "lag": "show how far the pipeline is behind",
    "offsets": "show where the consumer group goes on reading, and set it back or forward",
    "autopilot": "move a rollout on, or back, by what it finds in the results and the late labels",
    "rollout": "show and change how a new model version takes over, and wait for its end",
    "compare": "compare the primary with its shadows, also by late labels; or show the results",
    "replay": "run a model version over past events, and compare it with what was predicted and with the labels",
    "report": "write one page with figures and plots about the predictions and the shadows",
    "demo": "run the whole service on real flights",
    "options": "list every option of the pipeline file",
    "metrics": "list every metric of a worker",
    "schema": "print the schema of a pipeline's predictions",
    "docs": "list the pages of the documentation, or print one",
    "dashboards": "write the Grafana dashboards and the Prometheus rules",
    "completion": "print a script that completes commands and options in your shell",
}
"""Command -> what it does. Each command is two modules of the same name, in which `_` stands for `-`: `usage/` has its
`add_arguments(parser)`, and this package its `run(args) -> exit code`. `run` and what it needs are imported when the command
runs. So `--help` and a wrong command line are answered at once."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code. `--help` lists the codes."""
    try:
        return _answer(arguments)
    except BrokenPipeError:
        _drop_output()  # the reader of our output has ended (`| head`)
        return DONE
    except MemoryError as error:
        return _tell_short(arguments, error)
    except OSError as error:
        if error.errno == errno.ENOMEM:
            return _tell_short(arguments, error)
        if error.errno not in _FULL:
            raise
        say(f"The output, or a file, can't be written: {error.strerror}. Make room, and try again.", logging.ERROR)
        _drop_output()
        return FAILED


def _tell_short(arguments: Sequence[str], error: Exception) -> int:
    """Say that memory is short; returns the exit code. What a worker that runs was doing, it tells itself."""
    name = command_of(arguments)
    say(f"Memory {ran_short(f'`millstream {name}` ran', error, is_worker=name in SUPERVISED)}", logging.ERROR)
    return FAILED


def _answer(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code. Raises OSError if the output can't be written."""
    name = command_of(arguments)
    try:
        args = _parsed(name, arguments)
    except SystemExit:
        sys.stdout.flush()  # of `--help` and `--version`
        raise
    if getattr(args, "log_format", "text") == "json":
        log_as_json(getattr(args, "instance_id", None))
    try:
        choose_native(os.environ)
    except ValueError as error:
        say(str(error), logging.ERROR)
        return WRONG_USE
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the terminal's encoding may lack characters of a record
    # Commands without a log report an outage in one message of their own. The client's line for each attempt is hidden.
    logging.getLogger("kafka").addHandler(logging.NullHandler())
    try:
        code: int = args.run(args)
        _flush(needed=name not in SUPERVISED)
    except (WorkerError, InferenceError, PipelineError, SchemaError, TopicsError) as error:
        say(with_pipeline(str(error), args), logging.ERROR)
        return NEEDS_CHANGE if name in SUPERVISED and _needs_change(error) else FAILED
    except KeyboardInterrupt:
        say("interrupted")
        return FAILED
    return code


def _flush(*, needed: bool) -> None:
    """Write what is left in stdout's buffer. `needed`: raise an error, because the output is what the command is for."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if needed or isinstance(error, BrokenPipeError):
            raise
        _drop_output()


def _drop_output() -> None:
    """Write what is left in stdout's buffer to the null device. When Python exits, it flushes stdout, and would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def command_line(loaded: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser, with the arguments of the `loaded` commands."""
    parser = Parser(
        prog="millstream",
        description="Stream-processing inference on Kafka: feature events in, micro-batches through a model, predictions out.",
    )
    parser.epilog = (
        "exit codes: 0 done, 1 failed, 2 wrong use.\n`run` and `work` also use 3: failed, and a restart would fail, too.\n"
        "`check` uses 3 if the model's server refuses all events of the warm-up.\n"
        "`compare --show`: 0 a shadow is better, 4 none is better, 5 not decided yet.\n"
        "`rollout wait`: 0 promoted, 4 rolled back, 5 concluded, 6 timed out, 7 another rollout took its place.\n"
        "`replay`: 0 the replayed version is better, 4 it is not, 5 not decided.\n\n"
        f"{parser.epilog}"
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version, and end")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name in loaded:
            module = name.replace("-", "_")
            importlib.import_module(f"millstream.consumers.cli.usage.{module}").add_arguments(command)
            command.set_defaults(run=partial(_run, module))
    return parser


def _run(module: str, args: argparse.Namespace) -> int:
    """Import a command and run it."""
    # An import creates many objects and frees few, so the garbage collector would search them in vain.
    gc.disable()
    try:
        command = importlib.import_module(f"millstream.consumers.cli.{module}")
    except ModuleNotFoundError as error:
        if error.name != "scipy":
            raise
        raise WorkerError(needs_comparison(f"millstream {module}", error)) from None
    gc.freeze()  # the imported objects stay; to search them at the next collection would take 30 ms
    gc.enable()
    if module not in SUPERVISED:
        raise_on_ctrl_c()
    code: int = command.run(args)
    return code


def _parsed(name: str | None, arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed command line. What is wrong ends the process, with the usage of the command that it is about."""
    parser = command_line([name] if name in COMMANDS else [])
    if name is not None and name not in COMMANDS:
        near = meant(name, list(COMMANDS)) or " `millstream --help` lists all commands."
        parser.error(f"there is no command {name!r}.{near}")
    args, unknown = parser.parse_known_args(arguments)
    unknown = _without_optional(args, unknown)
    if unknown:
        options = [option for action in args.parser._actions for option in action.option_strings]
        nearest = [meant(word.partition("=")[0], options) for word in unknown if word.startswith("-")]
        args.parser.error(f"unknown arguments: {' '.join(unknown)}{''.join(f'.{each}' for each in nearest if each)}")
    return args


def _without_optional(args: argparse.Namespace, unknown: list[str]) -> list[str]:
    """Take an argument that may be missing, such as FILE, from the unknown ones: argparse doesn't find it behind an option."""
    for action in args.parser._actions:
        is_missing = not action.option_strings and action.nargs == "?" and getattr(args, action.dest) == action.default
        if is_missing and len(unknown) == 1 and not unknown[0].startswith("-"):
            try:
                setattr(args, action.dest, args.parser._get_value(action, unknown.pop()))
            except argparse.ArgumentError as error:
                args.parser.error(str(error))
    return unknown


def _needs_change(error: Exception) -> bool:
    """Whether the command would fail the same way if it were started again."""
    if isinstance(error, SchemaError):
        return failure_of(error) != "wait"
    lasting = PipelineError, ModelConfigError, PlanError, EventRefused, OffsetsForgotten, OffsetsPastEnd, WorkersStopped
    return isinstance(error, lasting)


class _Version(argparse.Action):
    """Prints the version. argparse's own action would need it for every command line, and it takes a while to find."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

        try:
            found = version("millstream")
        except PackageNotFoundError:  # run from a checkout that is not installed
            found = "(not installed)"
        print(f"millstream {found}")
        parser.exit()
