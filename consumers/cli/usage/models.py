"""The arguments of `millstream models`."""

import argparse
import re
from pathlib import Path

from millstream.consumers.cli.arguments import add_events_option, add_json, add_pipeline, positive

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9._-]*")
DIFF_EVENTS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    listing = actions.add_parser("list", help="list the versions, and with --worker which one a worker serves")
    add_pipeline(listing)
    _add_workers(listing)
    add_json(listing, "version")
    showing = actions.add_parser("show", help="show a version's signature, size and checksum")
    add_pipeline(showing)
    _add_version(showing)
    _add_workers(showing)
    add_json(showing, "version")
    fetching = actions.add_parser("fetch", help="bring a version to this machine")
    add_pipeline(fetching)
    _add_version(fetching)
    fetching.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="also copy it to FOLDER/NAME/VERSION, to change it, or to run it there",
    )
    add_json(fetching, "version")
    comparing = actions.add_parser(
        "diff",
        help="compare the signatures and the outputs of two versions",
        description="Compare the signatures and the outputs of two versions. Ends with 1 if running workers can't change over "
        "from one to the other: their inputs or the names of their outputs differ, or only one calls a server. Otherwise with 0.",
    )
    add_pipeline(comparing)
    comparing.add_argument("old", metavar="OLD", type=version, help="a number, latest or an alias")
    comparing.add_argument("new", metavar="NEW", type=version, help="another one")
    add_events_option(comparing, "none: only the signatures are compared")
    comparing.add_argument(
        "--limit", type=positive, default=DIFF_EVENTS, metavar="N", help="events to run, at most (default: %(default)s)"
    )
    add_json(comparing, "difference")
    warming = actions.add_parser("warm", help="fetch a version, load it and warm it up, as a worker does at its start")
    add_pipeline(warming)
    _add_version(warming)
    add_json(warming, "version")


def version(text: str) -> int | str:
    """A version's number, `latest` or an alias."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    if _NAME.fullmatch(text):
        return text
    raise argparse.ArgumentTypeError(f"expected a version's number, latest or an alias, found {text!r}")


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "version",
        metavar="VERSION",
        nargs="?",
        type=version,
        help="a number, latest or an alias (default: the pipeline's version)",
    )


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--worker",
        dest="workers",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="a worker's metrics port, to show which version it serves; several times for several workers",
    )
