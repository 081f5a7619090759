"""The arguments of `millstream offsets`."""

import argparse

from millstream.consumers.cli.arguments import add_pipeline, utc_time


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument(
        "--to",
        type=target,
        metavar="TIME|earliest|latest",
        help="show what would change if the group went on with the first events of this time, by their records' timestamps "
        "(such as 2026-05-01T12:30, UTC); with the oldest events that are there; or with those that come from now on",
    )
    parser.add_argument("--execute", action="store_true", help="set the offsets that --to gives; no worker may run")
    parser.add_argument(
        "--partition",
        dest="partitions",
        type=partitions,
        action="append",
        metavar="TOPIC/NUMBER",
        help="only this partition, or several: TOPIC/FIRST-LAST; it may be given more than once (default: all)",
    )


def target(text: str) -> int | str:
    """A time in ms since the epoch, or the word earliest or latest."""
    return text if text in {"earliest", "latest"} else utc_time(text)


def partitions(text: str) -> tuple[str, range]:
    """A topic, and some of its partitions."""
    topic, _, numbers = text.rpartition("/")
    first, dash, last = numbers.partition("-")
    if not (topic and first.isdecimal() and (last.isdecimal() or not dash)) or int(last or first) < int(first):
        raise argparse.ArgumentTypeError(f"expected TOPIC/NUMBER or TOPIC/FIRST-LAST, found {text!r}")
    return topic, range(int(first), int(last or first) + 1)
