"""`millstream`: finds the command, runs it, and turns an error into a clear message and an exit code."""

import argparse
import gc
import importlib
import io
import logging
import os
import sys
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version

from millstream.consumers.cli.parser import Parser
from millstream.consumers.errors import (
    NEEDS_CHANGE,
    EventRefused,
    OffsetsPastEnd,
    PlanError,
    WorkerError,
    WorkersStopped,
)
from millstream.inference.errors import InferenceError, ModelConfigError
from millstream.pipeline.errors import PipelineError
from millstream.schemas.errors import SchemaError
from millstream.schemas.failures import failure_of
from millstream.schemas.native import choose_native
from millstream.topics.errors import TopicsError

DONE, FAILED, WRONG_USE = 0, 1, 2
SUPERVISED = ("work", "run")
"""Commands that a supervisor restarts. If a restart can't help, they end with the exit code `NEEDS_CHANGE`."""

COMMANDS = {
    "init": "create a folder with a working pipeline",
    "check": "check a pipeline's file, schemas, model and topics without running it",
    "predict": "run events through the mapping and the model without Kafka, and show features and outputs",
    "broker": "run a Kafka broker on this machine, to try things out",
    "topics": "create or show a pipeline's topics",
    "run": "run as many workers as the load needs",
    "work": "run a worker",
    "produce": "write feature events from JSON lines or CSV to the input topic",
    "tail": "print predictions, or another of the pipeline's topics",
    "dead-letters": "list, show and replay the events that could not be processed",
    "lag": "show how far the pipeline is behind",
    "compare": "compare the primary with its shadows, also by late labels; or show the results",
    "demo": "run the whole service on real flights",
    "options": "list every option of the pipeline file",
    "metrics": "list every metric of a worker",
    "schema": "print the schema of a pipeline's predictions",
    "docs": "list the pages of the documentation, or print one",
    "dashboards": "write the Grafana dashboards and the Prometheus rules",
    "completion": "print a script that completes commands and options in your shell",
}
"""Command -> what it does. Each command is a module of this package with `add_arguments(parser)` and `run(args) -> exit code`. In
the module's name, `_` stands for `-`."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code. `--help` lists the codes."""
    name = next((word for word in arguments if not word.startswith("-")), None)
    args = _parsed(name, arguments)
    try:
        choose_native(os.environ)
    except ValueError as error:
        print(error, file=sys.stderr)
        return WRONG_USE
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # the terminal's encoding may lack characters of a record
    # Commands without a log report an outage in one message of their own. The client's line for each attempt is hidden.
    logging.getLogger("kafka").addHandler(logging.NullHandler())
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except (WorkerError, InferenceError, PipelineError, SchemaError, TopicsError) as error:
        print(error, file=sys.stderr)
        return NEEDS_CHANGE if name in SUPERVISED and _needs_change(error) else FAILED
    except KeyboardInterrupt:
        return FAILED
    except BrokenPipeError:
        # The reader of our output has ended (`| head`). When Python exits, it flushes stdout and would fail again, so
        # stdout now goes to the null device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return code


def command_line(loaded: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser. It imports only the modules of the `loaded` commands, so `--help` doesn't load a model runtime."""
    parser = Parser(
        prog="millstream",
        description="Stream-processing inference on Kafka: feature events in, micro-batches through a model, predictions out.",
    )
    parser.epilog = (
        "exit codes: 0 done, 1 failed, 2 wrong use.\n`run` and `work` also use 3: failed, and a restart would fail, too.\n"
        "`compare --show`: 0 a shadow is better, 4 none is better, 5 not decided yet.\n\n"
        f"{parser.epilog}"
    )
    parser.add_argument("--version", action="version", version=f"millstream {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name in loaded:
            # An import creates many objects and frees few, so the garbage collector would search them in vain.
            gc.disable()
            module = importlib.import_module(f"millstream.consumers.cli.{name.replace('-', '_')}")
            gc.enable()
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser


def _parsed(name: str | None, arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed command line. What is wrong ends the process, with the usage of the command that it is about."""
    parser = command_line([name] if name in COMMANDS else [])
    if name is not None and name not in COMMANDS:
        close = get_close_matches(name, COMMANDS, n=1)
        meant = f"Did you mean {close[0]}?" if close else "`millstream --help` lists all commands."
        parser.error(f"there is no command {name!r}. {meant}")
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        args.parser.error(f"unknown arguments: {' '.join(unknown)}")
    return args


def _needs_change(error: Exception) -> bool:
    """Whether the command would fail the same way if it were started again."""
    if isinstance(error, SchemaError):
        return failure_of(error) != "wait"
    return isinstance(error, (PipelineError, ModelConfigError, PlanError, EventRefused, OffsetsPastEnd, WorkersStopped))


def _version() -> str:
    try:
        return version("millstream")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "(not installed)"
