"""The arguments of `millstream check`."""

import argparse

from millstream.consumers.cli.arguments import add_pipeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    parser.add_argument("--offline", action="store_true", help="don't check the topics and the group in Kafka")
