"""The arguments of `millstream profile`."""

import argparse
from pathlib import Path

from millstream.consumers.cli.arguments import add_events_option, add_json, add_pipeline, duration, positive, seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    add_events_option(parser, "blank events")
    parser.add_argument(
        "--model",
        metavar="NAME[/VERSION]",
        type=model_version,
        help="another model of the repository (default: the pipeline's)",
    )
    parser.add_argument(
        "--target-p99",
        type=duration,
        metavar="TIME",
        help="how soon 99 in 100 events are to have their result after they are read, such as 20ms (default: batch.target_p99)",
    )
    parser.add_argument(
        "--max-events", type=positive, metavar="N", help="the largest batch to measure (default: batch.max_events)"
    )
    parser.add_argument(
        "--seconds", type=seconds, default=30.0, metavar="SECONDS", help="how long to measure (default: 30)"
    )
    add_json(parser, "batch size", ", and one with the settings")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw throughput and latency, as SVG")


def model_version(text: str) -> tuple[str, int | None]:
    """A model's name, and its version if there is one behind a slash."""
    name, slash, version = text.partition("/")
    if not name or (slash and not (version.isdecimal() and int(version))):
        raise argparse.ArgumentTypeError(f"expected a model's name, or NAME/VERSION such as my-model/2, found {text!r}")
    return name, int(version) if slash else None
