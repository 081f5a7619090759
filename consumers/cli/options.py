"""`millstream options`: lists every option of the pipeline file, from the code that reads them."""

import argparse
import json

from millstream.pipeline.reference import json_schema, options_markdown


def run(args: argparse.Namespace) -> int:
    """Print the options as Markdown, or as a JSON Schema."""
    print(json.dumps(json_schema(), indent=2) if args.json_schema else options_markdown())
    return 0
