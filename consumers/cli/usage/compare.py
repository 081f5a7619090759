"""The arguments of `millstream compare`."""

import argparse

from millstream.consumers.cli.arguments import add_json, add_log_options, add_metrics_port, add_pipeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument("--show", action="store_true", help="print the results so far and the verdict, and end")
    add_json(parser, "shadow (with --show)")
    add_metrics_port(parser)
    add_log_options(parser)
