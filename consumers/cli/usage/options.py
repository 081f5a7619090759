"""The arguments of `millstream options`."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    parser.add_argument("--json-schema", action="store_true", help="print a JSON Schema of the file, for editors")
