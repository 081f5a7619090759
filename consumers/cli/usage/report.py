"""The arguments of `millstream report`."""

import argparse
from pathlib import Path

from millstream.consumers.cli.arguments import add_log_options, add_pipeline, utc_time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument(
        "--output", required=True, type=Path, metavar="FILE", help="the page to write, such as report.html"
    )
    parser.add_argument(
        "--from",
        dest="start",
        type=utc_time,
        metavar="TIME",
        help="the first records, by their timestamps: a time such as 2026-05-01T12:30, UTC (default: 24 hours before --to)",
    )
    parser.add_argument(
        "--to", dest="end", type=utc_time, metavar="TIME", help="the records before this time (default: now)"
    )
    add_segment(parser)
    add_log_options(parser, "warning")


def add_segment(parser: argparse.ArgumentParser) -> None:
    """Add the option for segments."""
    parser.add_argument(
        "--segment",
        metavar="FIELD",
        help="also show the figures for each value of this field of the event; `output.include` of the pipeline file names it",
    )
