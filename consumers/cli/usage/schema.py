"""The arguments of `millstream schema`."""

import argparse

from millstream.consumers.cli.arguments import add_pipeline


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    add_pipeline(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--avro",
        dest="form",
        action="store_const",
        const="avro",
        help="the Avro schema (the default if the pipeline's output.format is avro)",
    )
    form.add_argument(
        "--json-schema",
        dest="form",
        action="store_const",
        const="json",
        help="a JSON Schema with this pipeline's outputs and included fields (the default if output.format is json)",
    )
