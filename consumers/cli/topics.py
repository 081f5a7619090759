"""`millstream topics create|show`: creates or shows the pipeline's topics."""

import argparse
import sys

from rich.console import Console
from rich.table import Table

from millstream.consumers.cli.arguments import add_pipeline, positive, read_pipeline
from millstream.topics.admin import BROKER_DEFAULT, Admin, TopicState, create, roles, states

PIPED_WIDTH = 1000  # columns of output that doesn't go to a terminal: one line per topic, for `grep`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    making = actions.add_parser("create", help="create the topics that don't exist yet")
    add_pipeline(making)
    making.add_argument(
        "--partitions", type=positive, default=BROKER_DEFAULT, help="of each topic (default: the broker's)"
    )
    making.add_argument(
        "--replication-factor", type=positive, default=BROKER_DEFAULT, help="of each topic (default: the broker's)"
    )
    add_pipeline(actions.add_parser("show", help="show the topics"))


def run(args: argparse.Namespace) -> int:
    """Create or show; returns 1 if a topic is missing."""
    pipeline = read_pipeline(args)
    admin = Admin(pipeline.client_config())
    made: list[str] = []
    if args.action == "create":
        made = create(admin, pipeline, partitions=args.partitions, replication=args.replication_factor)
    table = Table(box=None, pad_edge=False)
    for heading in ("role", "topic", "partitions", "replicas", ""):
        table.add_column(heading, overflow="fold")  # a name is shown whole
    found = states(admin, roles(pipeline))
    for state in found:
        remark = _remark(state, made, args)
        table.add_row(
            state.role, state.name, str(state.partitions or "-"), str(state.replication_factor or "-"), remark
        )
    Console(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(table)
    return 1 if any(state.partitions is None for state in found) else 0


def _remark(state: TopicState, made: list[str], args: argparse.Namespace) -> str:
    if state.partitions is None:
        return "missing"
    if state.name in made:
        return "created"
    wanted = args.partitions if args.action == "create" else BROKER_DEFAULT
    return "" if wanted in {BROKER_DEFAULT, state.partitions} else f"exists: not changed to {wanted} partitions"
