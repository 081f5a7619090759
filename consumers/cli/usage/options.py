"""The arguments of `millstream options`."""

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    parser.add_argument(
        "name",
        metavar="SECTION",
        nargs="?",
        help="a section or an option, such as batch or batch.max_wait (default: all)",
    )
    parser.add_argument("--json-schema", action="store_true", help="print a JSON Schema of the file, for editors")
