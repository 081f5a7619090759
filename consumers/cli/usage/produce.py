"""The arguments of `millstream produce`."""

import argparse

from millstream.consumers.cli.arguments import add_event_file, add_pipeline, count, positive, rate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    add_event_file(parser)
    parser.add_argument(
        "--topic", help="the topic to write to, such as that of the labels (default: the pipeline's first input topic)"
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="stop after N rows")
    parser.add_argument("--rate", type=rate, metavar="R", help="rows per second (default: as fast as possible)")
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        help="report bad rows and continue (default: stop at the first); also rows that are too large for the topic",
    )
    parser.add_argument(
        "--skip",
        type=count,
        default=0,
        metavar="N",
        help="leave out the first N rows: an interrupted run says how many it has written",
    )
