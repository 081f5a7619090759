"""`millstream topics create|show`: creates or shows the pipeline's topics."""

import argparse
import json
import sys
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from millstream.consumers.cli.given import read_pipeline
from millstream.consumers.cli.say import say
from millstream.topics.admin import BROKER_DEFAULT, ROLLOUT, Admin, TopicState, create, roles, states

PIPED_WIDTH = 1000  # columns of output that doesn't go to a terminal: one line per topic, for `grep`


def run(args: argparse.Namespace) -> int:
    """Create or show; returns 1 if a topic is missing."""
    pipeline = read_pipeline(args)
    admin = Admin(pipeline.client_config(), say)
    made: list[str] = []
    if args.action == "create":
        made = create(
            admin,
            pipeline,
            partitions=args.partitions or BROKER_DEFAULT,
            replication=args.replication_factor or BROKER_DEFAULT,
        )
    found = states(admin, roles(pipeline))
    missing = any(state.partitions is None for state in found)
    if args.json:
        for state in found:
            print(json.dumps({**asdict(state), "remark": _remark(state, made, args)}))
        return int(missing)
    table = Table(box=None, pad_edge=False)
    for heading in ("role", "topic", "partitions", "replicas", ""):
        table.add_column(heading, overflow="fold")  # a name is shown whole
    for state in found:
        remark = _remark(state, made, args)
        table.add_row(
            state.role, state.name, str(state.partitions or "-"), str(state.replication_factor or "-"), remark
        )
    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(table)
    return int(missing)


def _remark(state: TopicState, made: list[str], args: argparse.Namespace) -> str:
    if state.partitions is None:
        return (
            "created, but this user may not see it: grant DESCRIBE on it"
            if state.name in made
            else "missing, or this user may not see it"
        )
    # The control topic is meant to have one partition.
    wanted = args.partitions if args.action == "create" and state.role != ROLLOUT else None
    as_wanted = wanted in {None, state.partitions}
    if state.name in made:
        return "created" if as_wanted else f"created, but not with {wanted} partitions: the broker chooses"
    return "" if as_wanted else f"exists: not changed to {wanted} partitions"
