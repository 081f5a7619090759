"""The arguments of `millstream lag`."""

import argparse

from millstream.consumers.cli.arguments import add_json, add_metrics_host, add_pipeline, port_number, seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument(
        "--watch", action="store_true", help="repeat until Ctrl-C; also show growth and the time to drain"
    )
    parser.add_argument(
        "--interval", type=seconds, default=2.0, metavar="SECONDS", help="time between two measurements (default: 2)"
    )
    add_json(parser, "measurement")
    parser.add_argument(
        "--serve",
        type=port_number,
        metavar="PORT",
        help="serve the lag for Prometheus at /metrics until Ctrl-C, even if no worker runs; 0: a free port",
    )
    add_metrics_host(parser)
