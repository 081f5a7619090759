"""The arguments of `millstream topics`."""

import argparse

from millstream.consumers.cli.arguments import add_json, add_pipeline, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    making = actions.add_parser("create", help="create the topics that don't exist yet")
    add_pipeline(making)
    making.add_argument(
        "--partitions",
        type=positive,
        metavar="N",
        help="of each new topic (default: as many as the input topic has; if there is none yet, as the output topic; else the "
        "broker's default)",
    )
    making.add_argument(
        "--replication-factor",
        type=positive,
        metavar="N",
        help="of each new topic (default: the broker's)",
    )
    add_json(making, "topic")
    showing = actions.add_parser("show", help="show the topics")
    add_pipeline(showing)
    add_json(showing, "topic")
