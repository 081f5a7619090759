"""`millstream lag`: how far the pipeline is behind, with or without workers alive."""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from consumers.cli.arguments import add_pipeline, read_pipeline
from topics.lag import LagReader, PartitionLag

WIDE = 1000  # columns of output that is no terminal's: one line a partition, so that `grep` finds it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument("--watch", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="between two looks (default: 2)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line for each look")


def run(args: argparse.Namespace) -> int:
    """Print."""
    pipeline = read_pipeline(args)
    reader = LagReader(pipeline.client_config(), pipeline.group_id, pipeline.input.topics)
    try:
        if args.json:
            _print_json(reader, pipeline.group_id, args)
        elif args.watch:
            _watch(reader, pipeline.group_id, args.interval)
        else:
            Console(width=None if sys.stdout.isatty() else WIDE).print(_table(pipeline.group_id, reader.read()))
    except KeyboardInterrupt:  # the way to end --watch
        return 0
    finally:
        reader.close()
    return 0


def _print_json(reader: LagReader, group: str, args: argparse.Namespace) -> None:
    while True:
        lags = reader.read()
        total = sum(lag.messages for lag in lags)
        row = {"group": group, "messages": total, "partitions": [dataclasses.asdict(lag) for lag in lags]}
        print(json.dumps(row), flush=True)
        if not args.watch:
            return
        time.sleep(args.interval)


def _watch(reader: LagReader, group: str, interval: float) -> None:
    with Live(_table(group, reader.read()), auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(_table(group, reader.read()), refresh=True)


def _table(group: str, lags: Sequence[PartitionLag]) -> Table:
    table = Table(box=None, pad_edge=False, title=f"group {group}", title_justify="left", show_footer=True)
    table.add_column("topic", footer="all", overflow="fold")  # a name is shown whole
    for heading in ("partition", "committed", "end"):
        table.add_column(heading, justify="right")
    table.add_column("lag", justify="right", footer=str(sum(lag.messages for lag in lags)))
    known = [lag.seconds for lag in lags if lag.seconds is not None]
    table.add_column("lag seconds", justify="right", footer=f"{max(known, default=0.0):.1f}")
    for lag in lags:
        table.add_row(
            lag.topic,
            str(lag.partition),
            "-" if lag.committed is None else str(lag.committed),
            str(lag.end),
            str(lag.messages),
            "?" if lag.seconds is None else f"{lag.seconds:.1f}",
        )
    return table
