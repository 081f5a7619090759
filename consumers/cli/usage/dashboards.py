"""The arguments of `millstream dashboards`."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    parser.add_argument(
        "--output", type=Path, metavar="DIR", required=True, help="the folder to create; must be empty if it exists"
    )
