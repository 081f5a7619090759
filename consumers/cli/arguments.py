"""Arguments that several commands share."""

import argparse
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
