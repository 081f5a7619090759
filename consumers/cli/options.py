"""`millstream options`: every option of the pipeline file, from the code that reads it."""

import argparse
import json

from millstream.pipeline.reference import json_schema, options_markdown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    parser.add_argument("--json-schema", action="store_true", help="print a JSON Schema of the file, for editors")


def run(args: argparse.Namespace) -> int:
    """Print."""
    print(json.dumps(json_schema(), indent=2) if args.json_schema else options_markdown())
    return 0
