"""The arguments of `millstream work`."""

import argparse

from millstream.consumers.cli.arguments import (
    add_former_name,
    add_log_options,
    add_metrics_port,
    add_pipeline,
    name,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument(
        "--instance-id",
        type=name,
        metavar="NAME",
        help="a name that lasts over restarts, such as the pod's (default: this machine's next)",
    )
    add_former_name(parser, "--slot", "--instance-id")
    parser.add_argument(
        "--role",
        default="primary",
        choices=["primary", "shadow"],
        help="primary (default), or shadow: run the pipeline's dedicated shadows in a group of their own, and write comparisons",
    )
    parser.add_argument("--until-idle", action="store_true", help="process the existing events, commit, and end")
    add_metrics_port(parser)
    add_log_options(parser)
