"""`millstream options`: lists every option of the pipeline file, from the code that reads them."""

import argparse
import json

from millstream.pipeline.reference import json_schema, options_markdown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.main`."""
    parser.add_argument("--json-schema", action="store_true", help="print a JSON Schema of the file, for editors")


def run(args: argparse.Namespace) -> int:
    """Print the options as Markdown, or as a JSON Schema."""
    print(json.dumps(json_schema(), indent=2) if args.json_schema else options_markdown())
    return 0
