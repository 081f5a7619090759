"""The arguments of `millstream run`."""

import argparse

from millstream.consumers.cli.arguments import (
    add_former_name,
    add_log_options,
    add_metrics_port,
    add_pipeline,
    name,
    positive,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument("--workers", type=positive, metavar="N", help="always run N workers: short for --min N --max N")
    parser.add_argument("--min", type=positive, metavar="N", help="fewest workers (default: scaling.min, else 1)")
    parser.add_argument(
        "--max",
        type=positive,
        metavar="N",
        help="most workers (default: scaling.max, else one per partition, but at most the machine's cores)",
    )
    add_metrics_port(parser, " (of all workers, with the lag and the scaling decision)")
    parser.add_argument(
        "--plain",
        action="store_true",
        help="print a line when something changes, and one a minute; the default if the output isn't a terminal",
    )
    parser.add_argument(
        "--instance-id-prefix",
        type=name,
        metavar="NAME",
        help="the workers' instance IDs are NAME-0, NAME-1, ... (default: the machine's name)",
    )
    add_former_name(parser, "--slots", "--instance-id-prefix")
    add_log_options(parser, "warning")
    add_former_name(parser, "--verbose", "--log-level info")
