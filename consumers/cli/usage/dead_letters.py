"""The arguments of `millstream dead-letters`."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any, get_args

from millstream.consumers.cli.arguments import add_json, add_pipeline, positive
from millstream.consumers.cli.parser import meant

if TYPE_CHECKING:
    from millstream.topics.dead_letters import Position


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    listing = actions.add_parser("list", help="list dead letters, with a summary by reason")
    add_pipeline(listing)
    add_selection(listing)
    listing.add_argument("--all", action="store_true", help="also list letters that were replayed")
    listing.add_argument("--limit", type=positive, metavar="N", help="list at most N letters; the summary counts all")
    add_json(listing, "letter", ", without a summary")
    listing.add_argument(
        "--values", action="store_true", help="with --json: also the event, as `show --json` prints it"
    )
    showing = actions.add_parser("show", help="show one dead letter, with its event decoded if possible")
    add_pipeline(showing)
    showing.add_argument(
        "position", type=letter_position, metavar="POSITION", help="partition@offset, as `list` prints it"
    )
    add_json(showing, "letter", ", with the event under `value` or, if it can't be decoded, `value_hex`")
    replaying = actions.add_parser("replay", help="write the events of dead letters back to the input topic, each once")
    add_pipeline(replaying)
    add_selection(replaying)
    replaying.add_argument("--limit", type=positive, metavar="N", help="replay at most N letters")
    replaying.add_argument("--dry-run", action="store_true", help="print what would be replayed, but write nothing")
    replaying.add_argument("--yes", action="store_true", help="don't ask first (without a terminal, it never asks)")


SELECTING = ("reason", "error", "field", "position", "topic", "source_partition", "since", "until")
"""The options of `add_selection`, as arguments."""


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that select dead letters."""
    several: dict[str, Any] = {"action": "append", "default": []}
    group = parser.add_argument_group("which dead letters")
    group.add_argument("--reason", type=_reason, metavar="R", help="only with this reason; may be repeated", **several)
    group.add_argument(
        "--error", metavar="TEXT", help="only if the error has this text in it; may be repeated", **several
    )
    group.add_argument(
        "--field",
        metavar="PATH",
        help="only if the error is about this field of the event, or about a field in it; may be repeated",
        **several,
    )
    group.add_argument(
        "--position",
        type=letter_position,
        metavar="P@O",
        help="only the dead letter at this partition@offset, as `list` prints it; may be repeated",
        **several,
    )
    group.add_argument("--topic", help="only events read from this topic; may be repeated", **several)
    group.add_argument(
        "--source-partition",
        type=int,
        metavar="N",
        help="only events read from this partition; may be repeated",
        **several,
    )
    group.add_argument(
        "--since",
        type=_moment,
        metavar="TIME",
        help="only events that failed at or after this time: 2026-03-01T12:00 (UTC), or 15m or 2h for that long ago",
    )
    group.add_argument(
        "--until", type=_moment, metavar="TIME", help="only events that failed before this time; same forms as --since"
    )


def _reason(text: str) -> str:
    from millstream.pipeline.sections import Reason  # noqa: PLC0415  (slow)

    reasons = get_args(Reason)
    if text not in reasons:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(reasons)}; found {text!r}.{meant(text, reasons)}")
    return text


def letter_position(text: str) -> Position:
    """An argument such as 3@17."""
    from millstream.topics.dead_letters import Position  # noqa: PLC0415  (slow)

    try:
        return Position.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _moment(text: str) -> int:
    from millstream.topics.dead_letters import parse_moment  # noqa: PLC0415  (slow)

    try:
        return parse_moment(text, time.time())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
