"""The arguments of `millstream autopilot`."""

import argparse

from millstream.consumers.cli.arguments import add_log_options, add_metrics_port, add_pipeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    add_metrics_port(parser)
    add_log_options(parser)
