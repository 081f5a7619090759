"""The arguments of `millstream tail`."""

import argparse

from millstream.consumers.cli.arguments import add_json, add_pipeline, positive, seconds

ROLES = ("predictions", "dead-letters", "comparisons", "evaluations", "labels", "input")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument(
        "--topic",
        metavar="TOPIC",
        default="predictions",
        help=f"the topic to read: {', '.join(ROLES)} (default: predictions), or a topic's name",
    )
    parser.add_argument(
        "--comparisons",
        dest="topic",
        action="store_const",
        const="comparisons",
        help="the results of the primary and its shadows; short for --topic comparisons",
    )
    parser.add_argument(
        "--from-beginning", action="store_true", help="also print existing records (default: only new ones)"
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="stop after N records")
    parser.add_argument("--timeout", type=seconds, metavar="SECONDS", help="stop after this time without a record")
    add_json(parser, "record", "; the default if the output isn't a terminal")
