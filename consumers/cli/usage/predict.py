"""The arguments of `millstream predict`."""

import argparse

from millstream.consumers.cli.arguments import add_event_file, add_json, add_pipeline, positive, seconds
from millstream.consumers.cli.usage.dead_letters import add_selection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    add_event_file(parser)
    parser.add_argument(
        "--limit", type=positive, metavar="N", help="stop after N events that pass input.filter, if there is one"
    )
    parser.add_argument(
        "--dead-letters",
        action="store_true",
        help="run the events of dead letters that weren't replayed, in place of a file",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="how long to wait if the model's server, the schema registry or the feature store refuses a request or is away "
        "(default: %(default)g)",
    )
    add_json(parser, "event")
    add_selection(parser)
