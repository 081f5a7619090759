"""The arguments of `millstream replay`."""

import argparse
from pathlib import Path

from millstream.consumers.cli.arguments import add_log_options, add_pipeline, duration, rate, utc_time, utc_time_or_now
from millstream.consumers.cli.usage.report import add_segment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument(
        "--model",
        required=True,
        type=version,
        metavar="VERSION",
        help="the version to run: its number, such as 2 or v2, `latest`, or an alias",
    )
    parser.add_argument(
        "--from",
        dest="start",
        required=True,
        type=utc_time,
        metavar="TIME",
        help="the first events to run, by their records' timestamps: a time such as 2026-05-01T12:30 (UTC)",
    )
    parser.add_argument(
        "--to",
        dest="end",
        required=True,
        type=utc_time_or_now,
        metavar="TIME",
        help="run the events before this time, or before `now`",
    )
    parser.add_argument(
        "--output",
        metavar="TOPIC",
        help="also write the predictions to this topic; it is created if it isn't there (default: write nothing to Kafka)",
    )
    parser.add_argument(
        "--rate", type=rate, metavar="N", help="run at most N events per second (default: as fast as possible)"
    )
    parser.add_argument(
        "--late",
        type=duration,
        default=3600.0,
        metavar="TIME",
        help="how long after --to the predictions of the last events may have come, such as 6h (default: 1h)",
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FOLDER",
        help="folder for the replay's files (default: one in the user's cache folder)",
    )
    parser.add_argument("--anew", action="store_true", help="delete the results of an earlier run, and begin anew")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="also write the result as one page of HTML with plots"
    )
    add_segment(parser)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add_log_options(parser, "warning")


def version(text: str) -> int | str:
    """A version's number, with or without a `v` before it; or `latest`, or an alias."""
    number = text.removeprefix("v")
    if number.isdecimal():
        if not int(number):
            raise argparse.ArgumentTypeError(f"expected a version from 1 on, found {text!r}")
        return int(number)
    return text
