"""The arguments of `millstream broker`."""

import argparse
from pathlib import Path

from millstream.consumers.cli.arguments import port_number

PORT = 9092


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    parser.add_argument(
        "--port",
        type=port_number,
        metavar="PORT",
        help=f"port of Apache Kafka (default: {PORT}). The embedded broker takes any free port",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder that keeps the topics and events of Apache Kafka over a restart, and its log, broker.log (default: a "
        "temporary one, which is deleted at the end)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="folder that keeps Apache Kafka, which Maven downloads once, 43 MB (default: ~/.cache/millstream)",
    )
    parser.add_argument(
        "--run",
        dest="command",  # `run` is the command's function
        nargs=argparse.REMAINDER,
        metavar="COMMAND",
        help="run this command with KAFKA_BOOTSTRAP set, on Apache Kafka and a free port, and end with it",
    )
