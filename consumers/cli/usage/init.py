"""The arguments of `millstream init`."""

import argparse
from pathlib import Path

from millstream.consumers.cli.arguments import positive

SAMPLE_SIZE = 200  # events that are looked at, by default


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder to create; must be empty if it exists")
    parser.add_argument(
        "--model",
        metavar="FILE|DIR",
        type=Path,
        help="your model (model.onnx, model.pt2, model.pt, model.py), to create a pipeline for it; needs a sample, too",
    )
    sample = parser.add_mutually_exclusive_group()
    sample.add_argument(
        "--sample", metavar="FILE", help="some of your events, one JSON object per line; - is standard input"
    )
    sample.add_argument(
        "--sample-topic",
        metavar="TOPIC",
        help="the topic of your events, which are JSON, on the broker that the environment variable KAFKA_BOOTSTRAP names "
        "(default: 127.0.0.1:9092)",
    )
    parser.add_argument(
        "--filter",
        metavar="CONDITION",
        action="append",
        default=[],
        help="of a sample with several kinds of events, take those for which this holds, such as 'type == order_placed'; becomes "
        "input.filter; may be repeated",
    )
    parser.add_argument(
        "--limit", type=positive, default=SAMPLE_SIZE, metavar="N", help="events to look at (default: %(default)s)"
    )
