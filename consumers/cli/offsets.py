"""`millstream offsets`: shows the committed offsets of the pipeline's group, and sets them."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.cli.say import say
from millstream.consumers.flow.partition_names import ranges_of
from millstream.consumers.observability.lag_metrics import reader_of
from millstream.topics.errors import TopicError
from millstream.topics.lag import LagReader, PartitionLag, Place
from millstream.topics.offsets import set_offsets

PIPED_WIDTH = 1000  # columns of output that doesn't go to a terminal: one line per partition, for `grep`


def run(args: argparse.Namespace) -> int:
    """Print the offsets; with `--to`, the new ones, too. Set them with `--execute`."""
    if args.execute and args.to is None:
        args.parser.error("--execute: expected --to, which says where the group is to go on.")
    if isinstance(args.to, int) and args.to > time.time() * 1000:
        args.parser.error(
            f"--to {_utc(args.to)}: this is in the future. For the events that come from now on: --to latest."
        )
    pipeline = read_pipeline(args)
    with closing(reader_of(pipeline)) as reader:
        lags = _chosen(reader.read(), args.partitions)
        new = _targets(reader, lags, args.to)
    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(_table(pipeline.group_id, lags, new))
    if args.execute:
        set_offsets(pipeline.client_config(), pipeline.group_id, new)
        say(f"the offsets of group {pipeline.group_id} are set: the workers go on there when you start them")
    elif new:
        say("nothing is changed: stop all workers, and add --execute to set these offsets")
    return 0


def _chosen(lags: Sequence[PartitionLag], named: Sequence[tuple[str, range]] | None) -> Sequence[PartitionLag]:
    """The partitions that the command line names."""
    if named is None:
        return lags
    known = {(lag.topic, lag.partition) for lag in lags}
    for topic, numbers in named:
        if (topic, numbers[-1]) not in known:
            raise TopicError(
                f"--partition {topic}/{numbers[-1]}: expected one of {ranges_of(known)}, which the pipeline reads."
            )
    return [lag for lag in lags if any(lag.topic == topic and lag.partition in numbers for topic, numbers in named)]


def _targets(reader: LagReader, lags: Sequence[PartitionLag], to: int | str | None) -> Mapping[Place, int]:
    """The new offset of each partition; none without `--to`."""
    since = reader.read_since(to) if isinstance(to, int) else {}
    found = dict[Place, int]()
    for lag in lags if to is not None else ():
        place = lag.topic, lag.partition
        at = lag.begin if to == "earliest" else since.get(place, -1)
        found[place] = lag.end if at < 0 else at
    return found


def _table(group: str, lags: Sequence[PartitionLag], new: Mapping[Place, int]) -> Table:
    table = Table(box=None, pad_edge=False, title=f"group {group}", title_justify="left")
    table.add_column("topic", overflow="fold")  # a name is shown whole
    for heading in ("partition", "begin", "committed", "end"):
        table.add_column(heading, justify="right")
    table.add_column("next record (UTC)")
    if new:
        table.add_column("new offset", justify="right")
        table.add_column("records, at most")
    for lag in lags:
        at = new.get((lag.topic, lag.partition))
        table.add_row(
            lag.topic,
            str(lag.partition),
            str(lag.begin),
            "-" if lag.committed is None else str(lag.committed),
            str(lag.end),
            "-" if lag.timestamp is None else _utc(lag.timestamp),
            *(() if at is None else (str(at), _change(lag, at))),
        )
    return table


def _change(lag: PartitionLag, new: int) -> str:
    """What the new offset changes for the group."""
    now = min(lag.start, lag.end)
    if new > now:
        return f"{new - now:,} left out"
    if (
        new < now
    ):  # a group that has committed nothing, and starts with the latest events, has not read the earlier ones
        return f"{now - new:,} {'more read' if lag.committed is None else 'read again'}"
    return "-"


def _utc(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")
