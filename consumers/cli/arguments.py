"""Arguments that several commands share."""

import argparse
import math
import os
from pathlib import Path

from topics.pipeline import Pipeline, load_pipeline


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    """The pipeline file."""
    parser.add_argument("pipeline", metavar="PIPELINE", type=Path, help="the pipeline file, or its folder")


def read_pipeline(args: argparse.Namespace) -> Pipeline:
    """Load the file that `add_pipeline` asked for; in a folder it is `pipeline.yaml`."""
    path: Path = args.pipeline
    return load_pipeline(path / "pipeline.yaml" if path.is_dir() else path, os.environ)


def positive(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found {text!r}")
    return number


def seconds(text: str) -> float:
    """A duration in seconds above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, found {text!r}")
    return number


def port_number(text: str) -> int:
    """A TCP port, or 0 for a free one."""
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, found {text!r}")
    return number
